"""What no action of an ALFWorld game changes: names, places, what fits where, the goal. Compiled once from the PDDL.

Sets of objects are integers with one bit an object, in the order of their ids, which is the order in which the real
engine lists them; sets of receptacles likewise. Objects, receptacles and locations are numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.alfworld.problem import Problem, parse_problem

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
CLEANERS = ("sinktype", "sinkbasintype")
HEATERS = ("microwavetype",)
COOLERS = ("fridgetype",)
KNIVES = ("knifetype", "butterknifetype")


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _listed(items: list[str]) -> str:
    if len(items) < 2:
        return items[0] if items else "nothing"
    return ", ".join(items[:-1]) + ", and " + items[-1]


def _names(ids: Iterable[str]) -> dict[str, str]:
    """ALFWorld's names: the type and a number, the highest number to the lowest id."""
    kinds = {}
    for name in sorted(ids):
        kind, bar, _ = name.partition("_bar_")
        kinds[name] = (kind + "basin" if "basin" in name else kind) if bar else ""
    left = Counter(kinds.values())
    names = {}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}" if kind else f"{name} "
        left[kind] -= 1
    return names


class Game:
    """One compiled game: everything that no action changes. Objects, receptacles and locations are numbers.

    Raises SeedbenchError where `problem` is not a problem of ALFWorld's domain.
    """

    def __init__(self, problem: str, task: str):
        parsed = parse_problem(problem)
        self.task = task  # the whole line: "Your task is to: ..."
        self.goal_line = task.partition(": ")[2] or task
        self.goal = parsed.goal
        self._name(parsed)
        self._receptacles(parsed)
        self._objects(parsed)
        self.moves: dict[tuple[int, ...], Any] = {}  # what states remember for each other; see engine.State
        self.texts: dict[tuple[int, bool, int], str] = {}

    def _name(self, parsed: Problem) -> None:
        facts = parsed.facts
        names = _names({argument for rows in facts.values() for row in rows for argument in row})
        otype = _single(facts["objecttype"], "object type")
        rtype = _single(facts["receptacletype"], "receptacle type")
        where = _single(facts["receptacleatlocation"], "receptacle location")
        start = _single(facts["atlocation"], "place of the agent")
        if len(start) != 1:
            raise SeedbenchError("an ALFWorld game needs exactly one agent at one location; generate the game again.")
        objects = {o for rows in ("objecttype", "inreceptacle", "objectatlocation") for o, *_ in facts[rows]}
        objects |= {o for row in facts["inreceptacleobject"] for o in row}
        self._object = {o: k for k, o in enumerate(sorted(objects))}
        self._receptacle = {r: k for k, r in enumerate(sorted(where.keys() | rtype.keys()))}
        self._location = {place: k for k, place in enumerate(sorted({*where.values(), *start.values()}))}
        self.objects = [names[o] for o in self._object]  # names by number
        self.receptacles = [names[r] for r in self._receptacle]
        self.otypes = [otype.get(o, "") for o in self._object]
        self.rtypes = [rtype.get(r, "") for r in self._receptacle]
        self.places = [self._location[where[r]] if r in where else -1 for r in self._receptacle]  # location of each
        self.start = self._location[next(iter(start.values()))]

    def _receptacles(self, parsed: Problem) -> None:
        self.at: list[list[int]] = [[] for _ in self._location]  # receptacles by location
        for r, place in enumerate(self.places):
            if place >= 0:
                self.at[place].append(r)
        self.openable = _mask(self._receptacle[r] for (r,) in parsed.facts["openable"] if r in self._receptacle)
        holds: dict[str, set[str]] = {}
        for kind, otype in parsed.facts["cancontain"]:
            holds.setdefault(kind, set()).add(otype)
        by_kind = {kind: _mask(o for o, t in enumerate(self.otypes) if t in kinds) for kind, kinds in holds.items()}
        self.fits = [by_kind.get(kind, 0) for kind in self.rtypes]  # the objects that may be put there
        self.cleaners = _mask(r for r, kind in enumerate(self.rtypes) if kind in CLEANERS)
        self.heaters = _mask(r for r, kind in enumerate(self.rtypes) if kind in HEATERS)
        self.coolers = _mask(r for r, kind in enumerate(self.rtypes) if kind in COOLERS)
        located = [r for r, place in enumerate(self.places) if place >= 0]
        go = [(f"go to {self.receptacles[r]}", r) for r in located]
        self.going = [[(c, r) for c, r in go if r not in here] for here in self.at]  # commands and where they lead
        listed = [f"a {self.receptacles[r]}" for r in located]
        self.room = f"You are in the middle of a room. Looking quickly around you, you see {_listed(listed)}."

    def _objects(self, parsed: Problem) -> None:
        facts, number = parsed.facts, self._object

        def those(predicate: str) -> int:
            return _mask(number[o] for (o,) in facts[predicate] if o in number)

        self.pickupable, self.toggleable, self.sliceable = those("pickupable"), those("toggleable"), those("sliceable")
        self.cleanable, self.heatable, self.coolable = those("cleanable"), those("heatable"), those("coolable")
        self.cold = those("iscool")
        self.knives = _mask(o for o, kind in enumerate(self.otypes) if kind in KNIVES)
        self.vessels = those("isreceptacleobject")
        self.inner: dict[int, int] = {}  # objects inside a receptacle object
        for o, outer in facts["inreceptacleobject"]:
            if o != outer:
                self.inner[number[outer]] = self.inner.get(number[outer], 0) | 1 << number[o]
        self.contents = [0] * len(self.receptacles)  # objects by receptacle, at the start
        for o, r in facts["inreceptacle"]:
            if r in self._receptacle:
                self.contents[self._receptacle[r]] |= 1 << number[o]
        self.around = [0] * len(self._location)  # objects by location, at the start
        for o, place in facts["objectatlocation"]:
            if place in self._location:
                self.around[self._location[place]] |= 1 << number[o]
        goal = self.goal
        able = {"": -1, "clean": self.cleanable, "hot": self.heatable, "cool": self.coolable}[goal.property]
        self.wanted = _mask(o for o, kind in enumerate(self.otypes) if kind == goal.otype) & able
        self.targets = [r for r, kind in enumerate(self.rtypes) if kind == goal.rtype and goal.rtype]
        self.lamps = _mask(o for o, kind in enumerate(self.otypes) if goal.lamp and kind == goal.lamp) & self.toggleable
        self.parts = 3 if goal.lamp else 2 if goal.property or goal.count == 2 else 1  # of the goal, see State._judge

    def intro(self) -> str:
        """The welcome text before the first command."""
        here = self.at[self.start]
        seen = self.facing(here, []) if here else self.room
        return f"{WELCOME}\n\n{seen}\n\n{self.task}"

    def facing(self, here: list[int], beside: list[str]) -> str:
        return (
            f"You are facing the {_listed([self.receptacles[r] for r in here])}. Next to it, you see {_listed(beside)}."
        )

    def named(self, mask: int) -> str:
        """The objects of `mask` in the engine's words, or "nothing"."""
        return _listed([f"a {self.objects[o]}" for o in bits(mask)])


def _single(rows: Iterable[tuple[str, ...]], what: str) -> dict[str, str]:
    """Pairs as a dict. The planner would take two values for one name; no published game has them."""
    pairs: dict[str, str] = {}
    for name, value in rows:
        if pairs.setdefault(name, value) != value:
            raise SeedbenchError(
                f"{name} has more than one {what}, which the fast engine does not play; drop this game."
            )
    return pairs
