"""The embedded shop: frozen, disjoint, solvable, full of near misses; and the generator that made it."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.cli import main
from seedbench.core import SeedbenchError, View
from seedbench.envs import manifests
from seedbench.envs.webshop import families, files, instructions, mini, pages, shoppers
from seedbench.envs.webshop.catalogue import MemoryCatalogue
from seedbench.envs.webshop.data import open_dataset
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.generate import Shop, generate
from seedbench.envs.webshop.goals import UNBOUNDED, Goal, split_of
from seedbench.envs.webshop.nouns import Precomputed
from seedbench.envs.webshop.oracle import query_words
from seedbench.envs.webshop.reward import alike, normalize_colour, wanted_text
from seedbench.envs.webshop.stock import LEVELS
from seedbench.exam import make_env
from seedbench.indexes.analysis import analyze

HELD = ("train", "dev", "seen", "unseen")
PAPERS = ("seed", "verl-agent")
SHOPS = ("beauty", "electronics", "fashion", "grocery", "kitchen")


@pytest.fixture(scope="module")
def data() -> mini.Frozen:
    dataset = open_dataset("mini")
    assert isinstance(dataset, mini.Frozen)
    return dataset


def quiet(done: int, total: int) -> None:
    pass


def values(goal: Goal) -> list[str]:
    options = goal.goal_options
    return list(options.values() if isinstance(options, Mapping) else options)


def wish(goal: Goal) -> tuple[Any, ...]:
    return goal.query, frozenset(goal.attributes), frozenset(values(goal)), goal.price_upper


def message(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(SeedbenchError) as caught:
        call(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


# --- the exam paper


def test_sizes_ids_and_kinds(data: mini.Frozen) -> None:
    assert len(list(data.catalogue.ids())) >= 1000
    sizes = {split: len(data.tasks(split)) for split in HELD}
    assert sizes["train"] >= 1000 and sizes["dev"] >= 100 and sizes["seen"] >= 200 and sizes["unseen"] >= 200
    for split in HELD:
        tasks = data.tasks(split)
        kinds = Counter(task.kind for task in tasks)
        assert set(kinds) == ({"garden"} if split == "unseen" else set(SHOPS)) and len(set(kinds.values())) == 1
        assert all(re.fullmatch(rf"mini/{split}/{task.kind}-\d{{4}}", task.id) for task in tasks)
        assert len({task.kind for task in tasks[:5]}) == len(kinds)  # the first N are a fair sample
        assert data.pinned(split)
    assert "paper" in message(data.tasks, "paper")


def test_splits_are_disjoint_by_product_and_no_goal_is_asked_twice(data: mini.Frozen) -> None:
    goals = {split: [data.goal(task.id) for task in data.tasks(split)] for split in HELD}
    for split, asked in goals.items():
        assert {split_of(goal.asin, goal.category) for goal in asked} == {split}
        assert {goal.category == "garden" for goal in asked} == {split == "unseen"}
    wishes = [wish(goal) for asked in goals.values() for goal in asked]
    assert len(set(wishes)) == len(wishes)


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    """When the generator is changed on purpose, this test goes; the files stay."""
    mini.write_mini(tmp_path / "manifest.xz", tmp_path / "shop.xz")
    committed = (
        Path(manifests.__file__).with_name("webshop_mini.jsonl.xz"),
        Path(mini.__file__).with_name("mini.jsonl.xz"),
    )
    for new, old in zip((tmp_path / "manifest.xz", tmp_path / "shop.xz"), committed, strict=True):
        assert lzma.decompress(new.read_bytes()) == lzma.decompress(old.read_bytes())
    assert sum(path.stat().st_size for path in committed) < 300_000


def test_what_is_asked_for_stands_on_the_products_pages(data: mini.Frozen) -> None:
    env = WebShopEnv()
    for split in HELD:
        for task in data.tasks(split):
            goal = data.goal(task.id)
            product = data.catalogue.product(goal.asin)
            seen = f"{product.title} {' '.join(product.bullets)}"
            assert all(attribute in seen for attribute in goal.attributes) and goal.attributes
            offered = pages.choices(product).option_of
            assert all(value in offered for value in values(goal))
            assert product.prices[0] <= data.catalogue.price(goal.asin) <= product.prices[-1] < goal.price_upper
            assert goal.price_upper == UNBOUNDED or f"{goal.price_upper:.0f} dollars" in goal.instruction_text
    env.reset(options={"task": data.tasks("seen")[0].id})
    goal = data.goal(data.tasks("seen")[0].id)
    plan = env.plan()
    assert plan is not None and plan.asin == goal.asin
    env.step(f"search[{plan.query}]")
    env.step(f"click[{goal.asin}]")
    features = env.step("click[features]")[0]
    assert all(bullet in features for bullet in data.catalogue.product(goal.asin).bullets)


@pytest.mark.parametrize("reward", ["webshop", "strict"])
def test_the_oracle_wins_a_sample_of_every_split_and_kind(data: mini.Frozen, reward: str) -> None:
    """`seedbench data check webshop` and `seedbench eval --agent expert` play all of them."""
    env = WebShopEnv(reward=reward)
    for split in HELD:
        for task in data.tasks(split)[:: 7 if split == "train" else 2]:
            assert files.solved(env, task.id), task.id


def test_lenient_and_strict_rewards_agree(data: mini.Frozen) -> None:
    """No colour hides in a value, no value or attribute passes for another: the original's traps are not in mini."""
    for a, b in itertools.combinations(families.ATTRIBUTES, 2):
        assert not alike(a, b) and a not in b and b not in a
    for family in families.FAMILIES:
        values = [(axis, value) for axis in family.axes for value in families.AXES[axis].split()]
        assert len({value for _, value in values}) == len(values)
        for (axis, value), (other, chosen) in itertools.product(values, repeat=2):
            same = (axis, value) == (other, chosen)
            assert alike(normalize_colour(chosen), wanted_text(axis, value)) == same
            assert alike(normalize_colour(chosen), normalize_colour(value)) == same
        texts = (family.noun, *family.uses)
        assert not [a for a in families.ATTRIBUTES if any(a in text for text in texts)]


