"""The oracle wins from anywhere a win is left, in as few steps as its first plan promised."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.envs.alfworld.engine import Game, State
from seedbench.envs.alfworld.oracle import goal_progress, next_action
from tests.alfworld_house import GOALS, TASK, house, published


def wander(state: State, rng: random.Random, steps: int) -> None:
    """Random commands, mostly ones that change something, none that wins."""
    for _ in range(steps):
        doing = [c for c in state.commands() if not c.startswith("go to")]
        command = rng.choice(doing if rng.random() < 0.6 else state.admissible())
        trial = state.clone()
        trial.step(command)
        if not trial.won:
            state.step(command)


def finish(state: State) -> int | None:
    """Steps in which the oracle wins; None where it gives up. It must never be refused and never walk in circles."""
    for steps in range(30):
        command = next_action(state)
        if command is None:
            return steps if state.won else None
        assert state.step(command)[1], command
    raise AssertionError("the oracle does not arrive")


def is_dead_end(state: State) -> bool:
    """The hand holds something that is not wanted and that fits nowhere, so nothing else can ever be taken."""
    o = state.held
    return o >= 0 and not any(mask >> o & 1 for mask in state.game.fits) and not state.game.wanted >> o & 1


def test_wins_every_seen_game_no_slower_than_the_walkthrough() -> None:
    for game in published():
        steps = finish(State(Game(game["pddl_problem"], game["task"])))
        assert steps is not None and steps <= len(game["walkthrough"]), game["path"]


def _wins_from_anywhere(games: tuple[dict[str, str], ...], wanderings: tuple[int, ...]) -> int:
    won = 0
    for number, game in enumerate(games):
        compiled = Game(game["pddl_problem"], game["task"])
        for steps in wanderings:
            state = State(compiled)
            wander(state, random.Random(f"{number} {steps}"), steps)
            dead = is_dead_end(state)
            assert (finish(state) is None) == dead, (game["path"], steps)
            won += not dead
    return won


def test_wins_seen_games_after_random_steps() -> None:
    assert _wins_from_anywhere(published()[::2], (5, 30)) > 130


@pytest.mark.slow
def test_wins_all_train_games_after_random_steps() -> None:
    games = published("train")
    assert _wins_from_anywhere(games, (0, 10, 60)) > 2.9 * len(games)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(GOALS)), st.integers(0, 2**32), st.integers(0, 60))
def test_wins_in_the_house_from_anywhere(goal: str, seed: int, steps: int) -> None:
    state = State(Game(house(goal), TASK))
    wander(state, random.Random(seed), steps)
    dead = is_dead_end(state)
    assert (finish(state) is None) == dead


@pytest.mark.parametrize("goal", sorted(GOALS))
@pytest.mark.parametrize("seed", range(8))
def test_no_shorter_way_exists_in_the_house(goal: str, seed: int) -> None:
    """Breadth-first search over every state finds no win in fewer steps than the oracle takes."""
    start = State(Game(house(goal), TASK))
    wander(start, random.Random(seed), seed * 4)
    best = finish(start.clone())
    layer, known = [start], set()
    for _ in range(best - 1 if best else 5):
        following = []
        for state in layer:
            for command in state.commands():
                if command.startswith(("examine", "help", "inventory", "look", "slice")):  # these never lead to a win
                    continue
                after = state.clone()
                after.step(command)
                assert not after.won
                marks = (after.clean, after.hot, after.cold, after.lit)
                key = (after.place, after.held, after.opened, tuple(after.contents), marks)
                if key not in known:
                    known.add(key)
                    following.append(after)
        layer = following


@pytest.mark.parametrize(
    ("goal", "commands", "expected"),
    [
        ("place", ["go to drawer 2", "open drawer 2"], ["go to countertop 1", "take book 1 from countertop 1"]),
        ("place", ["go to countertop 1", "take knife 1 from countertop 1"], ["move knife 1 to countertop 1"]),
        ("heat", ["go to fridge 1", "open fridge 1", "take apple 1 from fridge 1"], ["go to microwave 1"]),
        ("look", ["go to sidetable 1", "use desklamp 1"], ["go to countertop 1", "take book 1 from countertop 1"]),
        ("two", ["go to sidetable 1", "take pencil 1 from sidetable 1"], ["go to drawer 2", "open drawer 2"]),
        ("place", ["go to sidetable 1", "take papertowelroll 1 from sidetable 1"], [None]),
    ],
)
def test_first_steps(goal: str, commands: list[str], expected: list[str | None]) -> None:
    state = State(Game(house(goal), TASK))
    for command in commands:
        assert state.step(command)[1], command
    for step in expected:
        assert next_action(state) == step
        if step:
            state.step(step)


def test_nothing_to_do_once_it_is_won() -> None:
    state = State(Game(house(), TASK))
    finish(state)
    assert state.won and next_action(state) is None and goal_progress(state) == 1.0


@pytest.mark.parametrize(
    ("goal", "commands", "progress"),
    [
        ("place", ["go to countertop 1", "take book 1 from countertop 1", "go to drawer 1"], [0, 0, 0]),
        ("clean", ["go to countertop 1", "take mug 2 from countertop 1", "go to sinkbasin 1"], [0.5, 0, 0]),
        ("clean", ["go to sinkbasin 1", "go to countertop 1"], [0.5, 0.5]),
        ("two", ["go to sidetable 1", "take pencil 1 from sidetable 1", "go to drawer 1"], [0.5, 0.5, 0.5]),
        ("look", ["go to sidetable 1", "use desklamp 1", "go to countertop 1", "take book 1 from countertop 1"],
         [1 / 3, 2 / 3, 1 / 3, 2 / 3]),
    ],
)  # fmt: skip
def test_goal_progress_by_hand(goal: str, commands: list[str], progress: list[float]) -> None:
    state = State(Game(house(goal), TASK))
    for command, share in zip(commands, progress, strict=True):
        assert state.step(command)[1], command
        assert goal_progress(state) == pytest.approx(share), command


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(GOALS)), st.integers(0, 2**32))
def test_progress_is_one_exactly_when_won(goal: str, seed: int) -> None:
    rng, state = random.Random(seed), State(Game(house(goal), TASK))
    for _ in range(40):
        state.step(rng.choice(state.admissible()))
        assert 0 <= goal_progress(state) <= 1 and (goal_progress(state) == 1) == state.won == won_by_definition(state)


def won_by_definition(state: State) -> bool:
    """The goal as its PDDL says it, over all pairs; slow and plain."""
    game, goal = state.game, state.game.goal
    marks = {"": -1, "clean": state.clean, "hot": state.hot, "cool": state.cold}[goal.property]
    pairs = [(o, r) for r, inside in enumerate(state.contents) for o in range(len(game.objects)) if inside >> o & 1]
    if goal.lamp:
        near = [o for o, r in pairs if game.places[r] == state.place and game.otypes[o] == goal.lamp]
        holding = state.held >= 0 and game.otypes[state.held] == goal.otype
        return holding and any(state.lit >> o & 1 for o in near)
    fitting = [r for o, r in pairs if game.otypes[o] == goal.otype and game.rtypes[r] == goal.rtype and marks >> o & 1]
    return any(fitting.count(r) >= goal.count for r in fitting)
