"""Which patterns are asked about: for each kind of thing, what may single it out and where the path goes from there.

Train, dev and seen ask TRAINED, unseen asks UNSEEN. No path from the thing, and no pair of constraints, is in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from seedbench.envs.deepsearch.forms import Path

FEWEST, MOST = 3, 6  # hops of a question


class Pattern(NamedTuple):
    """A shape without names."""

    kind: str
    paths: tuple[Path, ...]
    tail: Path

    @property
    def hops(self) -> int:
        return sum(map(len, self.paths)) + len(self.tail)


class Stock(NamedTuple):
    """What patterns of a kind are made of: groups of constraints, any of which may stand together, and tails."""

    told: tuple[Path, ...]
    tails: tuple[Path, ...]


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(tuple(path.split(".")) for path in text.split())


TRAINED: Mapping[str, Stock] = {
    "film": Stock(
        _paths("director director.birthplace score star studio source.setting"),
        _paths("source.author source.author.birthplace studio.founder score.birthplace source.published star.spouse"),
    ),
    "novel": Stock(
        _paths("author author.birthplace setting publisher publisher.headquarters"),
        _paths("publisher.founder setting.river author.university setting.mayor.birthplace author.spouse pages"),
    ),
    "company": Stock(
        _paths("founder.birthplace founder.university headquarters parent"),
        _paths("founder.spouse headquarters.mayor parent.founder established founder.teacher headquarters.river"),
    ),
    "building": Stock(
        _paths("architect architect.birthplace site site.country"),
        _paths("architect.university site.mayor site.river height architect.spouse.birthplace opened"),
    ),
    "opera": Stock(
        _paths("composer composer.birthplace stage librettist stage.country"),
        _paths("librettist.birthplace composer.university stage.river stage.mayor librettist.born"),
    ),
    "race": Stock(
        _paths("course course.country sponsor winner.birthplace sponsor.headquarters"),
        _paths("winner.university sponsor.founder course.mayor first_held winner.born sponsor.founder.birthplace"),
    ),
    "person": Stock(
        _paths("birthplace university teacher employer birthplace.country"),
        _paths("spouse.birthplace employer.founder university.rector teacher.birthplace employer.headquarters died"),
    ),
}
UNSEEN: Mapping[str, Stock] = {
    "film": Stock(
        _paths(
            "director.university star.birthplace source score.teacher studio.headquarters released director.employer"
        ),
        _paths(
            "score director.mother source.publisher "
            "studio.parent score.spouse source.setting.mayor director.father.born"
        ),
    ),
    "novel": Stock(
        _paths("author.university publisher.founder setting author.teacher setting.country published author.employer"),
        _paths(
            "author author.father publisher.headquarters.river setting.twin author.mother.birthplace publisher.parent"
        ),
    ),
    "company": Stock(
        _paths("headquarters.country headquarters founder.teacher founder.employer established parent.headquarters"),
        _paths(
            "founder founder.father headquarters.twin parent.established founder.mother.born headquarters.mayor.spouse"
        ),
    ),
    "building": Stock(
        _paths("architect.university architect.teacher site site.river opened architect.employer"),
        _paths("architect architect.father site.twin architect.mother.birthplace site.mayor.university architect.died"),
    ),
    "opera": Stock(
        _paths("composer.university librettist.birthplace stage composer.teacher premiere stage.river"),
        _paths("composer composer.mother stage.twin librettist.father.born stage.mayor.spouse librettist.university"),
    ),
    "race": Stock(
        _paths("winner.university course winner.teacher first_held course.river sponsor.founder"),
        _paths("winner winner.mother course.twin sponsor.established course.mayor.father winner.spouse.birthplace"),
    ),
    "painting": Stock(
        _paths("painter painter.birthplace museum museum.site painter.university painted museum.architect"),
        _paths(
            "painter museum.architect.spouse painter.teacher "
            "museum.opened painter.father museum.site.river painter.mother"
        ),
    ),
    "person": Stock(
        _paths(
            "birthplace university.seat teacher.birthplace "
            "employer.headquarters employer.founder spouse.birthplace born"
        ),
        _paths(
            "teacher father.birthplace mother.father spouse.mother teacher.spouse father.mother birthplace.mayor.father"
        ),
    ),
}
ASKED: Mapping[str, Mapping[str, Stock]] = {"train": TRAINED, "dev": TRAINED, "seen": TRAINED, "unseen": UNSEEN}
YEARS = frozenset(["released", "published", "established", "opened", "premiere", "first_held", "painted", "born"])


def patterns(split: str) -> list[Pattern]:
    """Every pattern of a split: two constraints or three, no two of which begin alike, nor the tail as one of them."""
    return [pattern for kind, stock in ASKED[split].items() for pattern in _of_kind(kind, stock)]


def _of_kind(kind: str, stock: Stock) -> Iterator[Pattern]:
    for number in (2, 3):
        for told in combinations(stock.told, number):
            for tail in stock.tails:
                pattern = Pattern(kind, told, tail)
                if FEWEST <= pattern.hops <= MOST and _told_apart(told, tail):
                    yield pattern


def _told_apart(told: Sequence[Path], tail: Path) -> bool:
    starts = [path[0] for path in told]
    inside = any(tail[: len(path)] == path or path[: len(tail)] == tail for path in told)
    return len(set(starts)) == len(starts) and not inside and starts[0] not in YEARS