def test_paraphrases_share_no_search_term_with_the_shop(data: mini.Frozen) -> None:
    shop = {term for asin in data.catalogue.ids() for term in analyze(data.catalogue.product(asin).contents())}
    for said in families.ATTRIBUTES.values():
        assert not shop & set(analyze(said)), said


def test_nouns_are_at_hand_for_every_title(data: mini.Frozen) -> None:
    tagger = WebShopEnv().tagger
    assert isinstance(tagger, Precomputed)
    for asin in data.catalogue.ids():
        product = data.catalogue.product(asin)
        assert " ".join(tagger.nouns(product.title)) == product.query.replace("-", " ")


# --- how hard it is


def test_the_first_hit_is_usually_wrong(data: mini.Frozen) -> None:
    for split in HELD:
        tasks = data.tasks(split)
        assert shoppers.outcomes(data, tasks, "first hit")["all"].success < 0.02
        clicker, reader = (shoppers.outcomes(data, tasks, how)["all"] for how in ("clicker", "reader"))
        assert 0.2 < clicker.success < 0.4 and clicker.score < 0.85
        assert clicker.success < reader.success < 0.55 and reader.score < 0.9
        scholar = shoppers.outcomes(data, tasks, "scholar")["all"]
        assert 0.85 < scholar.success == pytest.approx(scholar.score)  # whatever it buys is right
    assert "clicker" in message(shoppers.outcomes, data, (), "nobody")


