"""Evidence of a question: the sentences of gold passages that its answer rests on, as a teacher may be told them."""

from __future__ import annotations

from collections.abc import Callable

from seedbench.core import Anchor, Passage
from seedbench.envs.searchqa.data import Evidence, Question
from seedbench.envs.searchqa.prose import sentences
from seedbench.envs.searchqa.scoring import normalise

MOST = 6  # anchors of a question (SSPO, arXiv 2608.12764: 5.24 on average)
LONGEST = 64  # words of one


def anchors(question: Question, passage_of: Callable[[Evidence], Passage | None]) -> tuple[Anchor, ...]:
    """One anchor a hop, in order, the last MOST of them; none where the hops or their passages are not known."""
    found = []
    for hop in question.evidence:
        passage = passage_of(hop)
        if passage is not None and (text := hop.text or quote(passage.text, hop.sentence, question)):
            found.append(Anchor(passage.title, passage.id, shorten(text)))
    return tuple(dict.fromkeys(found))[-MOST:]


def quote(text: str, number: int, question: Question) -> str:
    """Sentence `number` of a passage; where that is not known (-1), the one that shares most words with the question
    and its answer, the first of equals."""
    said = sentences(text)
    if 0 <= number < len(said):
        return said[number]
    wanted = set(normalise(" ".join([question.question, *question.golds])).split())
    return max(said, key=lambda sentence: len(wanted & set(normalise(sentence).split())), default="")


def shorten(text: str) -> str:
    """At most LONGEST words, taken from the beginning; the words as they stand."""
    words = text.split()
    return " ".join(words) if len(words) <= LONGEST else " ".join(words[:LONGEST])
