"""ALFWorldEnv: Gymnasium's contract, ends of episodes, clones, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from seedbench.core import SeedbenchError, Task, UnsupportedError, View
from seedbench.envs.alfworld import env as env_module
from seedbench.envs.alfworld.data import DOMAIN_SHA, GRAMMAR_SHA, GameSource
from seedbench.envs.alfworld.env import ALFWorldEnv, EpisodeOver
from tests.alfworld_house import GOALS, TASK, house


class Houses:
    """A data set of six games, one of each kind; `train` and `seen` hold the same ones."""

    default_max_steps = 14

    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in ("train", "seen"):
            raise SeedbenchError(f"no split {split}")
        return tuple(Task(f"house/{goal}", "seedbench/ALFWorld-v0", split, goal) for goal in GOALS)

    def task(self, task_id: str) -> Task:
        if task_id.removeprefix("house/") not in (*GOALS, "old", "broken"):
            raise SeedbenchError(f"no task {task_id}")
        return Task(task_id, "seedbench/ALFWorld-v0", "train", task_id.removeprefix("house/"))

    def source(self, task_id: str) -> GameSource:
        goal = task_id.removeprefix("house/")
        if goal == "old":
            return GameSource(house(), TASK, DOMAIN_SHA, "another grammar")
        if goal == "broken":
            return GameSource(house()[:-5], TASK, DOMAIN_SHA, GRAMMAR_SHA)
        return GameSource(house(goal), TASK, DOMAIN_SHA, GRAMMAR_SHA)

    def digest(self) -> str:
        return "houses"

    def pinned(self, split: str) -> bool:
        return split == "seen"


@pytest.fixture(autouse=True)
def houses(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    if "published_seen" not in request.fixturenames:
        only = Houses()
        monkeypatch.setattr(env_module, "open_dataset", lambda data: only)
    yield


def make(**options: Any) -> ALFWorldEnv:
    made = gym.make("seedbench/ALFWorld-v0", **options).unwrapped
    assert isinstance(made, ALFWorldEnv)
    return made


def play(env: ALFWorldEnv, task: str) -> list[Any]:
    """What the oracle's episode of one task looks like, from reset to end."""
    seen: list[Any] = [env.reset(options={"task": task})]
    while (action := env.expert()) is not None:
        seen.append(env.step(action))
    return seen


def test_gymnasium_accepts_it() -> None:
    check_env(make(render_mode="ansi"), skip_render_check=False)


def test_every_kind_is_won_by_the_oracle() -> None:
    env = make()
    for task in env.tasks("seen"):
        first, *steps = play(env, task.id)
        assert first[1]["task"] == task.id and first[1]["kind"] == task.kind and first[1]["steps"] == 0
        assert first[1]["goal"] == "do something in the house." and not first[1]["won"]
        _, reward, terminated, truncated, info = steps[-1]
        assert (reward, terminated, truncated, info["won"], info["score"], info["goal_progress"]) == (
            1,
            True,
            False,
            True,
            1,
            1,
        )
        assert all((r, te, tr, i["won"], i["score"]) == (0, False, False, False, 0) for _, r, te, tr, i in steps[:-1])
        with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\)"):
            env.step("look")


def test_the_step_limit_truncates_and_wins_nothing() -> None:
    env = make(max_steps=2)
    env.reset(options={"task": "house/place"})
    assert env.step("look")[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step("")
    assert (reward, terminated, truncated, info["won"], info["steps"]) == (0.0, False, True, False, 2)
    with pytest.raises(EpisodeOver):
        env.step("look")


def test_a_win_on_the_last_step_is_a_win() -> None:
    steps = len(play(make(), "house/place")) - 1
    *_, last = play(make(max_steps=steps), "house/place")
    assert last[1:4] == (1.0, True, False)


def test_step_before_reset_is_refused() -> None:
    env = make()
    for call in (partial(env.step, "look"), env.expert, partial(env.sample, np.random.default_rng(0))):
        with pytest.raises(EpisodeOver, match="reset"):
            call()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("", "no command was given"),
        ("go to countertop 1", "you are already at the countertop 1"),
        ("go to nowhere 1", "the command is not among the admissible ones"),
        ("GO TO FRIDGE 1", "the command is not among the admissible ones"),
    ],
)
def test_unknown_actions_cost_a_step_and_say_why(action: str, reason: str) -> None:
    env = make()
    env.reset(options={"task": "house/place"})
    _, _, _, _, before = env.step("go to cabinet 1")
    text, reward, _, _, info = env.step(action)
    assert (text, reward, info["is_action_valid"], info["invalid_reason"]) == ("Nothing happens.", 0.0, False, reason)
    assert info["steps"] == 2 and info["admissible"] == before["admissible"]
    assert before["is_action_valid"] and not before["invalid_reason"]


