"""ALFWorld games of our own: a pure function of (seed, level, split, index), in the published problem syntax.

    game = generate(seed=0, level=2, split="train", index=7)
    game.problem, game.task, game.kind

The embedded `mini` set was made by this once and frozen (seedbench.envs.alfworld.mini), so a change here changes no
exam. Rooms are in `rooms`, the places where things are usually kept in `habits`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from seedbench.core import SeedbenchError, stream
from seedbench.envs.alfworld import rooms
from seedbench.envs.alfworld.habits import HABITS, KEPT, word

KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
_TREATED = {  # kind -> what its object must allow
    "pick_clean_then_place_in_recep": rooms.CLEANABLE,
    "pick_heat_then_place_in_recep": rooms.HEATABLE,
    "pick_cool_then_place_in_recep": rooms.COOLABLE,
}
_FAMILIES = {  # kind -> where it can be done; kitchens hold more kinds of objects to clean than bathrooms
    "pick_and_place_simple": rooms.FAMILIES,
    "look_at_obj_in_light": ("bedroom", "livingroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    "pick_two_obj_and_place": rooms.FAMILIES,
}
LAMP = "DeskLamp"
CAPACITY = 3  # objects at one place, so that lists stay short


class Level(NamedTuple):
    """How large a game is. `max_steps` is the step limit at which it was tuned."""

    copies: int  # pieces of closed furniture and shelves for each in the layout; 0: one of each type in all
    rooms: int
    distractors: int
    max_steps: int
    kept: float = KEPT  # share of things that are where people usually keep them; 0: habits play no part


# Level 0 is level 2 without habits: only the rules can be learned there. The tiny policy's warm start comes from it.
LEVELS = {
    0: Level(1, 1, 5, 14, 0.0),
    1: Level(0, 1, 3, 12),
    2: Level(1, 1, 5, 14),
    3: Level(2, 1, 9, 24),
    4: Level(2, 2, 14, 50),
}
_COPIED = frozenset({"Cabinet", "Drawer", "Shelf"})


class Place(NamedTuple):
    """One piece of furniture: type, number within its type, and the spot where an agent stands to use it."""

    furniture: str
    number: int
    spot: int
    family: str

    @property
    def id(self) -> str:
        basin = rooms.BASIN.get(self.furniture)
        return f"{self.furniture}_bar_{self.number:02}" + (f"_bar_{basin}" if basin else "")


class Game(NamedTuple):
    """A generated game."""

    kind: str
    family: str
    layout: str
    task: str
    problem: str
    target: str  # object type
    goal: str  # furniture type; for look_at_obj_in_light the lamp's type


def layouts(split: str, family: str) -> tuple[rooms.Layout, ...]:
    """The rooms that games of a split are set in: `unseen` has its own."""
    return (rooms.UNSEEN_LAYOUTS if split == "unseen" else rooms.TRAIN_LAYOUTS)[family]


def generate(seed: int, level: int, split: str, index: int) -> Game:
    """The game number `index` of a split; kinds alternate. Raises SeedbenchError for an unknown level or split."""
    if level not in LEVELS:
        raise SeedbenchError(f"ALFWorld's generator has no level {level}; choose one of {', '.join(map(str, LEVELS))}.")
    if split not in ("train", "dev", "seen", "unseen"):
        raise SeedbenchError(f"ALFWorld games are generated for train, dev, seen and unseen, not for {split!r}.")
    rng = random.Random(stream("alfworld game", seed, level, split, index))
    kind = KINDS[index % len(KINDS)]
    while (game := _draw(rng, kind, LEVELS[level], split)) is None:
        pass  # no place is left that the object can be brought to: draw the room anew
    return game


def _draw(rng: random.Random, kind: str, level: Level, split: str) -> Game | None:
    family = rng.choice(_FAMILIES[kind])
    families = [family, *rng.sample([f for f in rooms.FAMILIES if f != family], level.rooms - 1)]
    chosen = [(f, rng.choice(layouts(split, f))) for f in families]
    places = _furnish(chosen, level)
    target = rng.choice([t for t in sorted(HABITS[family]) if t != LAMP and t in _TREATED.get(kind, HABITS[family])])
    things = [(family, target)] * (2 if kind == "pick_two_obj_and_place" else 1)
    if kind == "look_at_obj_in_light":
        things.append((family, LAMP))
    others = [(f, t) for f in families for t in sorted(HABITS[f]) if t not in (target, LAMP)]
    things += [rng.choice(others) for _ in range(level.distractors)]
    where = _put_away(rng, places, things, level.kept)
    taken = {p.furniture for p, (_, t) in zip(where, things, strict=True) if t == target}
    goals = sorted({p.furniture for p in places if target in rooms.CONTAINS.get(p.furniture, ())} - taken)
    if kind == "look_at_obj_in_light":
        goals = [LAMP]
    if not goals:
        return None
    goal = rng.choice(goals)
    objects = [(t, p) for (_, t), p in zip(things, where, strict=True)]
    rng.shuffle(objects)
    name = f"{split}_{kind}_{rng.randrange(10**9):09}"
    problem = problem_text(name, places, objects, _goal(kind, target, goal))
    return Game(kind, family, chosen[0][1].name, _task(rng, kind, target, goal), problem, target, goal)


def _furnish(chosen: Sequence[tuple[str, rooms.Layout]], level: Level) -> list[Place]:
    """Stand the layouts' furniture, as many copies as the level says, at numbered spots."""
    places: list[Place] = []
    count: dict[str, int] = {}
    spot = 0
    for family, layout in chosen:
        here: set[str] = set()
        for pieces in layout.spots:
            pieces = tuple(p for p in pieces if level.copies or p not in here)
            for copy in range(max(1, level.copies)):
                standing = [p for p in pieces if copy == 0 or p in _COPIED]
                if standing:
                    spot += 1
                for piece in standing:
                    here.add(piece)
                    count[piece] = count.get(piece, 0) + 1
                    places.append(Place(piece, count[piece], spot, family))
    return places


