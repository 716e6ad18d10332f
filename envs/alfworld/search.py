"""Scripted searchers: how far the rules alone take an agent, and how far they take one that knows the habits.

They play on a game's PDDL problem text with a model of the few rules that they use, and give the commands they would
type, so that an engine can check them. Orders of looking: `listed` (as the room is listed at the start), `random`,
`open` (places that need no opening first), `backwards` (the same from the end of the list), `habits` (the habitual kind
of place first, then as listed) and `oracle` (straight to the thing: a proof that the game can be won).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seedbench.core import Task, stream
from seedbench.envs.alfworld.data import Dataset
from seedbench.envs.alfworld.habits import HABITS, word

ORDERS = ("listed", "random", "open", "backwards", "habits", "oracle")
_FACT = re.compile(r"\((\w+) ([^()]+)\)")
_TREATMENT = {"isClean": ("clean", "sinkbasin"), "isHot": ("heat", "microwave"), "isCool": ("cool", "fridge")}


class Goal(NamedTuple):
    """What a game wants, in the games' words."""

    target: str
    number: int
    place: str  # "" where a lamp is to be used
    lamp: str
    treatment: tuple[str, str] | None  # ("heat", "microwave")


@dataclass
class Scene:
    """A game as a searcher needs it; everything by the names that the engine gives."""

    places: list[str]  # in the order in which the engine lists them
    spot: dict[str, str]
    openable: set[str]
    inside: dict[str, str]  # object -> place
    goal: Goal


def read_scene(problem: str) -> Scene:
    """Parse a PDDL problem."""
    init, goal = problem[problem.index("(:init") :].split("(:goal")
    facts: dict[str, list[tuple[str, ...]]] = {}
    for predicate, arguments in _FACT.findall(init):
        facts.setdefault(predicate, []).append(tuple(arguments.split()))
    names = _names(x[0] for key in ("receptacleType", "objectType") for x in facts[key])
    places = [names[r] for r in sorted((x[0] for x in facts["receptacleType"]), key=str.lower)]
    spot = {names[r]: where for r, where in facts["receptacleAtLocation"]}
    inside = {names[o]: names[r] for o, r in facts["inReceptacle"]}
    openable = {names[r] for (r,) in facts.get("openable", ())}
    return Scene(places, spot, openable, inside, _goal(goal))


def read_goal(problem: str) -> Goal:
    """What a PDDL problem wants."""
    return _goal(problem[problem.index("(:init") :].split("(:goal")[1])


def _names(ids: Iterable[str]) -> dict[str, str]:
    """Names as the engine's demangler makes them: numbered within a type, the first id in order getting the highest."""
    ordered = sorted(ids, key=str.lower)
    kinds = {i: i.split("_bar_")[0].lower() + ("basin" if "basin" in i.lower() else "") for i in ordered}
    left = {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())}
    names = {}
    for i in ordered:
        names[i] = f"{kinds[i]} {left[kinds[i]]}"
        left[kinds[i]] -= 1
    return names


def _goal(text: str) -> Goal:
    objects = [x.removesuffix("Type").lower() for x in re.findall(r"\(objectType \?\w+ (\w+)\)", text)]
    places = [x.removesuffix("Type").lower() for x in re.findall(r"\(receptacleType \?\w+ (\w+)\)", text)]
    lamp = objects[0] if "isToggled" in text else ""
    treatment = next((how for state, how in _TREATMENT.items() if state in text), None)
    return Goal(objects[-1], 1 if lamp else len(objects), places[0] if places else "", lamp, treatment)


def kind_of(name: str) -> str:
    """`cabinet 3` is a cabinet."""
    return name.rpartition(" ")[0]


