"""The fast engine against the real one, in step: text, ordered admissible list and won after every command.

How much of the fast engine this covers (the house has what no generated game has):

    coverage run --branch -m pytest tests/test_alfworld_differential.py
    coverage report -m --include='*/alfworld/engine.py,*/alfworld/game.py'

The slow tests play the published games at hand: 100,000 steps against the real engine with caches, 5,000 without.
"""

from __future__ import annotations

import json
import lzma
import random
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from seedbench.core import Task
from seedbench.envs.alfworld.data import DOMAIN_SHA, GRAMMAR_SHA, GameSource, open_dataset
from seedbench.envs.alfworld.engine import Game, State
from seedbench.envs.alfworld.real.pool import POOL, Play, Turn
from seedbench.envs.alfworld.texts import game_json
from tests.alfworld_house import GOALS, OPENINGS, TASK, house, published, shared
from tests.conftest import need

KINDS = 6


class Match(NamedTuple):
    """One game on which the engines are compared: its name, text for the real engine, and how it is played."""

    name: str
    problem: str
    task: str
    file: str
    kind: str
    steps: int
    first: tuple[str, ...] = ()  # commands to begin with, before random ones


@pytest.fixture(scope="module", autouse=True)
def real_engine() -> None:
    need(find_spec("textworld"), "alfworld is not installed (pip install -e '.[alfworld]')")


def compare(match: Match, engine: str) -> int:
    """Play a game in both engines; returns the number of steps. Fails at the first difference."""
    rng, state = random.Random(match.name), State(Game(match.problem, match.task))
    play = Play(engine, match.file, match.kind)
    real, text, command = play.open(), state.reset(), "reset"
    for k in range(match.steps + 1):
        assert real == Turn(text, state.admissible(), state.won), (match.name, k, command)
        if k < match.steps:
            command = match.first[k] if k < len(match.first) else choose(state, rng)
            real, text = play.step(command), state.step(command)[0]
            if rng.random() < 0.1:
                state = state.clone()
    play.close()
    return match.steps


def choose(state: State, rng: random.Random) -> str:
    """Mostly commands that change something, and some garbage."""
    admissible = state.admissible()
    if rng.random() < 0.05:
        return rng.choice(
            ["", "xyzzy", "Look", "look ", f"use {state.game.objects[0]}", f"go to {state.game.receptacles[0]}"]
        )
    doing = [c for c in admissible if not c.startswith(("go to", "help", "inventory", "look"))]
    going = [c for c in admissible if c.startswith("go to")]
    return rng.choice(doing if doing and rng.random() < 0.65 else going if rng.random() < 0.9 else admissible)


def compare_all(matches: list[Match], engine: str) -> int:
    """The same for many, two at a time; each thread has a worker of its own. Stops at the first failure."""
    steps = 0
    with ThreadPoolExecutor(2) as threads:
        for played in threads.map(compare, matches, [engine] * len(matches)):
            steps += played
            print(f"{steps} steps equal to {engine}", end="\r")  # for `pytest -s` on the longer runs
    return steps


def embedded() -> list[Match]:
    """Two games of each kind from rooms of all families: half from seen, half from layouts that train lacks."""
    dataset, matches, taken = open_dataset("mini"), [], set()
    for split in ("seen", "unseen"):
        left = dict.fromkeys((t.kind for t in dataset.tasks(split)), 1)
        for task in dataset.tasks(split):
            if left[task.kind] and (task.options["layout"] not in taken or task.id > f"mini/{split}/{task.kind}-0010"):
                left[task.kind] -= 1
                taken.add(task.options["layout"])
                matches.append(_embedded(task, dataset.source(task.id), 40))
    assert len(matches) == 2 * KINDS and len({t.partition("-")[0] for t in taken}) == 4
    return matches


def _embedded(task: Task, source: GameSource, steps: int) -> Match:
    return Match(task.id, source.problem, source.task, game_json(source), task.kind, steps)


def houses() -> list[Match]:
    """The small house with each goal; once from a place beside receptacles, as no published game starts."""
    matches = []
    for goal in sorted(GOALS):
        source = GameSource(house(goal, start="l2" if goal == "cool" else "l0"), TASK, DOMAIN_SHA, GRAMMAR_SHA)
        matches.append(Match(goal, source.problem, TASK, game_json(source), goal, 60, OPENINGS.get(goal, ())))
    return matches


@lru_cache(maxsize=1)
def _common() -> dict[str, str]:
    with lzma.open(shared("games.jsonl.xz"), "rt") as lines:
        return json.loads(next(lines))


def from_published(steps: int, every: int, split: str = "valid_seen") -> list[Match]:
    """Published games, with the texts that they are published with; every other one begins with its walkthrough."""
    matches = []
    for k, game in enumerate(published(split)[::every]):
        body = {"pddl_domain": _common()["pddl_domain"], "pddl_problem": game["pddl_problem"], "solvable": True}
        body |= {"grammar": _common()["grammar"].replace("@@TASK@@", json.dumps(game["task"])[1:-1])}
        first = tuple(game["walkthrough"]) if k % 2 else ()
        kind = game["path"].split("/")[2].partition("-")[0]
        matches.append(Match(game["path"], game["pddl_problem"], game["task"], json.dumps(body), kind, steps, first))
    return matches


def test_embedded_games_equal_the_untouched_engine() -> None:
    assert compare_all(embedded(), "plain") == 12 * 40


def test_the_house_equals_the_untouched_engine() -> None:
    assert compare_all(houses(), "plain") == KINDS * 60


def test_published_games_equal_the_untouched_engine() -> None:
    assert compare_all(from_published(20, 70), "plain") == 40


def test_alfred_tw_env_and_the_cached_engine_say_the_same() -> None:
    """AlfredTWEnv itself, and the engine with caches, on the same commands."""
    some = [match._replace(steps=10) for match in (embedded()[0], embedded()[7])]
    assert compare_all(some, "alfworld") == 20
    assert compare_all(embedded() + houses(), "textworld") == 12 * 40 + KINDS * 60


@pytest.mark.slow
def test_5_000_steps_against_the_untouched_engine() -> None:
    assert compare_all(from_published(72, 2), "plain") >= 5_000
    POOL.close()


@pytest.mark.slow
def test_100_000_steps_against_the_cached_engine() -> None:
    games = from_published(200, 1) + from_published(200, 9, "train")
    assert compare_all(games, "textworld") >= 100_000
    POOL.close()
