"""How questions are worded: for each relation a question and a noun phrase, in the passages' words and in others.

{x} stands for what the relation starts from: a name, or the noun phrase of the hop before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Phrase(NamedTuple):
    """`ask` and `noun` follow a relation forwards, in plain and in other words; `back` goes from object to subject."""

    ask: tuple[str, ...]
    ask_reworded: tuple[str, ...]
    noun: str = ""
    noun_reworded: str = ""
    back: str = ""


PHRASES: Mapping[str, Phrase] = {
    "birthplace": Phrase(
        ("In which town was {x} born?", "Where was {x} born?"),
        ("Which town does {x} come from?", "What is the home town of {x}?"),
        "the birthplace of {x}", "the home town of {x}",
    ),
    "born": Phrase(("In what year was {x} born?", "When was {x} born?"), ("What is the year of birth of {x}?",)),
    "died": Phrase(("In what year did {x} die?", "When did {x} die?"), ("What was the year of the death of {x}?",)),
    "father": Phrase(("Who was the father of {x}?",), ("What was the name of the father of {x}?",),
                     "the father of {x}", "the father of {x}"),
    "mother": Phrase(("Who was the mother of {x}?",), ("What was the name of the mother of {x}?",),
                     "the mother of {x}", "the mother of {x}"),
    "spouse": Phrase(("Whom did {x} marry?", "Who was the spouse of {x}?"), ("Who was the husband or wife of {x}?",),
                     "the spouse of {x}", "the spouse of {x}"),
    "teacher": Phrase(("Who was the teacher of {x}?",), ("From whom did {x} learn?", "Who taught {x}?"),
                      "the teacher of {x}", "the person who taught {x}"),
    "university": Phrase(("At which university did {x} study?",), ("Which university did {x} attend?",),
                         "the university where {x} studied", "the university that {x} attended"),
    "employer": Phrase(("Which company did {x} work for?",), ("By which company was {x} employed?",),
                       "the company that {x} worked for", "the employer of {x}"),
    "settled": Phrase(("In what year was {x} founded?",), ("In which year does the history of {x} begin?",)),
    "river": Phrase(("On which river does {x} lie?", "On what river is {x}?"), ("Which river flows through {x}?",)),
    "mayor": Phrase(("Who was the first mayor of {x}?", "Who was the first elected mayor of {x}?"),
                    ("Who was the first to be elected to run the town hall of {x}?",),
                    "the first mayor of {x}", "the first elected mayor of {x}"),
    "twin": Phrase(("What is the twin town of {x}?",), ("Which town is twinned with {x}?",),
                   "the town that {x} is twinned with", "the twin town of {x}"),
    "population": Phrase(("How many inhabitants does {x} have?",), ("What is the population of {x}?",)),
    "capital": Phrase(("What is the capital of {x}?",), ("From which town is {x} governed?",),
                      "the capital of {x}", "the capital of {x}"),
    "independence": Phrase(("Since what year has {x} been independent?", "When did {x} become independent?"),
                           ("In what year did {x} begin to govern itself?",)),
    "president": Phrase(("Who was the first president of {x}?",), ("Who was the first head of state of {x}?",),
                        "the first president of {x}", "the first head of state of {x}"),
    "director": Phrase(("Who directed {x}?", "Who was the director of {x}?"), ("Who made {x}?",),
                       "the director of {x}", "the maker of {x}", "the film that {x} directed"),
    "released": Phrase(("In what year was {x} released?", "When was {x} released?"),
                       ("In what year did {x} reach the cinemas?",)),
    "score": Phrase(("Who wrote the music of {x}?",), ("Who is the composer of {x}?",),
                    "the composer of the music of {x}", "the composer of {x}"),
    "star": Phrase(("Who plays the leading role in {x}?",), ("Who is the star of {x}?",),
                   "the lead actor of {x}", "the star of {x}"),
    "studio": Phrase(("Which studio made {x}?",), ("Which company produced {x}?",),
                     "the studio that made {x}", "the company that produced {x}"),
    "source": Phrase(("On which novel is {x} based?",), ("Which book does {x} adapt?",),
                     "the novel on which {x} is based", "the book that {x} adapts"),
    "author": Phrase(("Who wrote {x}?", "Who is the author of {x}?"), ("From whose pen is {x}?",),
                     "the author of {x}", "the writer of {x}", "the novel that {x} wrote"),
    "published": Phrase(("In what year was {x} published?", "When was {x} published?"),
                        ("In what year did {x} first appear in print?",)),
    "publisher": Phrase(("Who was the publisher of {x}?",), ("Which house published {x}?",),
                        "the publisher of {x}", "the house that published {x}"),
    "setting": Phrase(("In which town is {x} set?",), ("In which town does {x} take place?",),
                      "the town where {x} is set", "the town where {x} takes place"),
    "pages": Phrase(("How many pages does {x} have?",), ("How many pages long is {x}?",)),
    "founder": Phrase(("Who founded {x}?", "Who was the founder of {x}?"), ("Who set up {x}?", "Who started {x}?"),
                      "the founder of {x}", "the person behind {x}", "the company that {x} founded"),
    "established": Phrase(("In what year was {x} founded?",), ("When did {x} start business?",)),
    "headquarters": Phrase(("In which town is the head office of {x}?",), ("Where is {x} based?",),
                           "the town with the head office of {x}", "the home town of {x}"),
    "parent": Phrase(("Which company does {x} belong to?",), ("What is the parent company of {x}?",),
                     "the company that {x} belongs to", "the parent company of {x}"),
    "seat": Phrase(("In which town is {x}?",), ("In which town do the students of {x} live?",),
                   "the town of {x}", "the seat of {x}"),
    "chartered": Phrase(("In what year did {x} receive its charter?",), ("In what year was {x} founded by charter?",)),
    "rector": Phrase(("Who was the first rector of {x}?",), ("Who was the first head of {x}?",),
                     "the first rector of {x}", "the first head of {x}"),
    "architect": Phrase(("Who was the architect of {x}?", "Who designed {x}?"), ("Who drew the plans of {x}?",),
                        "the architect of {x}", "the designer of {x}", "the building that {x} designed"),
    "site": Phrase(("In which town does {x} stand?", "In which town is {x}?"), ("Where can {x} be visited?",),
                   "the town where {x} stands", "the town that {x} is in"),
    "opened": Phrase(("In what year was {x} opened?", "When did {x} open?"),
                     ("In what year did {x} welcome its first visitors?",)),
    "height": Phrase(("How many metres high is {x}?",), ("What is the height of {x} in metres?",)),
    "winner": Phrase(("Who won the first race of {x}?",), ("Who was the first to win {x}?",),
                     "the first winner of {x}", "the first champion of {x}", "the race that {x} was the first to win"),
    "course": Phrase(("In which town is {x} held?",), ("Where does {x} take place?",),
                     "the town where {x} is held", "the town where {x} takes place"),
    "first_held": Phrase(("In what year was {x} first held?",), ("When did {x} take place for the first time?",)),
    "sponsor": Phrase(("Who is the sponsor of {x}?",), ("Which company pays for the prizes of {x}?",),
                      "the sponsor of {x}", "the company that sponsors {x}"),
    "composer": Phrase(("Who composed {x}?", "Who is the composer of {x}?"), ("Who set {x} to music?",),
                       "the composer of {x}", "the creator of {x}", "the opera that {x} composed"),
    "stage": Phrase(("In which town was {x} first performed?",), ("Where did {x} have its premiere?",),
                    "the town where {x} was first performed", "the town of the premiere of {x}"),
    "premiere": Phrase(("In what year was {x} first performed?",), ("In what year did {x} have its premiere?",)),
    "librettist": Phrase(("Who wrote the libretto of {x}?",), ("Who wrote the words of {x}?",),
                         "the librettist of {x}", "the author of the libretto of {x}"),
    "painter": Phrase(("Who painted {x}?",), ("From whose brush is {x}?",),
                      "the painter of {x}", "the artist behind {x}", "the picture that {x} painted"),
    "museum": Phrase(("In which museum does {x} hang?",), ("Which museum owns {x}?",),
                     "the museum where {x} hangs", "the museum that owns {x}"),
    "painted": Phrase(("In what year was {x} painted?",), ("When was {x} finished?",)),
}  # fmt: skip

INFERRED: Mapping[tuple[str, ...], tuple[str, ...]] = {  # one word for two steps: the inferences of 2WikiMultiHopQA
    ("father", "father"): ("Who was the paternal grandfather of {x}?",),
    ("father", "mother"): ("Who was the paternal grandmother of {x}?",),
    ("mother", "father"): ("Who was the maternal grandfather of {x}?",),
    ("mother", "mother"): ("Who was the maternal grandmother of {x}?",),
    ("spouse", "father"): ("Who was the father-in-law of {x}?",),
    ("spouse", "mother"): ("Who was the mother-in-law of {x}?",),
}

# A subject by two of its facts: the indirect questions of TriviaQA. {0} and {1} are the facts' objects.
DESCRIBED: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("birthplace", "born", "profession"): (
        "Which {2} was born in {0} in {1}?",
        "Which {2} came into the world in {0} in the year {1}?",
    ),
    ("headquarters", "founder"): (
        "Founded by {1}, which company has its head office in {0}?",
        "Which company with a head office in {0} did {1} set up?",
    ),
    ("director", "star"): (
        "In which film by the director {0} does {1} play the leading role?",
        "Directed by {0}, which film has {1} as its star?",
    ),
    ("author", "setting"): (
        "Which novel, written by {0}, is set in {1}?",
        "{0} wrote which novel that takes place in {1}?",
    ),
    ("site", "architect"): (
        "Which building in {0} was designed by the architect {1}?",
        "The architect {1} left which building in the town of {0}?",
    ),
    ("course", "winner"): (
        "Which race, held in {0}, was first won by {1}?",
        "{1} was the first winner of which race, held in {0}?",
    ),
    ("composer", "stage"): (
        "Which opera by {0} was first performed in {1}?",
        "{0} composed which opera that had its premiere in {1}?",
    ),
    ("painter", "museum"): (
        "Which painting by {0} hangs in the {1}?",
        "What is the title of the work by {0} that the {1} owns?",
    ),
}

# Comparisons by (prefix, key, later): how the one that is taken is called, given {a} and {b}.
CHOSEN: Mapping[tuple[tuple[str, ...], str, bool], str] = {
    ((), "released", False): "the earlier of the films {a} and {b}",
    ((), "published", True): "the later of the novels {a} and {b}",
    ((), "established", False): "the older of the companies {a} and {b}",
    ((), "born", False): "the older of {a} and {b}",
    ((), "born", True): "the younger of {a} and {b}",
    ((), "opened", True): "the newer of {a} and {b}",
    ((), "premiere", False): "the earlier of the operas {a} and {b}",
    (("director",), "born", False): "the older of the directors of {a} and {b}",
    (("author",), "born", True): "the younger of the authors of {a} and {b}",
    (("founder",), "born", False): "the older of the founders of {a} and {b}",
}
