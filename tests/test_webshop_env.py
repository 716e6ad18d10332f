"""`seedbench/WebShop-v0`: episodes of the original replayed, options of ours, the oracle."""

from __future__ import annotations

import json
import lzma
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.core import SeedbenchError, stream
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.goals import Goal
from seedbench.envs.webshop.oracle import best_options
from seedbench.envs.webshop.reward import option_matches, score
from tests.webshop_shop import goal, products, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("shop"))


def made(folder: Path, **settings: Any) -> WebShopEnv:
    return WebShopEnv(folder, **settings)


def buy(env: WebShopEnv) -> tuple[str, float, bool, bool, Any]:
    """Follow the oracle to the end."""
    while True:
        action = env.expert()
        assert action is not None
        result = env.step(action)
        assert result[4]["is_action_valid"], action
        if result[2] or result[3]:
            return result


# ------------------------------------------------------------------------------------------------ the original
def test_golden_trajectories(shared_data: Path) -> None:
    """58 episodes of the original: every observation, clickables, reward and end are the same, without exception."""
    folder = shared_data / "webshop"
    with lzma.open(folder / "golden_goals.json.xz") as file:
        golden = json.load(file)
    with lzma.open(folder / "golden_trajectories.jsonl.xz", "rt") as file:
        episodes = [json.loads(line) for line in file]
    envs = {mode: WebShopEnv(folder, max_steps=100, observation=mode) for mode in ("text", "text_rich")}
    compared = 0
    for episode in episodes:
        env, first = envs[episode["mode"]], episode["steps"][0]
        given = {"goal": golden["goals"][episode["goal_idx"]], "prices": golden["prices"]}
        assert env.reset(options=given)[0] == first["obs"]
        assert list(env.clickables()) == first["avail"]["clickables"]
        for step in episode["steps"][1:]:
            observation, reward, terminated, truncated, _ = env.step(step["action"])
            assert observation == step["obs"], step["action"]
            assert list(env.clickables()) == step["avail"]["clickables"]
            assert (reward, terminated, truncated) == (step["reward"], step["done"], False)
        compared += len(episode["steps"])
    assert (len(episodes), compared) == (58, 513)


def test_splits_of_the_published_thousand(shared_data: Path) -> None:
    env = WebShopEnv(shared_data / "webshop")
    sizes = {split: len(env.tasks(split)) for split in ("train", "dev", "seen", "unseen", "paper")}
    assert sizes == {"train": 4408, "dev": 158, "seen": 500, "unseen": 968, "paper": 500}
    env.reset(options={"task": env.tasks("paper")[0].id})
    assert env.clickables() == ("search",)
    with pytest.warns(UserWarning, match="13 human goals"):
        human = WebShopEnv(shared_data / "webshop", goals="human")
    assert len(human.tasks("train")) > 5
    with pytest.raises(SeedbenchError, match="500 goals"):
        human.tasks("paper")


def test_the_oracle_reaches_what_the_published_thousand_allow(shared_data: Path) -> None:
    """Of every 40th goal: 1.0, or the most that any of the thousand products can score."""
    env = WebShopEnv(shared_data / "webshop")
    reached = []
    for split in ("train", "dev", "seen", "unseen"):
        for task in env.tasks(split)[::40]:
            env.reset(options={"task": task.id})
            _, reward, terminated, _, _ = buy(env)
            assert terminated and reward == env.reachable(task.id)
            reached.append(reward)
            if reward < 1:
                assert reward == most_of_all(env, env.dataset.goal(task.id)), task.id
    assert sum(r == 1 for r in reached) / len(reached) > 0.9 and min(reached) >= 0.6


def most_of_all(env: WebShopEnv, wanted: Goal) -> float:
    """The best score that any product of the catalogue can give, bought with its best options."""
    catalogue = env.catalogue
    return max(
        score(wanted, product, catalogue.price(asin), best_options(wanted, product, env.reward), env.tagger, env.reward)
        for asin in catalogue.ids()
        for product in [catalogue.product(asin)]
    )