def order_places(scene: Scene, how: str, family: str = "", rng: random.Random | None = None) -> list[str]:
    """The places in the order in which a searcher looks, one of ORDERS. `habits` needs the family, `random` the rng."""
    wanted = [scene.goal.target, *([scene.goal.lamp] if scene.goal.lamp else [])]
    first: list[str] = []
    rest = list(scene.places)
    if how == "habits":
        usual = {word(thing): word(place) for thing, place in HABITS[family].items()}
        first = [p for w in wanted for p in rest if kind_of(p) == usual[w]]
    elif how == "oracle":
        first = [place for w in wanted for thing, place in sorted(scene.inside.items()) if kind_of(thing) == w]
    elif how == "random":
        (rng or random.Random(0)).shuffle(rest)
    elif how == "open":
        rest.sort(key=lambda place: place in scene.openable)
    elif how == "backwards":
        rest.reverse()
        rest.sort(key=lambda place: place in scene.openable)
    return list(dict.fromkeys([*first, *rest]))


def success(dataset: Dataset, tasks: Sequence[Task], how: str, steps: int) -> float:
    """Share of tasks that a searcher wins within `steps`. Tasks carry their family in `options`."""
    won = 0
    for task in tasks:
        scene = read_scene(dataset.source(task.id).problem)
        rng = random.Random(stream("alfworld searcher", task.id))
        won += len(search(scene, order_places(scene, how, task.options["family"], rng))) <= steps
    return won / len(tasks)


class _Player:
    """Types commands and keeps the little state that they depend on."""

    def __init__(self, scene: Scene):
        self.scene, self.commands = scene, list[str]()
        self.at, self.opened = "", set[str]()
        self.inside = dict(scene.inside)

    def go(self, place: str) -> None:
        if self.scene.spot[place] != self.at:  # the engine refuses to go where one stands
            self.commands.append(f"go to {place}")
            self.at = self.scene.spot[place]
        elif place not in self.scene.openable:
            self.commands.append(f"examine {place}")

    def look_into(self, place: str) -> list[str]:
        self.go(place)
        if place in self.scene.openable and place not in self.opened:
            self.commands.append(f"open {place}")
            self.opened.add(place)
        return [thing for thing, where in self.inside.items() if where == place]

    def take(self, thing: str) -> None:
        self.commands.append(f"take {thing} from {self.inside.pop(thing)}")

    def deliver(self, thing: str, avoid: str = "") -> None:
        """Treat the thing if need be, bring it to a place of the wanted kind (an opened one first) and put it there."""
        goal = self.scene.goal
        if goal.treatment:
            verb, tool = goal.treatment
            station = next(p for p in self.scene.places if kind_of(p) == tool)
            if self.scene.spot[station] != self.at:
                self.go(station)
            self.commands.append(f"{verb} {thing} with {station}")
        fit = [p for p in self.scene.places if kind_of(p) == goal.place]
        held = [self.inside[t] for t in self.inside if kind_of(t) == goal.target and self.inside[t] in fit]
        place = (held or sorted(fit, key=lambda p: p in self.scene.openable and p not in self.opened))[0]
        if self.scene.spot[place] != self.at:
            self.go(place)
        if place in self.scene.openable and place not in self.opened:
            self.commands.append(f"open {place}")
            self.opened.add(place)
        self.commands.append(f"move {thing} to {place}")
        self.inside[thing] = place


def search(scene: Scene, order: list[str]) -> list[str]:
    """The commands of a searcher that looks into `order` until it has won. It forgets nothing that it saw."""
    player, goal = _Player(scene), scene.goal
    held, lamp_at, delivered = "", "", 0
    for place in order:
        things = player.look_into(place)
        for thing in things:
            if kind_of(thing) == goal.lamp:
                lamp_at = place
            if kind_of(thing) != goal.target or held or thing not in player.inside:
                continue
            if goal.lamp:
                player.take(thing)
                held = thing
            elif kind_of(place) != goal.place or goal.treatment:
                if player.at != scene.spot[place]:
                    player.go(place)
                player.take(thing)
                player.deliver(thing)
                delivered += 1
                if delivered == goal.number:
                    return player.commands
        if held and lamp_at:
            if player.at != scene.spot[lamp_at]:
                player.go(lamp_at)
            player.commands.append(f"use {next(t for t, p in player.inside.items() if kind_of(t) == goal.lamp)}")
            return player.commands
    raise ValueError("the searcher looked everywhere and has not won")
