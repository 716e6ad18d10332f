"""From the PDDL problem of an ALFWorld game to facts and a goal.

The planner behind the real engine lower-cases everything; so does `parse_problem`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from seedbench.core import SeedbenchError

# Predicates of an initial state with the types of their arguments. Whatever else an action can make true starts false.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "atlocation": ("agent", "location"),
    "receptacleatlocation": ("receptacle", "location"),
    "objectatlocation": ("object", "location"),
    "inreceptacle": ("object", "receptacle"),
    "inreceptacleobject": ("object", "object"),
    "receptacletype": ("receptacle", "rtype"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
    "openable": ("receptacle",),
    "isreceptacleobject": ("object",),
    "pickupable": ("object",),
    "cleanable": ("object",),
    "heatable": ("object",),
    "coolable": ("object",),
    "sliceable": ("object",),
    "toggleable": ("object",),
    "iscool": ("object",),
}

Property = Literal["", "clean", "hot", "cool"]
_PROPERTIES: dict[Property, str] = {"clean": "cleanable", "hot": "heatable", "cool": "coolable"}


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins. With `lamp`: hold an object of `otype` beside a lit lamp of that type. Else: `count` objects of
    `otype`, each with `property` where one is given, in one receptacle of `rtype`."""

    otype: str
    rtype: str = ""
    property: Property = ""
    count: int = 1
    lamp: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """The facts by predicate (names lower-case, arguments as tuples) and the goal."""

    facts: Mapping[str, frozenset[tuple[str, ...]]]
    goal: Goal


def parse_problem(text: str) -> Problem:
    """Read a PDDL problem of the ALFRED domain. Raises SeedbenchError for text that is cut off or of another kind."""
    text = text.lower()
    if ";" in text:
        text = re.sub(r";[^\n]*", "", text)
    if text.count("(") != text.count(")"):
        _refuse("its parentheses do not match, as when a file is cut off")
    head, init_at, rest = text.partition("(:init")
    init, goal_at, goal = rest.partition("(:goal")
    if not init_at or not goal_at or "(:objects" not in head:
        _refuse("it lacks one of :objects, :init, :goal in this order")
    if not re.search(r"\(:domain\s+alfred\s*\)", head):
        _refuse("its domain is not alfred")
    facts = _facts(init, _objects(head.partition("(:objects")[2]))
    return Problem(facts, _goal(goal_at + goal))


def _refuse(why: str) -> NoReturn:
    raise SeedbenchError(f"this PDDL problem is not one of ALFWorld's: {why}; fetch or generate the game again.")


def _objects(section: str) -> dict[str, str]:
    """Declared names and their types: `a b - object c - location` means two objects and a location."""
    kinds: dict[str, str] = {}
    waiting: list[str] = []
    words = iter(section.partition(")")[0].split())
    for word in words:
        if word == "-":
            kind = next(words, "")
            kinds.update(dict.fromkeys(waiting, kind))
            waiting = []
        else:
            waiting.append(word)
    if waiting:
        _refuse("an object is declared without a type")
    return kinds


def _facts(init: str, kinds: Mapping[str, str]) -> dict[str, frozenset[tuple[str, ...]]]:
    found: dict[str, set[tuple[str, ...]]] = {name: set() for name in SIGNATURES}
    items = re.findall(r"\(([^()]*)\)", init)
    if init.count("(") != len(items):  # the one of "(:init" stands before the text
        _refuse("its initial state holds more than plain facts")
    for item in items:
        name, *arguments = item.split() or [""]
        expected = SIGNATURES.get(name)
        if expected is None:
            _refuse(f"its initial state has the unknown fact ({item.strip()[:60]})")
        if tuple(map(kinds.get, arguments)) != expected:
            _refuse(f"the arguments of ({item.strip()[:60]}) are not of the types {', '.join(expected)}")
        found[name].add(tuple(arguments))
    return {name: frozenset(rows) for name, rows in found.items()}