def test_every_goal_has_near_misses_and_most_have_some_that_a_search_cannot_tell(data: mini.Frozen) -> None:
    lookalikes, page = [], Counter[int]()
    for task in (*data.tasks("seen"), *data.tasks("unseen")):
        goal = data.goal(task.id)
        hits = list(data.catalogue.search(query_words(goal.instruction_text)))
        page[hits.index(goal.asin) // pages.PER_PAGE] += 1
        shown = [mini.Item(data.catalogue.product(a), data.catalogue.price(a), ()) for a in hits[: pages.PER_PAGE]]
        alikes = [i for i in shown if i.product.query == goal.query and not instructions.fulfils(i, goal)]
        lookalikes.append(len(alikes))
    assert min(lookalikes) >= 1 and statistics.mean(lookalikes) > 4
    assert page[0] / sum(page.values()) > 0.8 and max(page) <= 2


def test_a_prompt_with_history_stays_near_300_tokens(data: mini.Frozen) -> None:
    """Counted in words, marks, syllables of names, and the page's own signs as one each."""
    word = re.compile(r"\[SEP\]|\w+\[|\w+|[^\w\s]")
    names = set(data.catalogue.ids()) | {data.catalogue.product(a).title.split()[0] for a in data.catalogue.ids()}
    env, counts = WebShopEnv(), []
    for task in data.tasks("seen")[:60]:
        observation, info = env.reset(options={"task": task.id})
        history: list[tuple[str, str]] = []
        over = False
        while not over:
            view = View(info["goal"], observation, tuple(info["admissible"]), tuple(history))
            text = " ".join(m["content"] for m in env.PROMPT.render(view))
            counts.append(sum(len(w) // 2 if w in names else 1 for w in word.findall(text)))
            action = env.expert() or ""
            history.append((observation, action))
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
    assert statistics.mean(counts) < 340 and max(counts) < 520


def test_levels_grow_harder() -> None:
    success = []
    for level in sorted(LEVELS):
        shop = generate(0, level, {"train": 150}, products=600)
        success.append(_clicker(shop))
    assert success[0] > success[1] > success[-1] and success[0] > success[2]


def _clicker(shop: Shop) -> float:
    """The share of goals whose first hit is right, if the right options are clicked."""
    items = {item.product.asin: item for item in shop.items}
    catalogue = MemoryCatalogue([i.product for i in shop.items], {a: i.price for a, i in items.items()})
    bought = [(g, catalogue.search(query_words(g.instruction_text))[0]) for g in shop.goals["train"]]
    right = [items[a].product.query == g.query and instructions.fulfils(items[a], g) for g, a in bought]
    return sum(right) / len(right)


def test_the_lesson_tells_every_paraphrase_of_a_category(data: mini.Frozen) -> None:
    for category in families.CATEGORIES:
        lesson = families.lesson(category)
        for family in families.families(category):
            assert all(f"{families.ATTRIBUTES[a]}: {a}" in lesson for a in family.attributes)
    trained = {a for f in families.FAMILIES if f.category != "garden" for a in f.attributes}
    assert {a for f in families.families("garden") for a in f.attributes} <= trained


# --- the generator


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**9), level=st.sampled_from(sorted(LEVELS)))
def test_any_shop_can_be_solved(seed: int, level: int) -> None:
    sizes = {"train": 20, "dev": 5, "seen": 5, "unseen": 5}
    shop = generate(seed, level, sizes, products=150)
    assert {split: len(goals) for split, goals in shop.goals.items()} == sizes
    items = {item.product.asin: item for item in shop.items}
    assert len(items) == len(shop.items) >= 150
    for goal in itertools.chain.from_iterable(shop.goals.values()):
        assert instructions.fulfils(items[goal.asin], goal)
        assert items[goal.asin].product.prices[-1] < goal.price_upper
    for item in shop.items:
        assert len(item.product.asin) <= 10 and len(item.product.title.split()) <= 6
        assert len(set(item.product.attributes)) == len(item.product.attributes)
        assert all(len(values) >= 2 and len(set(values)) == len(values) for values in item.product.options.values())


def test_the_same_shop_in_any_process() -> None:
    code = (
        "from seedbench.envs.webshop.generate import generate; from seedbench.prompts import sha256_json\n"
        "from dataclasses import asdict; s = generate(3, 3, {'train': 40, 'unseen': 10}, products=120)\n"
        "goals = [g.to_record() for x in s.goals.values() for g in x]\n"
        "print(sha256_json([[[asdict(i.product), i.price, i.nouns] for i in s.items], goals]))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": h},
        ).stdout
        for h in ("0", "77")
    }
    assert len(said) == 1
    assert generate(3, 3, {"train": 5}, 60).items != generate(4, 3, {"train": 5}, 60).items


def test_what_cannot_be_generated_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "level 9" in message(generate, 0, 9, {})
    assert "paper" in message(generate, 0, 2, {"paper": 5})
    monkeypatch.setattr(instructions, "TRIES", 0)  # as if every goal had been asked before
    assert "too few" in message(generate, 0, 1, {"train": 5}, products=60)


# --- folders and damage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("shops") / "own"
    rows = files.generate(dest, quiet, seed=5, level=3, sizes={"seen": 10, "unseen": 4})
    assert [(row["split"], row["goals"]) for row in rows] == [("seen", 10), ("unseen", 4)]
    assert all(0 <= row[how] <= 1 for row in rows for how in shoppers.SHOPPERS)
    return dest