def test_the_admissible_list_belongs_to_the_caller() -> None:
    env = make()
    _, info = env.reset(options={"task": "house/place"})
    info["admissible"].clear()
    assert "look" in env.step("look")[4]["admissible"]


def test_a_seed_decides_what_is_drawn() -> None:
    draws = [[make().reset(seed=seed)[1]["task"] for seed in range(30)] for _ in range(2)]
    assert draws[0] == draws[1] and set(draws[0]) == {f"house/{goal}" for goal in GOALS}
    env = make()
    env.reset(seed=3)
    again = make()
    again.reset(seed=3)
    assert [env.reset()[1]["task"] for _ in range(9)] == [again.reset()[1]["task"] for _ in range(9)]


def test_clones_go_their_own_way() -> None:
    env = make()
    env.reset(seed=1, options={"task": "house/place"})
    env.step("go to countertop 1")
    clone = env.clone()
    clone.step("take book 1 from countertop 1")
    assert env.step("inventory")[0] == "You are not carrying anything."
    assert clone.step("inventory")[0] == "You are carrying: a book 1."
    assert env.clone().step("look")[4]["steps"] == 3
    assert [env.reset()[1]["task"] for _ in range(5)] == [clone.reset()[1]["task"] for _ in range(5)]
    assert make().clone().tasks("seen") == make().tasks("seen")


def test_vector_environments() -> None:
    vector = SyncVectorEnv([partial(gym.make, "seedbench/ALFWorld-v0", max_steps=3 + k) for k in range(3)])
    texts, _ = vector.reset(seed=0)
    assert len(texts) == 3 and all("Your task is to" in text for text in texts)
    for _ in range(8):  # past the ends: each resets itself
        texts, rewards, _, _, _ = vector.step(("look", "help", "xyzzy"))
    assert len(texts) == 3 and not rewards.any()
    vector.close()


def test_sample_is_admissible_and_follows_its_generator() -> None:
    env = make()
    _, info = env.reset(options={"task": "house/two"})
    drawn = [[env.sample(rng) for _ in range(50)] for rng in (np.random.default_rng(4), np.random.default_rng(4))]
    assert drawn[0] == drawn[1] and set(drawn[0]) <= set(info["admissible"]) and len(set(drawn[0])) > 5


def test_refusals() -> None:
    for backend in ("textworld", "alfworld"):
        with pytest.raises(UnsupportedError, match="fast"):
            ALFWorldEnv(backend=backend)
    for options in ({"backend": "slow"}, {"render_mode": "human"}, {"max_steps": 0}):
        with pytest.raises(SeedbenchError):
            ALFWorldEnv(**options)
    env = make(split="unseen")
    with pytest.raises(SeedbenchError, match="no split unseen"):
        env.reset(seed=0)
    for task, why in (("house/nothing", "no task"), ("house/old", "another domain or grammar"), (3, "as a string")):
        with pytest.raises(SeedbenchError, match=why):
            env.reset(options={"task": task})


@pytest.mark.parametrize(
    ("task", "why"), [("old", "another domain or grammar"), ("broken", "house/broken: this PDDL problem")]
)
def test_games_that_the_engine_must_not_play(task: str, why: str) -> None:
    with pytest.raises(SeedbenchError, match=why):
        env_module.compile_game(Houses().source(f"house/{task}"), f"house/{task}")


def test_threads_share_games_and_agree() -> None:
    expected = play(make(), "house/heat")
    found: list[bool] = []

    def run() -> None:
        found.extend(play(make(), f"house/{goal}") == (expected if goal == "heat" else play(make(), f"house/{goal}"))
                     for goal in ("heat", "two", "heat", "look"))  # fmt: skip

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 16


def test_prompt_is_short_and_its_replies_are_parsed() -> None:
    prompt, env = ALFWorldEnv.PROMPT, make()
    assert len(prompt.system.split()) < 60 and prompt.history == 5
    text, info = env.reset(options={"task": "house/place"})
    messages = prompt.render(View(info["goal"], text, tuple(info["admissible"]), ()))
    assert "go to fridge 1" in messages[1]["content"] and "do something in the house." in messages[1]["content"]
    parsed = env.parse(prompt.reply("open fridge 1"))
    assert (parsed.action, parsed.format_valid) == ("open fridge 1", True)


def test_digest_and_pins() -> None:
    assert make().digest() == make().digest() != make(max_steps=20).digest()
    assert make().pinned("seen") and not make().pinned("train")
    assert make().max_steps == 14


def test_published_games_through_gymnasium(published_seen: Path) -> None:
    env = make(data=str(published_seen), split="seen")
    assert env.max_steps == 50 and len(env.tasks("seen")) == 140
    for task in env.tasks("seen")[::10]:
        assert play(env, task.id)[-1][1:4] == (1.0, True, False), task.id
    text, info = env.reset(seed=0)
    assert text.endswith(f"Your task is to: {info['goal']}")