# ------------------------------------------------------------------------------------------------ an episode
def test_an_episode(folder: Path) -> None:
    env = made(folder)
    task = env.tasks("seen")[0]
    observation, info = env.reset(options={"task": task.id})
    assert info["admissible"] == [f"search[{info['goal']}]"] and info["kind"] == task.kind and info["task"] == task.id
    assert observation == f"WebShop [SEP] Instruction: [SEP] {info['goal']} [SEP] Search"
    same, reward, terminated, truncated, info = env.step("click[search]")
    assert same == observation and not info["is_action_valid"] and "search[words]" in info["invalid_reason"]
    observation, reward, terminated, truncated, info = buy(env)
    assert (reward, terminated, truncated, info["won"], info["score"]) == (1.0, True, False, True, 1.0)
    assert info["admissible"] == [] and info["goal"] not in observation
    parts = info["reward_parts"]
    assert parts["reward"] == 1.0 and all(found for _, found in parts["options"]) and parts["rule"] == "webshop"
    json.dumps(info)
    with pytest.raises(SeedbenchError, match="reset"):
        env.step("search[again]")


def test_the_step_limit(folder: Path) -> None:
    for settings in ({}, {"buy_again": True}):
        env = made(folder, max_steps=2, **settings)
        env.reset(options={"task": env.tasks("train")[0].id})
        assert env.step("search[red]")[2:4] == (False, False)
        assert env.step("nothing")[1:4] == (0.0, False, True)
        with pytest.raises(SeedbenchError, match="reset"):
            env.step("search[red]")


def test_a_given_goal_and_its_prices(folder: Path) -> None:
    env = made(folder)
    first = env.dataset.goal(env.tasks("train")[0].id).to_record()
    _, info = env.reset(options={"goal": first, "prices": dict.fromkeys(env.catalogue.ids(), 10_000.0)})
    assert info["goal"] == first["instruction_text"] and info["task"].startswith("given-")
    *_, info = buy(env)
    assert info["score"] == 0.75 and not info["won"] and info["reward_parts"]["price"] == 10_000.0
    env.reset(options={"goal": first})
    assert buy(env)[1] == 1.0
    for bad in ({"goal": {}}, {"goal": first, "prices": [1]}, {"task": 3}):
        with pytest.raises(SeedbenchError):
            env.reset(options=bad)


def test_buying_again_is_for_those_who_ask(folder: Path) -> None:
    env = made(folder, buy_again=True, max_steps=40)
    env.reset(options={"task": env.tasks("train")[0].id})
    buy(env)
    plan = env.plan()
    assert plan is not None
    _, reward, terminated, _, info = env.step(f"search[{plan.query}]")
    assert (reward, terminated, info["score"]) == (0.0, False, 1.0)
    assert buy(env)[1:3] == (1.0, True)


@pytest.mark.parametrize("observation", ["text", "text_rich", "html", "json"])
def test_the_done_page_does_not_tell_the_goal(folder: Path, observation: str) -> None:
    for leak in (False, True):
        env = made(folder, observation=observation, leak_goal=leak)
        env.reset(options={"task": env.tasks("train")[0].id})
        wanted = env.dataset.goal(env.tasks("train")[0].id)
        env.step(f"search[{wanted.name}]")
        other = next(c for c in env.clickables() if c.startswith("b0") and c != wanted.asin.lower())
        env.step(f"click[{other}]")
        seen = env.step("click[buy now]")[0]
        assert (wanted.asin in seen) == (leak and observation == "html")


