"""The fast ALFWorld engine: recorded transcripts, oddities written down by hand, and the real engine itself."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.envs.alfworld.engine import HELP, NOTHING_HAPPENS, Game, State
from tests.alfworld_house import GOALS, TASK, house, published, real_game, records


def play(*commands: str, goal: str = "place") -> State:
    """The house after some commands, each of which must be accepted."""
    state = State(Game(house(goal), TASK))
    for command in commands:
        text, accepted = state.step(command)
        assert accepted, (command, text)
    return state


def seen(state: State, command: str) -> str:
    return state.step(command)[0]


def test_recorded_transcripts_byte_for_byte() -> None:
    games = {game["path"]: game for game in published()}
    steps = 0
    for record in records("golden_seen.jsonl.xz"):
        game = games[record["path"]]
        state = State(Game(game["pddl_problem"], game["task"]))
        for step in [record["first"], *record["steps"]]:
            text = state.step(step["c"])[0] if "c" in step else state.reset()
            admissible = hashlib.sha256("\n".join(state.admissible()).encode()).hexdigest()[:16]
            assert (text, admissible, state.won) == (step["obs"], step["adm"], step["won"]), (record["path"], step)
            steps += 1
    assert steps > 1700


@pytest.mark.parametrize("split, games", [("valid_seen", 140), ("train", 3553)])
def test_published_walkthroughs_win_and_not_before_their_end(split: str, games: int) -> None:
    assert len(published(split)) == games
    for game in published(split):
        state = State(Game(game["pddl_problem"], game["task"]))
        for command in game["walkthrough"]:
            assert not state.won
            assert state.step(command)[1], (game["path"], command)
        assert state.won, game["path"]


def test_welcome_lists_the_room_and_look_does_not() -> None:
    game = Game(house(), TASK)
    state = State(game)
    assert state.reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a cabinet 1, a countertop 1, a drawer 2, a drawer 1, a fridge 1, a microwave 1, a sidetable 1, "
        "and a sinkbasin 1."
        f"\n\n{TASK}"
    )
    assert seen(state, "look") == "You are in the middle of a room. Looking quickly around you, you see nothing."
    rooms = [
        "cabinet 1",
        "countertop 1",
        "drawer 1",
        "drawer 2",
        "fridge 1",
        "microwave 1",
        "sidetable 1",
        "sinkbasin 1",
    ]
    assert state.admissible() == [*(f"go to {r}" for r in rooms), "help", "inventory", "look"]


def test_a_place_one_is_at_cannot_be_gone_to() -> None:
    state = play("go to drawer 1")  # drawer 2 shares the spot
    assert not any(c.startswith("go to drawer") for c in state.admissible())
    assert state.step("go to drawer 2") == (NOTHING_HAPPENS, False)
    assert seen(state, "look") == "You are facing the drawer 2, and drawer 1. Next to it, you see nothing."


def test_moved_objects_lie_next_to_it_as_well() -> None:
    state = play("go to countertop 1", "open cabinet 1", "take mug 2 from countertop 1")
    assert seen(state, "look") == "You are facing the cabinet 1, and countertop 1. Next to it, you see nothing."
    assert seen(state, "move mug 2 to cabinet 1") == "You move the mug 2 to the cabinet 1."
    assert seen(state, "look") == "You are facing the cabinet 1, and countertop 1. Next to it, you see a mug 2."
    state.step("take mug 2 from cabinet 1")
    state.step("move mug 2 to countertop 1")
    assert seen(state, "look").endswith("Next to it, you see a mug 2.")  # as it is not in the cabinet now


def test_objects_are_examined_only_in_the_hand() -> None:
    state = play("go to countertop 1")
    assert "examine apple 2" not in state.admissible()
    state.step("take apple 2 from countertop 1")
    assert seen(state, "examine apple 2") == "There's nothing special about apple 2."


def test_an_object_in_two_places_stays_in_the_other_one() -> None:
    state = play("go to cabinet 1", "take book 1 from countertop 1")
    assert (
        seen(state, "open cabinet 1")
        == "You open the cabinet 1. The cabinet 1 is open. In it, you see a book 1, and a mug 1."
    )
    assert "take book 1 from cabinet 1" not in state.admissible()  # the hand is full
    assert "move book 1 to cabinet 1" in state.admissible()


def test_a_mug_keeps_its_content_and_hides_its_state() -> None:
    state = play(
        "go to countertop 1", "take mug 2 from countertop 1", "go to sinkbasin 1", "clean mug 2 with sinkbasin 1"
    )
    assert seen(state, "examine mug 2") == "This is a normal mug 2. In it, you see a pencil 1."
    other = play("go to cabinet 1", "open cabinet 1", "take mug 1 from cabinet 1")
    assert seen(other, "examine mug 1") == "This is a normal mug 1. In it, you see nothing."
    assert not any(c.startswith("put ") or " into " in c for c in state.admissible())


def test_appliances_work_through_closed_doors_and_say_so_later() -> None:
    state = play("go to sinkbasin 1", "take potato 1 from sinkbasin 1", "go to microwave 1")
    assert "move potato 1 to microwave 1" not in state.admissible()  # closed
    assert seen(state, "heat potato 1 with microwave 1") == "You heat the potato 1 using the microwave 1."
    assert seen(state, "examine potato 1") == "This is a hot potato 1."
    state.step("go to fridge 1")
    assert seen(state, "cool potato 1 with fridge 1") == "You cool the potato 1 using the fridge 1."
    assert seen(state, "examine potato 1") == "This is a cold potato 1."
    state.step("go to sinkbasin 1")
    assert seen(state, "clean potato 1 with sinkbasin 1") == "You clean the potato 1 using the sinkbasin 1."
    assert seen(state, "examine potato 1") == "This is a cool and clean potato 1."
    state.step("go to microwave 1")
    state.step("heat potato 1 with microwave 1")
    assert seen(state, "examine potato 1") == "This is a hot and clean potato 1."


CLEAN, HEAT, COOL = (
    (f"go to {place}", f"{verb} apple 2 with {place}")
    for verb, place in (("clean", "sinkbasin 1"), ("heat", "microwave 1"), ("cool", "fridge 1"))
)


@pytest.mark.parametrize(
    ("treatment", "text"),
    [
        ((), "This is a sliced apple 2."),
        (CLEAN, "This is a clean sliced apple 2."),
        (HEAT, "This is a hot sliced apple 2."),
        (COOL, "This is a cool sliced apple 2."),
        (CLEAN + HEAT, "This is a hot and clean sliced apple 2."),
        (HEAT + COOL + CLEAN, "This is a cool and clean sliced apple 2."),
    ],
)
def test_slices(treatment: tuple[str, ...], text: str) -> None:
    state = play("go to countertop 1", "take knife 1 from countertop 1")
    assert seen(state, "slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
    for command in ["move knife 1 to countertop 1", "take apple 2 from countertop 1", *treatment]:
        assert state.step(command)[1], command
    assert seen(state, "examine apple 2") == text


def test_what_is_cold_from_the_start_can_be_cooled_again() -> None:
    state = play("go to fridge 1", "open fridge 1", "take lettuce 1 from fridge 1")
    assert "cool lettuce 1 with fridge 1" in state.admissible()
    assert seen(state, "examine lettuce 1") == "This is a cold lettuce 1."


def test_lamps_never_turn_off() -> None:
    state = play("go to sidetable 1")
    assert [seen(state, "use desklamp 1") for _ in range(2)] == ["You turn on the desklamp 1."] * 2


def test_what_is_lit_says_so_and_what_is_not_says_nothing() -> None:
    state = play("go to sidetable 1", "take candle 1 from sidetable 1")
    assert seen(state, "examine candle 1") == "There's nothing special about candle 1."
    for command in ("move candle 1 to sidetable 1", "use candle 1", "take candle 1 from sidetable 1"):
        state.step(command)
    assert seen(state, "examine candle 1") == "This candle 1 is on."


def test_help_inventory_and_stripped_commands() -> None:
    state = play("go to countertop 1")
    assert seen(state, "help") == HELP
    assert seen(state, "inventory") == "You are not carrying anything."
    assert state.step("  take apple 2 from countertop 1\n")[1]
    assert seen(state, "inventory") == "You are carrying: a apple 2."
    assert not state.step("Inventory")[1]


def test_closing_hides_the_content() -> None:
    state = play("go to fridge 1", "open fridge 1", "close fridge 1")
    assert seen(state, "examine fridge 1") == "The fridge 1 is closed."
    assert not any(c.startswith("take") for c in state.admissible())


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_garbage_changes_nothing(command: str) -> None:
    state = play("go to countertop 1", "take knife 1 from countertop 1")
    before = (state.admissible(), state.place, state.held, list(state.contents), state.progress)
    if command.strip() not in state.admissible():
        assert state.step(command) == (NOTHING_HAPPENS, False)
        assert before == (state.admissible(), state.place, state.held, list(state.contents), state.progress)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(GOALS)))
def test_clones_are_independent(seed: int, goal: str) -> None:
    """A clone replays what the original does, whatever a third play of the same game did in between."""
    rng, state = random.Random(seed), State(Game(house(goal), TASK))
    for _ in range(rng.randrange(20)):
        state.step(rng.choice(state.admissible()))
    clone, noise, trace = state.clone(), state.clone(), []
    for _ in range(20):
        command = rng.choice(state.admissible())
        trace.append((command, *state.step(command), state.admissible(), state.won, state.progress))
        noise.step(rng.choice(noise.admissible()))
    for command, *rest in trace:
        assert [*clone.step(command), clone.admissible(), clone.won, clone.progress] == rest


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbench.envs.alfworld.engine._CACHED", 5)
    rng, game = random.Random(0), Game(house(), TASK)
    state = State(game)
    for _ in range(300):
        state.step(rng.choice(state.admissible()))
        assert len(game.moves) <= 5 and len(game.texts) <= 5


def _same_as_real(problem: str, task: str, steps: int, seed: int, folder: Path, first: tuple[str, ...] = ()) -> None:
    """Play both engines side by side, `first` and then mostly commands that change something, and some garbage."""
    real, rng, state = real_game(problem, task, folder), random.Random(seed), State(Game(problem, task))
    answer, text, command = real.reset(), state.reset(), "reset"
    for k in range(steps + 1):
        ours = (text, state.admissible(), state.won)
        assert (answer.feedback, answer.admissible_commands, answer.won) == ours, (k, command)
        command = first[k] if k < len(first) else _command(state, rng)
        answer, text = real.step(command)[0], state.step(command)[0]


def _command(state: State, rng: random.Random) -> str:
    admissible = state.admissible()
    if rng.random() < 0.05:
        return rng.choice(
            ["", "xyzzy", "Look", "look ", f"use {state.game.objects[0]}", f"go to {state.game.receptacles[0]}"]
        )
    doing = [c for c in admissible if not c.startswith(("go to", "help", "inventory", "look"))]
    going = [c for c in admissible if c.startswith("go to")]
    return rng.choice(doing if doing and rng.random() < 0.65 else going if rng.random() < 0.9 else admissible)


SLICED = (
    "go to countertop 1", "take knife 1 from countertop 1", "slice apple 2 with knife 1", "look",
    "move knife 1 to countertop 1", "take apple 2 from countertop 1", "examine apple 2",
)  # fmt: skip
LIT = (
    "go to sidetable 1", "take candle 1 from sidetable 1", "examine candle 1", "move candle 1 to sidetable 1",
    "use candle 1", "use candle 1", "take candle 1 from sidetable 1", "examine candle 1",
)  # fmt: skip
FRIDGE = (
    "go to fridge 1", "open fridge 1", "close fridge 1", "open fridge 1", "take lettuce 1 from fridge 1",
    "cool lettuce 1 with fridge 1", "examine lettuce 1", "move lettuce 1 to fridge 1", "take apple 1 from fridge 1",
    *(c.replace("apple 2", "apple 1") for c in CLEAN), "examine apple 1",
)  # fmt: skip
OPENINGS = {
    "place": (*SLICED, *CLEAN, "examine apple 2", *HEAT, "examine apple 2", *COOL, "examine apple 2"),
    "clean": (*SLICED, *HEAT, "examine apple 2", *COOL, "examine apple 2", "inventory", "help"),
    "heat": FRIDGE,
    "look": LIT,
}


@pytest.mark.parametrize("goal", sorted(GOALS))
def test_the_house_equals_the_real_engine(goal: str, tmp_path: Path) -> None:
    start = "l2" if goal == "cool" else "l0"  # beside receptacles, as no published game starts
    _same_as_real(house(goal, start=start), TASK, 60, ord(goal[0]), tmp_path, OPENINGS.get(goal, ()))


def test_published_games_equal_the_real_engine(tmp_path: Path) -> None:
    for k in (5, 77):
        game = published()[k]
        _same_as_real(game["pddl_problem"], game["task"], 20, k, tmp_path, tuple(game["walkthrough"]))


@pytest.mark.slow
def test_many_published_games_equal_the_real_engine(tmp_path: Path) -> None:
    for k, game in enumerate(published()[::7]):
        first = tuple(game["walkthrough"]) if k % 2 else ()
        _same_as_real(game["pddl_problem"], game["task"], 60, k, tmp_path, first)
