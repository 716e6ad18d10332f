"""A small house with every oddity of the published games, the published games themselves, and the real engine."""

from __future__ import annotations

import json
import lzma
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need

# receptacle -> (type, location, openable, what lies in it). Two receptacles share l1, two drawers share l2.
RECEPTACLES = {
    "CounterTop_bar_1": ("CounterTopType", "l1", False, ["Apple_bar_1", "Mug_bar_1", "Knife_bar_1", "Book_bar_1"]),
    "Cabinet_bar_1": ("CabinetType", "l1", True, ["Book_bar_1", "Mug_bar_2"]),
    "Drawer_bar_1": ("DrawerType", "l2", True, ["Pencil_bar_1"]),
    "Drawer_bar_2": ("DrawerType", "l2", True, []),
    "Fridge_bar_1": ("FridgeType", "l3", True, ["Apple_bar_2", "Lettuce_bar_1"]),
    "Microwave_bar_1": ("MicrowaveType", "l4", True, []),
    "Sink_bar_1_bar_SinkBasin": ("SinkBasinType", "l5", False, ["Potato_bar_1"]),
    "SideTable_bar_1": (
        "SideTableType",
        "l6",
        False,
        ["DeskLamp_bar_1", "Pencil_bar_2", "PaperTowelRoll_bar_1", "Candle_bar_1"],
    ),
}
OBJECTS = {  # object -> (type, abilities)
    "Apple_bar_1": ("AppleType", "pickupable cleanable heatable coolable sliceable"),
    "Apple_bar_2": ("AppleType", "pickupable cleanable heatable coolable sliceable isCool"),
    "Blinds_bar_1": ("BlindsType", ""),
    "Book_bar_1": ("BookType", "pickupable"),
    "Candle_bar_1": ("CandleType", "pickupable toggleable"),  # no published object is both
    "DeskLamp_bar_1": ("DeskLampType", "toggleable"),
    "Knife_bar_1": ("KnifeType", "pickupable cleanable"),
    "Lettuce_bar_1": ("LettuceType", "pickupable cleanable coolable sliceable isCool"),
    "Mug_bar_1": ("MugType", "pickupable cleanable heatable coolable isReceptacleObject"),
    "Mug_bar_2": ("MugType", "pickupable cleanable heatable coolable isReceptacleObject"),
    "PaperTowelRoll_bar_1": ("PaperTowelRollType", "pickupable"),  # fits nowhere: taking it is a dead end
    "Pencil_bar_1": ("PencilType", "pickupable"),
    "Pencil_bar_2": ("PencilType", "pickupable"),
    "Potato_bar_1": ("PotatoType", "pickupable cleanable heatable coolable sliceable"),
}
FOOD = ["AppleType", "LettuceType", "MugType", "PotatoType"]
SMALL = [*FOOD, "BookType", "CandleType", "KnifeType", "PencilType"]
FITS = {"CounterTopType": SMALL, "SideTableType": SMALL, "FridgeType": FOOD, "MicrowaveType": FOOD}
FITS |= {"SinkBasinType": [*FOOD, "KnifeType"], "DrawerType": ["BookType", "PencilType", "KnifeType"]}
FITS |= {"CabinetType": ["BookType", "MugType"]}

_PLACE = (
    "(exists (?r - receptacle) (exists (?o - object)"
    " (and {more} (objectType ?o {o}) (receptacleType ?r {r}) (inReceptacle ?o ?r))))"
)
GOALS = {
    "place": _PLACE.format(o="BookType", r="DrawerType", more=""),
    "clean": _PLACE.format(o="MugType", r="CounterTopType", more="(cleanable ?o) (isClean ?o)"),
    "heat": _PLACE.format(o="AppleType", r="FridgeType", more="(heatable ?o) (isHot ?o)"),
    "cool": _PLACE.format(o="PotatoType", r="CounterTopType", more="(coolable ?o) (isCool ?o)"),
    "two": (
        "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 PencilType)"
        " (receptacleType ?r DrawerType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))"
        " (objectType ?o2 PencilType) (receptacleType ?r DrawerType) (inReceptacle ?o2 ?r))))))"
    ),
    "look": (
        "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType)"
        " (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))"
        " (exists (?o - object ?a - agent) (and (objectType ?o BookType) (holds ?a ?o)))"
    ),
}
TASK = "Your task is to: do something in the house."


def house(goal: str = "place", more: str = "", start: str = "l0") -> str:
    """The PDDL problem of the house with one of the six goals, and `more` facts."""
    kinds = {"agent1": "agent", **{f"l{k}": "location" for k in range(7)}}
    kinds |= dict.fromkeys(OBJECTS, "object") | dict.fromkeys(RECEPTACLES, "receptacle")
    kinds |= {row[0]: "rtype" for row in RECEPTACLES.values()} | {row[0]: "otype" for row in OBJECTS.values()}
    facts = [
        f"atLocation agent1 {start}",
        "inReceptacleObject Pencil_bar_2 Mug_bar_1",
        "objectAtLocation Blinds_bar_1 l0",
    ]
    for r, (kind, place, openable, within) in RECEPTACLES.items():
        facts += [f"receptacleType {r} {kind}", f"receptacleAtLocation {r} {place}", *[f"openable {r}"] * openable]
        facts += [row for o in within for row in (f"inReceptacle {o} {r}", f"objectAtLocation {o} {place}")]
    for o, (kind, abilities) in OBJECTS.items():
        facts += [f"objectType {o} {kind}", *(f"{ability} {o}" for ability in abilities.split())]
    facts += [f"canContain {r} {o}" for r, fitting in FITS.items() for o in fitting]
    declared = "\n".join(f"{name} - {kind}" for name, kind in kinds.items())
    init = "\n".join(f"({fact})" for fact in facts)
    return (
        f"(define (problem house)\n(:domain alfred)\n(:objects\n{declared}\n)\n(:init\n{init}\n{more})\n"
        f"(:goal (and {GOALS[goal]})))"
    )


def shared(name: str) -> Path:
    """A file of the published data, or a skip that says what is missing."""
    root = Path(os.environ.get("SEEDBENCH_SHARED") or Path(__file__).parents[2] / "shared")
    path = root / "data" / "alfworld" / name
    if not path.exists():
        pytest.skip(
            f"the published ALFWorld data ({name}) is not at hand; set SEEDBENCH_SHARED to the folder above data/"
        )
    return path


def records(name: str) -> list[dict[str, Any]]:
    with lzma.open(shared(name), "rt") as lines:
        return [json.loads(line) for line in lines]


@lru_cache(maxsize=2)
def published(split: str = "valid_seen") -> tuple[dict[str, Any], ...]:
    """The published games of one split: path, task, walkthrough, pddl_problem."""
    return tuple(g for g in records("games.jsonl.xz")[1:] if g["path"].split("/")[1] == split)


def real_game(problem: str, task: str, folder: Path) -> Any:
    """The untouched TextWorld engine on one game, with ALFWorld's names; skips where the package is absent."""
    need(
        find_spec("alfworld") and find_spec("textworld"), "alfworld is not installed (pip install seedbench[alfworld])"
    )
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    with lzma.open(shared("games.jsonl.xz"), "rt") as lines:
        common = json.loads(next(lines))
    body = {"pddl_domain": common["pddl_domain"], "grammar": common["grammar"].replace("@@TASK@@", task)}
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps({**body, "pddl_problem": problem, "solvable": True, "walkthrough": ["look"]}))
    wanted = textworld.EnvInfos(won=True, admissible_commands=True)
    return textworld.start(str(path), wanted, wrappers=[AlfredDemangler(shuffle=False)])
