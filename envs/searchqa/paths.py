"""What each kind of question asks: relation paths by kind, in groups that take turns.

A kind is named after the published set whose shape it has. `nq` and `hotpotqa` are what is trained on; no path of
theirs is a path of the five others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Shape(NamedTuple):
    """A comparison: see relations.Compare."""

    domain: str
    prefix: tuple[str, ...]
    key: str
    later: bool
    tail: tuple[str, ...]


SEEN_KINDS = ("nq", "hotpotqa")
UNSEEN_KINDS = ("triviaqa", "popqa", "2wikimultihopqa", "musique", "bamboogle")
NQ = (
    "birthplace", "born", "director", "released", "author", "published", "founder", "established", "architect", "site",
    "winner", "river", "mayor", "composer", "university", "headquarters", "pages", "opened", "spouse", "settled",
    "premiere", "course", "stage", "setting", "seat", "chartered", "painted", "height", "population", "first_held",
)  # fmt: skip
POPQA = (
    "father", "mother", "capital", "score", "librettist", "publisher", "painter", "twin", "employer", "president",
    "star", "sponsor", "parent", "studio", "teacher", "rector", "source", "museum",
)  # fmt: skip
HOTPOT_BRIDGES = (
    ("director", "birthplace"), ("author", "birthplace"), ("founder", "born"), ("headquarters", "river"),
    ("director", "university"), ("author", "spouse"), ("site", "mayor"), ("founder", "university"),
    ("architect", "birthplace"), ("winner", "born"), ("headquarters", "mayor"), ("composer", "born"),
    ("setting", "river"), ("course", "settled"), ("architect", "spouse"), ("painter", "birthplace"), ("seat", "river"),
    ("composer", "birthplace"), ("mayor", "birthplace"), ("stage", "settled"), ("~founder", "headquarters", "river"),
    ("~director", "source", "author"), ("~architect", "site", "mayor"), ("source", "author"),
)  # fmt: skip
HOTPOT_COMPARISONS = (
    Shape("film", (), "released", False, ("director",)),
    Shape("novel", (), "published", True, ("author",)),
    Shape("company", (), "established", False, ("founder",)),
    Shape("person", (), "born", False, ("birthplace",)),
)
HOTPOT_BRIDGED = (
    Shape("film", (), "released", False, ("director", "birthplace")),
    Shape("novel", (), "published", True, ("author", "university")),
    Shape("company", (), "established", False, ("founder", "birthplace")),
    Shape("company", (), "established", False, ("headquarters", "river")),
    Shape("building", (), "opened", True, ("architect", "born")),
)
WIKI_COMPOSITIONS = (
    ("director", "spouse"), ("director", "father"), ("author", "mother"), ("composer", "spouse"),
    ("score", "birthplace"), ("painter", "father"), ("star", "spouse"), ("founder", "mother"), ("winner", "father"),
)  # fmt: skip
WIKI_COMPARISONS = (
    Shape("person", (), "born", True, ("university",)),
    Shape("building", (), "opened", True, ("architect",)),
    Shape("opera", (), "premiere", False, ("librettist",)),
)
WIKI_BRIDGED = (
    Shape("film", ("director",), "born", False, ("birthplace",)),
    Shape("novel", ("author",), "born", True, ("birthplace",)),
    Shape("company", ("founder",), "born", False, ("spouse",)),
    Shape("film", ("director",), "born", False, ("father",)),
    Shape("opera", (), "premiere", False, ("librettist", "birthplace")),
)
BAMBOOGLE = (
    ("capital", "river"), ("president", "birthplace"), ("studio", "founder"), ("publisher", "headquarters"),
    ("librettist", "born"), ("painter", "teacher"), ("rector", "spouse"), ("employer", "founder"),
    ("star", "birthplace"), ("sponsor", "established"), ("museum", "architect"), ("capital", "mayor"),
    ("publisher", "founder"), ("rector", "born"), ("twin", "river"), ("score", "born"), ("parent", "founder"),
)  # fmt: skip
MUSIQUE: Mapping[int, tuple[tuple[str, ...], ...]] = {
    3: (
        ("source", "author", "birthplace"), ("studio", "founder", "spouse"), ("director", "birthplace", "mayor"),
        ("museum", "architect", "teacher"), ("author", "university", "rector"), ("founder", "birthplace", "river"),
        ("publisher", "founder", "university"), ("capital", "mayor", "birthplace"), ("rector", "birthplace", "settled"),
        ("librettist", "teacher", "birthplace"), ("star", "employer", "headquarters"), ("sponsor", "founder", "born"),
        ("painter", "father", "mother"), ("site", "mayor", "spouse"),
    ),
    4: (
        ("source", "author", "university", "rector"), ("studio", "founder", "birthplace", "mayor"),
        ("museum", "architect", "birthplace", "river"), ("publisher", "headquarters", "mayor", "birthplace"),
        ("sponsor", "founder", "university", "chartered"), ("painter", "teacher", "university", "seat"),
        ("capital", "mayor", "father", "birthplace"), ("director", "employer", "founder", "born"),
        ("parent", "founder", "birthplace", "twin"), ("star", "father", "mother", "born"),
        ("source", "publisher", "founder", "spouse"), ("score", "birthplace", "mayor", "born"),
        ("site", "mayor", "father", "mother"), ("publisher", "founder", "father", "birthplace"),
        ("course", "mayor", "spouse", "father"), ("studio", "headquarters", "mayor", "spouse"),
        ("stage", "mayor", "mother", "father"), ("author", "birthplace", "mayor", "died"),
        ("architect", "spouse", "birthplace", "river"), ("seat", "mayor", "birthplace", "settled"),
    ),
}  # fmt: skip