def _goal(text: str) -> Goal:
    tokens = re.findall(r"[()]|[^\s()]+", text)
    if len(tokens) > 400:  # the published goals have about 60; the reader below is recursive
        _refuse("its goal is far too long")
    tree, _ = _read(tokens, 0)
    if len(tree) != 2:
        _refuse("its goal is not one condition")
    literals: list[tuple[str, ...]] = []
    _flatten(tree[1], literals)
    said = frozenset(literals)
    for goal, needed in _candidates(literals):
        if said == needed:
            return goal
    _refuse("its goal is none of the six kinds of task")


def _read(tokens: list[str], at: int) -> tuple[list[Any], int]:
    """The nested list that starts with the parenthesis at `at`, and the place after it."""
    tree: list[Any] = []
    at += 1
    while at < len(tokens):
        if tokens[at] == ")":
            return tree, at + 1
        if tokens[at] == "(":
            branch, at = _read(tokens, at)
            tree.append(branch)
        else:
            tree.append(tokens[at])
            at += 1
    _refuse("its goal is cut off")


def _flatten(tree: Any, literals: list[tuple[str, ...]]) -> None:
    """The literals of a conjunction; `exists` may be nested, as no variable of these goals is bound twice."""
    if not isinstance(tree, list) or not tree:
        _refuse("its goal is malformed")
    if tree[0] == "and":
        for branch in tree[1:]:
            _flatten(branch, literals)
    elif tree[0] == "exists" and len(tree) == 3:
        _flatten(tree[2], literals)
    elif tree[0] == "not" and len(tree) == 2 and isinstance(tree[1], list):
        literals.append(("not", *map(str, tree[1])))
    else:
        literals.append(tuple(map(str, tree)))


def _candidates(literals: list[tuple[str, ...]]) -> list[tuple[Goal, frozenset[tuple[str, ...]]]]:
    """Goals that share the types named in `literals`, each with the literals that would say it."""
    otypes = {row[1]: row[2] for row in literals if row[0] == "objecttype" and len(row) == 3}
    rtypes = {row[1]: row[2] for row in literals if row[0] == "receptacletype" and len(row) == 3}
    goals: list[tuple[Goal, frozenset[tuple[str, ...]]]] = []
    if len(otypes) == 2 and not rtypes:
        lamp = next((row[1] for row in literals if row[0] == "istoggled" and len(row) == 2), "")
        thing = next((o for o in otypes if o != lamp), "")
        r, a, where = "?r", "?a", "?l"
        needed = {("toggleable", lamp), ("istoggled", lamp), ("inreceptacle", lamp, r), ("atlocation", a, where)}
        needed |= {("receptacleatlocation", r, where), ("holds", a, thing), *_typed(otypes, "objecttype")}
        goals.append((Goal(otypes[thing], lamp=otypes.get(lamp, "")), frozenset(needed)))
    if len(rtypes) == 1 and len(set(otypes.values())) == 1:
        (r, rtype), otype = next(iter(rtypes.items())), next(iter(otypes.values()))
        needed = (
            {("inreceptacle", o, r) for o in otypes} | _typed(otypes, "objecttype") | {("receptacletype", r, rtype)}
        )
        names = tuple(otypes)
        if len(names) == 2:
            goals += [
                (Goal(otype, rtype, count=2), frozenset(needed | {("not", "=", *p)})) for p in (names, names[::-1])
            ]
        elif len(names) == 1:
            goals.append((Goal(otype, rtype), frozenset(needed)))
            for prop, able in _PROPERTIES.items():
                extra = {(able, names[0]), (f"is{prop}", names[0])}
                goals.append((Goal(otype, rtype, prop), frozenset(needed | extra)))
    return goals


def _typed(types: Mapping[str, str], predicate: str) -> set[tuple[str, ...]]:
    return {(predicate, name, kind) for name, kind in types.items()}
