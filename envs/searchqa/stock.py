"""What a generated world is made of: how much of each kind, and how hard a level makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

LANDS = {"train": 0.56, "dev": 0.12, "seen": 0.14, "unseen": 0.18}  # share of everything at the default sizes
STOCK = {  # how much of each kind there is in all lands together
    "country": 56, "city": 330, "person": 1400, "company": 260, "university": 70, "building": 190, "film": 320,
    "novel": 290, "opera": 150, "painting": 150, "race": 130,
}  # fmt: skip
PROFESSIONS = {  # how common each is
    "film director": 13, "novelist": 8, "composer": 8, "actor": 7, "architect": 7, "painter": 7, "industrialist": 9,
    "politician": 18, "poet": 5, "athlete": 5, "botanist": 3, "chemist": 3, "engineer": 4, "geologist": 3, "lawyer": 3,
    "astronomer": 3, "physician": 3, "historian": 3,
}  # fmt: skip
LEARNED = frozenset(["botanist", "chemist", "engineer", "geologist", "lawyer", "astronomer", "physician", "historian"])
TRADES = (
    ("Pictures", "film studio"), ("Press", "publishing house"), ("Shipyard", "shipbuilder"),
    ("Glassworks", "maker of window glass"), ("Brewery", "brewer of dark beer"), ("Mills", "miller of flour"),
    ("Motors", "builder of lorries"), ("Instruments", "maker of clocks and scales"), ("Chemicals", "maker of dyes"),
    ("Foundry", "maker of bells and pipes"), ("Textiles", "weaver of wool"), ("Ceramics", "maker of tiles"),
)  # fmt: skip
BUILDINGS = ("Museum", "Museum", "Bridge", "Theatre", "Library", "Lighthouse", "Observatory")
TITLES = {  # frames of the titles of works, around a word of their own
    "film": ("The Road to {}", "Night over {}", "The Lights of {}", "Farewell to {}", "{} at Dawn"),
    "novel": ("Letters from {}", "The House of {}", "A Winter in {}", "The Orchards of {}", "The Heirs of {}"),
    "opera": ("The Bride of {}", "The Return of {}", "The Masks of {}", "The Prince of {}"),
    "painting": ("Harbour at {}", "View of {}", "The Reapers of {}", "Market Day in {}"),
}  # fmt: skip
RACES = (("Regatta", "rowing race"), ("Marathon", "foot race"), ("Tour", "cycling race"), ("Ski Run", "ski race"))
FIRST, LAST = 1800, 1935  # years of birth


class Level(NamedTuple):
    """How hard a world is, and its questions."""

    namesakes: float  # share of surnames and of title words that several bear
    fillers: int  # sentences of a passage that say nothing which is asked
    reworded: float  # share of questions in words that the passages do not use
    hops: tuple[int, ...]  # lengths of the chains of musique
    bridged: float  # share of comparisons that need a further hop


LEVELS = {
    1: Level(0.0, 0, 0.0, (3,), 0.0),
    2: Level(0.3, 0, 0.4, (3, 4), 0.6),
    3: Level(0.5, 1, 0.7, (3, 4), 0.8),
    4: Level(0.7, 2, 1.0, (4,), 1.0),
}


@dataclass(slots=True)
class Entity:
    """A subject of a passage. `facts` maps a relation to a name, a year or a number; `extra` is what prose needs."""

    name: str
    kind: str
    land: str
    facts: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    def year(self, relation: str) -> int:
        return int(self.facts[relation])