def test_settings_are_checked_and_part_of_the_digest(folder: Path) -> None:
    usual = made(folder)
    assert usual.digest() == made(folder).digest()
    changed = [{"max_steps": 3}, {"observation": "json"}, {"reward": "strict"}, {"search_magic": True}]
    changed += [{"buy_again": True}, {"leak_goal": True}]
    digests = {made(folder, **settings).digest() for settings in changed}
    assert len(digests | {usual.digest()}) == len(changed) + 1
    bad: list[dict[str, Any]] = [{"max_steps": 0}, {"observation": "braille"}, {"reward": "kind"}, {"goals": "none"}]
    for settings in [*bad, {"goals": "human"}, {"data": folder / "absent"}, {"tagger": "precomputed"}]:
        with pytest.raises(SeedbenchError):
            made(**{"folder": folder, **settings} if "data" not in settings else {"folder": settings["data"]})


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match="items_shuffle"):
        WebShopEnv(tmp_path)
    (tmp_path / "items_shuffle.json").write_text("[]")
    with pytest.raises(SeedbenchError, match="items_ins_v2"):
        WebShopEnv(tmp_path)


def test_the_catalogue_is_shared(folder: Path) -> None:
    assert made(folder).catalogue is made(folder, observation="html", reward="strict").catalogue


def test_threads_share_one_catalogue(tmp_path: Path) -> None:
    """Episodes in eight threads at once, from before the index is built, are those of one thread."""
    folder = write_folder(tmp_path / "threads")
    tasks = [t.id for t in made(folder).tasks("train")[:16]]

    def episode(task: str) -> list[str]:
        env = made(folder)
        seen = [env.reset(options={"task": task})[0]]
        for turn in range(10):
            observation, _, terminated, truncated, _ = env.step(env.sample(np.random.default_rng(stream(task, turn))))
            seen.append(observation)
            if terminated or truncated:
                break
        return seen

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(episode, tasks))
    assert together == [episode(task) for task in tasks]


def test_clones_share_nothing_that_changes(folder: Path) -> None:
    env = made(folder)
    env.reset(seed=1, options={"task": env.tasks("train")[0].id})
    env.step("search[shirt]")
    twin = env.clone()
    before = env.clone()._observe()
    for turn in range(8):
        if twin.step(twin.sample(np.random.default_rng(turn)))[2]:
            break
    assert env._observe() == before
    assert buy(env)[1] == 1.0


def test_magic_queries(folder: Path) -> None:
    task = made(folder).tasks("train")[0].id
    env, plain = made(folder, search_magic=True), made(folder)
    for e in (env, plain):
        e.reset(seed=3, options={"task": task})
    first = env.clone().step("search[<r>]")[0]
    assert env.clone().step("search[<r>]")[0] == first and "(Total results: 50)" in first
    assert "(Total results: 40)" in env.step("search[<c> garden]")[0]
    assert "(Total results: 0)" in plain.step("search[<c> garden]")[0]


# ------------------------------------------------------------------------------------------------ the oracle
def test_the_oracle_finds_its_way_from_anywhere(folder: Path) -> None:
    env = made(folder, max_steps=60)
    for number, task in enumerate(env.tasks("train")[:25]):
        env.reset(options={"task": task.id})
        for turn in range(12):
            action = env.sample(np.random.default_rng(stream(number, turn)))
            if action != "click[buy now]":
                env.step(action)
        _, reward, terminated, _, _ = buy(env)
        assert terminated and reward == env.reachable(task.id) == 1.0


def test_strict_goals_are_reached_too(folder: Path) -> None:
    env = made(folder, reward="strict")
    for task in env.tasks("seen")[:20]:
        env.reset(options={"task": task.id})
        assert buy(env)[1] == 1.0


def test_best_options() -> None:
    odd = products()[0]
    assert best_options(goal(goal_options={"color": "red", "size": "small"}), odd, "webshop") == {
        "color": "red",
        "size": "small",
    }
    assert best_options(goal(goal_options=("small", "black | white")), odd, "webshop") == {
        "size": "small",
        "color": "black | white",
    }
    shadowed = goal(goal_options={"size": "both", "color": "red"})  # `both` can only be chosen as the style
    found = best_options(shadowed, odd, "webshop")
    assert found == {"color": "red", "style": "both"}
    assert all(hit for _, hit in option_matches(shadowed, found))
    assert best_options(shadowed, odd, "strict") == {"color": "red"}
    assert best_options(goal(goal_options={"size": "large [wide]"}), odd, "webshop") == {}
