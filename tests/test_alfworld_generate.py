"""ALFWorld's generator: the same games anywhere, lawful rooms, winnable games, and habits that are worth learning."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import SeedbenchError
from seedbench.envs import manifests
from seedbench.envs.alfworld import data, files, frozen, habits, rooms
from seedbench.envs.alfworld.generate import KINDS, LEVELS, generate
from seedbench.envs.alfworld.search import ORDERS, kind_of, order_places, read_scene, search, success

FAMILIES = list(rooms.FAMILIES)


def shared_games() -> Path:
    root = Path(os.environ.get("SEEDBENCH_SHARED", Path(__file__).parents[2] / "shared")) / "data" / "alfworld"
    if not root.is_dir():
        pytest.skip("the published ALFWorld games (../shared/data/alfworld or $SEEDBENCH_SHARED) are not at hand")
    return root / "games.jsonl.xz"


def facts(problem: str, predicate: str) -> list[tuple[str, ...]]:
    init = problem[problem.index("(:init") : problem.index("(:goal")]
    return [tuple(found.split()) for found in re.findall(rf"\({predicate} ([^()]+)\)", init)]


@given(
    seed=st.integers(-(10**9), 10**9),
    level=st.sampled_from(sorted(LEVELS)),
    split=st.sampled_from(["train", "dev", "seen", "unseen"]),
    index=st.integers(0, 10**6),
)
@settings(max_examples=200, deadline=None)
def test_any_game_is_lawful_and_can_be_won(seed: int, level: int, split: str, index: int) -> None:
    game = generate(seed, level, split, index)
    assert game == generate(seed, level, split, index) and game.kind == KINDS[index % 6]
    assert game.problem.count("(") == game.problem.count(")")
    types = dict((*facts(game.problem, "objectType"), *facts(game.problem, "receptacleType")))
    can = set(facts(game.problem, "canContain"))
    spots = dict(facts(game.problem, "receptacleAtLocation"))
    where = facts(game.problem, "inReceptacle")
    assert max(Counter(place for _, place in where).values()) <= 3
    assert dict(facts(game.problem, "objectAtLocation")) == {thing: spots[place] for thing, place in where}
    for thing, place in where:
        assert types[thing] == "DeskLampType" or (types[place], types[thing]) in can
    scene = read_scene(game.problem)
    goal = scene.goal
    at_goal = [t for t, p in scene.inside.items() if kind_of(t) == goal.target and kind_of(p) == goal.place]
    assert not at_goal  # nothing is done for the player
    there = Counter(kind_of(thing) for thing in scene.inside)
    assert there[goal.target] == goal.number and (not goal.lamp or there[goal.lamp] == 1)
    commands = search(scene, order_places(scene, "oracle"))
    assert len(commands) <= 12 and len(commands) <= LEVELS[level].max_steps


def test_problem_text_of_one_game_by_hand() -> None:
    game = generate(0, 2, "train", 0)
    assert hashlib.sha256(game.problem.encode()).hexdigest()[:16] == "1dfa9bd26a7a8b8f"
    assert game.task == "Your task is to: put a candle in cabinet."
    scene = read_scene(game.problem)
    assert scene.goal.target == "candle" and scene.goal.place == "cabinet" and scene.goal.treatment is None


def test_the_same_games_in_any_process() -> None:
    code = (
        "import hashlib; from seedbench.envs.alfworld.generate import generate as g;"
        "print(hashlib.sha256(repr([g(3, n % 4 + 1, 'unseen', n) for n in range(60)]).encode()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_levels_grow_and_unknown_ones_are_refused() -> None:
    size = {
        level: [len(read_scene(generate(0, level, "train", n).problem).places) for n in range(60)] for level in LEVELS
    }
    assert max(size[1]) <= 10 and 10 <= min(size[2]) <= max(size[2]) <= 12 < min(size[3]) and min(size[4]) >= 22
    with pytest.raises(SeedbenchError, match="no level 9"):
        generate(0, 9, "train", 0)
    with pytest.raises(SeedbenchError, match="not for 'paper'"):
        generate(0, 2, "paper", 0)


def test_default_rooms_are_half_closed_and_lists_are_short() -> None:
    closed = places = 0
    for n in range(120):
        scene = read_scene(generate(5, 2, "seen", n).problem)
        closed, places = closed + len(scene.openable), places + len(scene.places)
        assert len(scene.inside) <= 8
    assert 0.42 < closed / places < 0.58 and 10 <= places / 120 <= 12


@pytest.mark.parametrize("family", FAMILIES)
def test_habits_can_be_kept_in_every_layout(family: str) -> None:
    layouts = rooms.TRAIN_LAYOUTS[family] + rooms.UNSEEN_LAYOUTS[family]
    assert len({layout.spots for layout in layouts}) == len(layouts) == 6
    for layout in layouts:
        standing = {piece for spot in layout.spots for piece in spot}
        assert set(habits.HABITS[family].values()) <= standing, layout.name
    for thing, place in habits.HABITS[family].items():
        assert thing == "DeskLamp" or thing in rooms.CONTAINS[place]


def test_a_lesson_states_every_habit_without_numbers() -> None:
    assert sum(len(table) for table in habits.HABITS.values()) >= 12
    for family, table in habits.HABITS.items():
        text = habits.lesson(family)
        assert not re.search(r"\d", text) and len(text.split()) < 80
        said = dict(line.split(": ") for line in text.splitlines()[1:])
        assert {word: place for place, words in said.items() for word in words.split(", ")} == {
            habits.word(thing): habits.word(place) for thing, place in table.items()
        }


def test_things_are_kept_by_habit_about_as_often_as_stated() -> None:
    kept = total = 0
    for n in range(400):
        game = generate(11, 2, "train", n)
        usual = {habits.word(t): habits.word(p) for t, p in habits.HABITS[game.family].items()}
        for thing, place in read_scene(game.problem).inside.items():
            kept, total = kept + (usual[kind_of(thing)] == kind_of(place)), total + 1
    assert 0.83 < kept / total < 0.91


def test_unseen_games_are_in_rooms_of_their_own() -> None:
    layouts: dict[str, set[str]] = defaultdict(set)
    for row in manifests.load(frozen.MINI).rows.values():
        layouts[row.split].add(row.options["layout"])
    assert layouts["train"] == layouts["seen"] == layouts["dev"] and len(layouts["train"]) == 16
    assert len(layouts["unseen"]) == 8 and layouts["unseen"].isdisjoint(layouts["train"])


@pytest.mark.parametrize("split", ["train", "dev", "seen", "unseen"])
def test_habits_are_worth_twenty_points_on_mini(split: str) -> None:
    dataset = data.open_dataset("mini")
    tasks = dataset.tasks(split)[:300]
    rate = {how: success(dataset, tasks, how, dataset.default_max_steps) for how in ORDERS}
    assert rate["oracle"] == 1.0
    assert rate["habits"] >= 0.8 and rate["habits"] - rate["listed"] >= 0.20
    assert rate["habits"] - max(rate[how] for how in ("random", "open", "backwards")) >= 0.15


def test_tables_are_facts_of_the_published_games() -> None:
    can, able = set(), defaultdict(set)
    with lzma.open(shared_games(), "rt") as lines:
        next(lines)
        for n, line in enumerate(lines):
            if n % 5:
                continue
            problem = json.loads(line)["pddl_problem"]
            can |= {(place[:-4], thing[:-4]) for place, thing in facts(problem, "canContain")}
            for predicate in (
                "cleanable",
                "heatable",
                "coolable",
                "sliceable",
                "toggleable",
                "isReceptacleObject",
                "openable",
            ):
                able[predicate] |= {x.split("_bar_")[0] for (x,) in facts(problem, predicate)}
    ours = {(rooms.BASIN.get(place, place), thing) for place, things in rooms.CONTAINS.items() for thing in things}
    assert ours <= can
    things = {thing for table in habits.HABITS.values() for thing in table}
    assert able["cleanable"] & things == rooms.CLEANABLE and able["heatable"] & things == rooms.HEATABLE
    assert able["coolable"] & things == rooms.COOLABLE and able["sliceable"] & things == rooms.SLICEABLE
    assert able["toggleable"] & things == rooms.TOGGLEABLE and able["isReceptacleObject"] & things == rooms.VESSELS
    assert able["openable"] == rooms.OPENABLE


def test_a_set_of_ones_own_is_served_but_unpinned(tmp_path: Path) -> None:
    sizes = {"train": 12, "dev": 6, "seen": 6, "unseen": 6}
    table = files.generate(tmp_path / "own", lambda done, total: None, seed=4, level=3, sizes=sizes)
    assert [row["games"] for row in table] == [12, 6, 6, 6] and all(
        row["habits"] >= row["listed"] - 0.5 for row in table
    )
    dataset = data.open_dataset(tmp_path / "own")
    assert dataset.default_max_steps == 24 and not dataset.pinned("seen")
    assert dataset.tasks("seen")[0].id == "generated-4-3/seen/pick_and_place_simple-0000"
    again = tmp_path / "again"
    files.generate(again, lambda done, total: None, seed=4, level=3, sizes=sizes)
    for name in (frozen.GAMES, frozen.LISTING):
        assert (again / name).read_bytes() == (tmp_path / "own" / name).read_bytes()
    with pytest.raises(SeedbenchError, match="holds games already"):
        files.generate(again, lambda done, total: None)
    (again / frozen.LISTING).write_bytes(b"torn")
    with pytest.raises(SeedbenchError, match="generate the games again"):
        data.open_dataset(again)


def test_the_real_engine_plays_ours(tmp_path: Path) -> None:
    pytest.importorskip("alfworld", reason="needs the real engine: pip install -e '.[alfworld]'")
    textworld = pytest.importorskip("textworld")
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    from seedbench.envs.alfworld.texts import game_json

    dataset = data.open_dataset("mini")
    for task in dataset.tasks("unseen")[:6]:
        scene = read_scene(dataset.source(task.id).problem)
        path = tmp_path / "game.tw-pddl"
        path.write_text(game_json(dataset.source(task.id)))
        env = textworld.start(str(path), textworld.EnvInfos(won=True, admissible_commands=True), [AlfredDemangler])
        state = env.reset()
        assert not state["won"] and dataset.source(task.id).task in state["feedback"]
        listed = re.findall(r"an? (\w+ \d+)", state["feedback"].split("you see")[1])
        assert listed == scene.places  # our searchers look in the order in which the engine lists
        for command in search(scene, order_places(scene, "oracle")):
            assert not state["won"] and command in state["admissible_commands"]
            state, _, _ = env.step(command)
        assert state["won"]
