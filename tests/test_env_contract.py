"""One contract for every environment. A new environment joins by being registered; nothing here knows any by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench.core import SeedbenchError, TextEnv, View, stream
from seedbench.exam import SPLITS, environments, make_env

IDS = environments("all")
HELD = ("train", "dev", "seen", "unseen")
INFO = {"goal", "kind", "admissible", "is_action_valid", "invalid_reason", "won", "score", "steps"}


@pytest.fixture(scope="module", params=IDS)
def env(request: pytest.FixtureRequest) -> TextEnv:
    return make_env(request.param)


def walk(env: TextEnv, task: str, seed: int, moves: int = 30) -> list[Any]:
    """A random episode: everything the environment says, in a form that can be compared."""
    observation, info = env.reset(seed=seed, options={"task": task})
    said: list[Any] = [[observation, info]]
    for turn in range(moves):
        action = env.sample(np.random.default_rng(stream(seed, task, turn)))
        observation, reward, terminated, truncated, info = env.step(action)
        said.append([action, observation, reward, terminated, truncated, info])
        if terminated or truncated:
            break
    return said


def some_tasks(env: TextEnv, n: int = 3) -> list[str]:
    return [t.id for split in HELD for t in env.tasks(split)[:: max(1, len(env.tasks(split)) // n)][:n]]


def test_gymnasium_accepts_it(env: TextEnv) -> None:
    assert env.spec is not None
    check_env(gym.make(env.spec.id).unwrapped, skip_render_check=True)


def test_info_is_complete_and_admissible_actions_are_strings(env: TextEnv) -> None:
    for task in some_tasks(env):
        for said in walk(env, task, seed=1):
            info = said[-1]
            assert set(info) >= INFO
            assert all(isinstance(a, str) and a for a in info["admissible"])
            assert 0 <= info["score"] <= 1 and isinstance(info["won"], bool)


def test_admissible_actions_are_accepted(env: TextEnv) -> None:
    for task in some_tasks(env, 2):
        _, info = env.reset(seed=0, options={"task": task})
        for action in info["admissible"]:
            after = env.clone().step(action)[-1]
            assert after["is_action_valid"], f"{task}: {action!r} is admissible yet refused: {after['invalid_reason']}"


def test_splits_are_disjoint_whole_and_stable(env: TextEnv) -> None:
    seen: set[str] = set()
    for split in HELD:
        tasks = env.tasks(split)
        ids = [t.id for t in tasks]
        assert ids and len(set(ids)) == len(ids)
        assert not seen & set(ids)
        seen |= set(ids)
        assert all(t.split == split and env.spec is not None and t.env == env.spec.id for t in tasks)
        assert tasks == env.tasks(split)
        assert env.pinned(split), f"{split} of the embedded data must be pinned by the committed manifest"


def test_expert_wins_a_sample_of_every_split(env: TextEnv) -> None:
    for task in some_tasks(env, 5):
        env.reset(seed=0, options={"task": task})
        done = False
        while not done:
            action = env.expert()
            assert action is not None
            _, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
        assert info["won"] and terminated and not truncated, task


def test_the_step_limit_truncates_and_is_not_a_win(env: TextEnv) -> None:
    assert env.spec is not None
    short = make_env(env.spec.id, max_steps=2)
    short.reset(seed=0, options={"task": some_tasks(short, 1)[0]})
    assert short.step("")[3] is False
    _, reward, terminated, truncated, info = short.step("")
    assert (terminated, truncated, info["won"], info["steps"], reward) == (False, True, False, 2, 0.0)
    with pytest.raises(SeedbenchError, match="reset"):
        short.step("")


def test_reset_without_options_draws_from_the_seed(env: TextEnv) -> None:
    first, second = (env.reset(seed=5)[0] for _ in range(2))
    assert first == second
    assert len({env.reset(seed=s)[0] for s in range(8)}) > 1


def test_an_unknown_task_is_refused_with_a_sentence(env: TextEnv) -> None:
    for bad in ("no-such-task", "", "../../etc/passwd", "x" * 10_000):
        with pytest.raises(SeedbenchError):
            env.reset(options={"task": bad})
    with pytest.raises(SeedbenchError):
        env.tasks("no-such-split")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(
        st.text(max_size=40) | st.sampled_from(["", " ", "\0", "go to", "a" * 100_000, "😀", "ﷺ"]), max_size=5
    )
)
def test_garbage_costs_a_step_and_changes_nothing_else(env: TextEnv, actions: list[str]) -> None:
    task = some_tasks(env, 1)[0]
    _, info = env.reset(seed=0, options={"task": task})
    before = info["admissible"]
    for n, action in enumerate(actions, 1):
        observation, _, terminated, truncated, info = env.step(action)
        assert isinstance(observation, str) and info["steps"] == n
        if terminated or truncated:
            break
        if not info["is_action_valid"]:
            assert info["invalid_reason"]
            assert info["admissible"] == before
        before = info["admissible"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200))
def test_parse_never_raises(env: TextEnv, text: str) -> None:
    for mode in ("strict", "tolerant"):
        action, valid, reason = env.parse(text, mode)  # type: ignore[arg-type]
        assert isinstance(action, str) and valid == (not reason)


def test_the_parser_reads_what_the_prompt_writes(env: TextEnv) -> None:
    env.reset(seed=0, options={"task": some_tasks(env, 1)[0]})
    action = env.expert()
    assert action is not None and env.parse(env.PROMPT.reply(action)).action == action


def test_clones_are_independent(env: TextEnv) -> None:
    task = some_tasks(env, 1)[0]
    env.reset(seed=3, options={"task": task})
    env.step(env.sample(np.random.default_rng(0)))
    twin, third = env.clone(), env.clone()
    actions = [env.sample(np.random.default_rng(k)) for k in range(3)]
    first = [twin.step(a) for a in actions]
    env.step("")
    assert [third.step(a) for a in actions] == first


def test_environments_do_not_share_state(env: TextEnv) -> None:
    assert env.spec is not None
    a, b = make_env(env.spec.id), make_env(env.spec.id)
    one, two = some_tasks(env, 1)[:2]
    alone = walk(a, one, seed=1), walk(b, two, seed=2)
    a.reset(seed=1, options={"task": one})
    b.reset(seed=2, options={"task": two})
    mixed: tuple[list[Any], list[Any]] = ([alone[0][0]], [alone[1][0]])
    for turn in range(1, max(map(len, alone))):
        for e, walked, log in ((a, alone[0], mixed[0]), (b, alone[1], mixed[1])):
            if turn < len(walked):
                log.append([walked[turn][0], *e.step(walked[turn][0])])
    assert mixed == alone


def test_the_same_bytes_in_any_process(env: TextEnv) -> None:
    """Fresh processes with other hash seeds, playing tasks in another order, say the same."""
    assert env.spec is not None
    tasks = some_tasks(env, 2)
    mine = {task: walk(env, task, seed=9) for task in tasks}
    code = (
        "import json, sys; from seedbench.exam import make_env; from tests.test_env_contract import walk\n"
        "env = make_env(sys.argv[1]); tasks = json.loads(sys.argv[2])\n"
        "print(json.dumps([env.digest(), {t: walk(env, t, seed=9) for t in tasks}]))"
    )
    for hashseed, order in (("0", tasks), ("12345", tasks[::-1])):
        done = subprocess.run(
            [sys.executable, "-c", code, env.spec.id, json.dumps(order)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hashseed},
        )
        digest, theirs = json.loads(done.stdout)
        assert digest == env.digest()
        assert theirs == json.loads(json.dumps(mine))


def test_vector_environments(env: TextEnv) -> None:
    assert env.spec is not None
    vec = gym.make_vec(env.spec.id, num_envs=3, vectorization_mode="sync", vector_kwargs={"copy": True})
    observations, _ = vec.reset(seed=[1, 2, 3])
    assert len(observations) == 3
    single = [make_env(env.spec.id).reset(seed=s)[0] for s in (1, 2, 3)]
    assert list(observations) == single
    observations, *_ = vec.step(["", "", ""])
    assert all(isinstance(str(o), str) for o in observations)
    vec.close()


def test_prompt_and_splits_are_described(env: TextEnv) -> None:
    assert len(env.PROMPT.digest()) == 64 and env.PROMPT.name
    assert env.PROMPT.render(View("g", "o", ("a",), ()))[0]["role"] == "system"
    assert set(SPLITS) >= set(HELD)