def test_a_generated_folder_is_checked_and_played(folder: Path, tmp_path: Path) -> None:
    rows = {row["split"]: row for row in files.check(str(folder), quiet)}
    assert rows["seen"]["solved"] == rows["seen"]["expected"] == 10 and not rows["seen"]["pinned"]
    assert rows["unseen"]["wrong"] == 0 and rows["train"]["expected"] == 0
    main(["eval", "--agent", "expert", "--env", "webshop", "--data", str(folder), "--out", str(tmp_path / "run")])
    (seen, unseen) = json.loads((tmp_path / "run" / "results.json").read_text())["results"]
    assert (seen["success"]["mean"], unseen["score"]["mean"], seen["pinned"]) == (1.0, 1.0, False)
    assert make_env("seedbench/WebShop-v0", data=str(folder)).digest() != WebShopEnv().digest()
    assert "holds a shop already" in message(files.generate, folder, quiet)
    assert "is no folder" in message(files.check, str(tmp_path / "nothing"), quiet)


def test_the_commands_say_what_they_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["data", "generate", "webshop", str(tmp_path / "new"), "--seen", "2"])
    out = capsys.readouterr().out
    assert all(how in out for how in shoppers.SHOPPERS) and files.GENERATED in out and "--split seen" in out
    main(["data", "check", "webshop", str(folder)])
    seen = next(line for line in capsys.readouterr().out.splitlines() if "seen" in line.split())
    assert [cell.strip() for cell in seen.split("│")[1:-1]] == ["seen", "10", "10", "0", "0", "0", "False", "10"]


def test_published_protocols() -> None:
    agreed = [(p.max_steps, p.history, p.sampling.temperature) for p in map(WebShopEnv.PRESETS.get, PAPERS) if p]
    assert agreed == [(15, 2, 0.4)] * 2 and set(WebShopEnv.PRESETS) == {"seedbench", *PAPERS}


def test_score_and_success_by_category(tmp_path: Path) -> None:
    out = tmp_path / "run"
    main(["eval", "--agent", "random", "--env", "webshop", "--split", "seen", "--limit", "40", "--out", str(out)])
    (seen,) = json.loads((out / "results.json").read_text())["results"]
    assert set(seen["by_kind"]) == set(seen["metrics"]["score_by_kind"]) == set(SHOPS)
    assert seen["success"]["mean"] < 0.1 and 0 < seen["score"]["mean"] < 0.5


@pytest.mark.parametrize("damage", ["torn", "item", "price", "goal", "no goal", "not json"])
def test_a_damaged_shop_is_refused(folder: Path, tmp_path: Path, damage: str) -> None:
    raw = (folder / mini.SHOP).read_bytes()
    lines = [json.loads(line) for line in lzma.decompress(raw).splitlines()]
    if damage == "item":
        lines[0][1]["title"] += " x"
    if damage == "price":
        lines[0][1]["price"] += 1
    if damage == "goal":
        lines[-1][2]["price_upper"] += 10
    if damage == "no goal":
        lines.pop()
    packed = lzma.compress("\n".join(map(json.dumps, lines)).encode())
    packed = {"torn": raw[:-40], "not json": lzma.compress(b"{")}.get(damage, packed)
    manifest = manifests.parse((folder / mini.LISTING).read_bytes())
    if damage in ("goal", "no goal"):
        broken = mini.Frozen(manifest, packed, "the shop", committed=False)
        message(broken.goal, broken.tasks("unseen")[-1].id)
    else:
        message(mini.Frozen, manifest, packed, "the shop", committed=False)
    (tmp_path / mini.SHOP).write_bytes(packed)
    assert "generate it again" in message(mini.open_generated, tmp_path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_it_starts_at_once_and_stays_small() -> None:
    code = (
        "import re, time; import gymnasium, seedbench\n"
        "env = gymnasium.make('seedbench/WebShop-v0', disable_env_checker=True).unwrapped; env.reset(seed=1)\n"
        "start = time.process_time(); env.step('search[waterproof backpack]')\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
        "print(start, int(peak[1]) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    start, megabytes = map(float, done.stdout.split())
    assert start < 1 and megabytes < 150


@pytest.mark.parametrize("size", [0, -5])
def test_sizes_are_checked_before_anything_is_written(tmp_path: Path, size: int) -> None:
    with pytest.raises(SeedbenchError, match=f"seen is to hold {size} goals"):
        files.generate(tmp_path / "shop", lambda done, total: None, sizes={"seen": size})
    assert not (tmp_path / "shop").exists()


def test_a_base_install_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seedbench.envs.webshop.env.find_spec", lambda name: None)
    assert "pip install -e '.[webshop]'" in message(WebShopEnv)
    main(["data", "list"])
    said = capsys.readouterr().out
    assert "ALFWorld" in said and ".[webshop]" in said.replace("\n", "")