def _put_away(rng: random.Random, places: list[Place], things: list[tuple[str, str]], share: float) -> list[Place]:
    """A place for each thing, given as (family, type): a `share` by habit, else anywhere in its room that can."""
    where: list[Place] = []
    for family, thing in things:
        usual = HABITS[family][thing]
        room = [p for p in places if p.family == family and where.count(p) < CAPACITY]
        kept = [p for p in room if p.furniture == usual]
        other = [p for p in room if (p.furniture != usual or not share) and _holds(p.furniture, thing)]
        where.append(rng.choice(kept if kept and (rng.random() < share or not other) else other))
    return where


def _holds(furniture: str, thing: str) -> bool:
    if thing == LAMP:
        return furniture in ("Desk", "Dresser", "SideTable", "CoffeeTable", "DiningTable")
    return thing in rooms.CONTAINS.get(furniture, ())


def _task(rng: random.Random, kind: str, target: str, goal: str) -> str:
    a, place = word(target), word(goal)
    where = f"{'in' if goal in rooms.OPENABLE or goal in rooms.BASIN or goal == 'GarbageCan' else 'on'} {place}"
    treat = {k: k.split("_")[1] for k in _TREATED}.get(kind, "")
    state = {"heat": "hot"}.get(treat, treat)
    said = {
        "pick_and_place_simple": (f"put a {a} {where}.", f"put some {a} {where}."),
        "look_at_obj_in_light": (f"look at {a} under the {place}.", f"examine the {a} with the {place}."),
        "pick_two_obj_and_place": (f"put two {a} {where}.", f"find two {a} and put them {where}."),
    }.get(kind, (f"put a {state} {a} {where}.", f"{treat} some {a} and put it {where}."))
    return "Your task is to: " + rng.choice(said)


def _goal(kind: str, target: str, goal: str) -> str:
    """The goal formula of a kind. The engine reads nothing else of what a game wants."""
    if kind == "look_at_obj_in_light":
        lit = f"(objectType ?ot {goal}Type) (toggleable ?ot) (isToggled ?ot)"
        near = "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)"
        lamp = f"(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and {lit} {near}))"
        return f"(and {lamp} (exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o))))"

    def there(o: str) -> str:
        kinds = f"(objectType {o} {target}Type) (receptacleType ?r {rooms.receptacle_type(goal)})"
        return f"{kinds} (inReceptacle {o} ?r)"

    if kind == "pick_two_obj_and_place":
        second = f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {there('?o2')}))"
        return f"(exists (?r - receptacle) (exists (?o1 - object) (and {there('?o1')} {second})))"
    done = {
        "clean": "(cleanable ?o) (isClean ?o) ",
        "heat": "(heatable ?o) (isHot ?o) ",
        "cool": "(coolable ?o) (isCool ?o) ",
    }
    state = done.get(kind.split("_")[1], "")
    return f"(exists (?r - receptacle) (exists (?o - object) (and {state}{there('?o')})))"


def problem_text(name: str, places: Sequence[Place], objects: Sequence[tuple[str, Place]], goal: str) -> str:
    """Write a PDDL problem for the published domain; `objects` are (type, where it is)."""
    count: dict[str, int] = {}
    things = []
    for kind, place in objects:
        count[kind] = count.get(kind, 0) + 1
        things.append((f"{kind}_bar_{count[kind]:02}", kind, place))
    here = {place.furniture for place in places}
    kinds = sorted(count)
    spots = range(max(p.spot for p in places) + 1)  # spot 0: the middle of the room, where the agent starts
    declared = [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in kinds),
        *(f"{rooms.receptacle_type(f)} - rtype" for f in sorted(here)),
        *(f"{thing} - object" for thing, _, _ in things),
        *(f"{p.id} - receptacle" for p in places),
        *(f"loc_bar_{spot} - location" for spot in spots),
    ]
    facts = [
        *(f"receptacleType {p.id} {rooms.receptacle_type(p.furniture)}" for p in places),
        *(f"objectType {thing} {kind}Type" for thing, kind, _ in things),
        *(
            f"canContain {rooms.receptacle_type(f)} {kind}Type"
            for f in sorted(here)
            for kind in kinds
            if kind in rooms.CONTAINS.get(f, ())
        ),
        *(f"pickupable {thing}" for thing, kind, _ in things if kind != LAMP),
        *(f"isReceptacleObject {thing}" for thing, kind, _ in things if kind in rooms.VESSELS),
        *(f"openable {p.id}" for p in places if p.furniture in rooms.OPENABLE),
        "atLocation agent1 loc_bar_0",
        *(
            f"{predicate} {thing}"
            for predicate, allowed in (
                ("cleanable", rooms.CLEANABLE),
                ("heatable", rooms.HEATABLE),
                ("coolable", rooms.COOLABLE),
                ("toggleable", rooms.TOGGLEABLE),
                ("sliceable", rooms.SLICEABLE),
            )
            for thing, kind, _ in things
            if kind in allowed
        ),
        *(f"inReceptacle {thing} {p.id}" for thing, _, p in things),
        *(f"receptacleAtLocation {p.id} loc_bar_{p.spot}" for p in places),
        *(f"objectAtLocation {thing} loc_bar_{p.spot}" for thing, _, p in things),
    ]
    return "\n".join(
        [
            f"(define (problem {name})",
            "(:domain alfred)",
            "(:objects",
            *declared,
            ")",
            "(:init",
            *(f"({fact})" for fact in facts),
            ")",
            f"(:goal {goal})",
            ")\n",
        ]
    )
