"""Goals: the original's, draw for draw, and ours, frozen by name."""

from __future__ import annotations

import json
import lzma
import random
from collections import Counter
from pathlib import Path

import pytest

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.goals import (
    UNBOUNDED,
    Goal,
    compat_goals,
    compat_prices,
    draw_bound,
    frozen_goals,
    frozen_prices,
    goal_ids,
    permutation,
    split_goals,
)
from seedbench.envs.webshop.products import Product, preprocess, read_json, read_products
from tests.webshop_shop import goal, products, record, values

GOLDEN_SEED = 12345  # found by trying seeds against the first drawn price of the captured run
# Where the thirteen human goals of the first 1000 products stand in the original's order.
SHUFFLED = [4999, 3621, 4517, 5624, 6682, 9380, 4058, 2543, 1195, 7902, 9122, 10170, 3018]


@pytest.fixture(scope="module")
def published(shared_data: Path) -> list[Product]:
    folder = shared_data / "webshop"
    return read_products(
        folder / "items_shuffle_1000.json.xz", folder / "items_ins_v2_1000.json", folder / "items_human_ins.json"
    )


def test_the_permutation_is_the_original_s() -> None:
    order = permutation(12087)
    assert [order[i] for i in SHUFFLED] == list(range(13))
    assert sorted(order) == list(range(12087))


def test_human_goals_stand_where_the_permutation_says(shared_data: Path, published: list[Product]) -> None:
    texts = read_json(shared_data / "webshop" / "human_goal_texts.json.xz")
    goals = compat_goals(published, {p.asin: 1000.0 for p in published}, random.Random(0), "human")
    assert len(goals) == 13
    ours = [g.instruction_text.replace("'", "") for g in goals]  # the published texts lost their apostrophes
    assert [texts[i] for i in SHUFFLED] == ours


def test_golden_goals_and_prices(shared_data: Path, published: list[Product]) -> None:
    """All 6,910 goals of one run of the original: texts, bounds, weights, order; and its 1,000 prices."""
    with lzma.open(shared_data / "webshop" / "golden_goals.json.xz") as file:
        golden = json.load(file)
    rng = random.Random(GOLDEN_SEED)
    prices = compat_prices(published, rng)
    assert prices == golden["prices"]
    goals = compat_goals(published, prices, rng, "synthetic")
    ours = [goals[i] for i in permutation(len(goals))]
    assert len(ours) == 6910
    assert ours == [Goal.from_record(record) for record in golden["goals"]]


def test_price_bounds() -> None:
    rng = random.Random(0)
    drawn = Counter(draw_bound(15.0, rng)[0] for _ in range(6000))
    assert set(drawn) == {30.0, 40.0, 50.0}
    assert all(abs(drawn[u] / 6000 - p) < 0.03 for u, p in ((30.0, 1 / 6), (40.0, 2 / 6), (50.0, 3 / 6)))
    assert draw_bound(10.0, rng)[0] >= 30.0, "a ten that equals the price is no candidate"
    assert draw_bound(975.0, rng) == (990.0, ", and price lower than 990.00 dollars")
    assert draw_bound(980.0, rng) == draw_bound(5000.0, rng) == (UNBOUNDED, "")


def test_synthetic_goals_by_hand() -> None:
    options = {"Size": values("S", "L"), "Color": values("Red")}
    known = {
        "B1": {"attributes": ["a"], "instruction": "Find me a b", "instruction_attributes": ["a", "b"]},
        "B2": {"attributes": ["a"], "instruction": "Find me a", "instruction_attributes": ["a"]},
        "B3": {"attributes": ["a"]},
    }
    raw = [record("B1", "x", customization_options=options), record("B2", "y", pricing="$985"), record("B3", "z")]
    found = list(preprocess(raw, known, {}))
    first, second, third = frozen_goals(found, frozen_prices(found), "synthetic")
    bound = f", and price lower than {first.price_upper:.2f} dollars"
    assert first.instruction_text == "Find me a b with color: red, and size: s" + bound
    assert second.instruction_text == "Find me a b with color: red, and size: l" + bound
    assert third.instruction_text == "Find me a" and third.price_upper == UNBOUNDED
    assert first.goal_options == {"color": "red", "size": "s"}
    assert [g.weight for g in (first, second, third)] == pytest.approx([(1 / 3 + 1 / 2) / 2] * 2 + [1 / 3])


def test_human_goals_by_hand() -> None:
    (only,) = frozen_goals(products(), frozen_prices(products()), "human")
    assert only.instruction_text.startswith("a plain one, and price lower than 1")
    assert only.goal_options == ("red",) and only.attributes == ("plain",) and only.asin == "B00000PLA1"


def test_frozen_draws_do_not_depend_on_what_else_is_loaded() -> None:
    found = products()
    prices = frozen_prices(found)
    assert frozen_prices(found[::-1]) == prices and 8.98 <= prices["B00000ODD1"] <= 11.99
    whole = {g.instruction_text for g in frozen_goals(found, prices, "synthetic")}
    assert whole == {g.instruction_text for g in frozen_goals(found[:1], prices, "synthetic")}
    assert prices["B00000ODD1"] == pytest.approx(10.71985, abs=1e-5), "frozen: this figure must never change"


def test_ids_are_stable_and_distinct(published: list[Product]) -> None:
    prices = frozen_prices(published)
    goals = frozen_goals(published, prices, "synthetic")
    ids = goal_ids(goals, "synthetic")
    assert len(set(ids)) == len(ids) == 6910
    cheaper = frozen_goals(published, dict.fromkeys(prices, 1.0), "synthetic")
    assert goal_ids(cheaper, "synthetic") == ids, "price and bound are no part of an id"
    twice = [goal(), goal()]
    assert goal_ids(twice, "synthetic")[1] == goal_ids(twice, "synthetic")[0] + "-2"


def test_splits_are_disjoint_by_product(published: list[Product]) -> None:
    goals = frozen_goals(published, frozen_prices(published), "synthetic")
    splits = split_goals(goals, goal_ids(goals, "synthetic"))
    held = {name: {goals[i].asin for i in splits[name]} for name in ("train", "dev", "seen", "unseen")}
    names = list(held)
    assert all(not held[a] & held[b] for a in names for b in names if a < b)
    assert {goals[i].category for i in splits["unseen"]} == {"garden"}
    assert all(goals[i].category != "garden" for name in names[:3] for i in splits[name])
    assert len(splits["seen"]) == 500 and splits["paper"] == permutation(6910)[:500]
    assert len(splits["train"]) > 4000


def test_the_original_s_split_holds_the_same_products_on_both_sides(published: list[Product]) -> None:
    """Why ours are by product: 481 of the 500 test goals ask for a product that training goals ask for as well."""
    goals = frozen_goals(published, frozen_prices(published), "synthetic")
    asins = [goals[i].asin for i in permutation(len(goals))]
    assert sum(asin in set(asins[500:]) for asin in asins[:500]) == 481


def test_goal_records() -> None:
    assert Goal.from_record(json.loads(json.dumps(goal().to_record()))) == goal()
    for bad in (
        {},
        {**goal().to_record(), "attributes": 3},
        {**goal().to_record(), "price_upper": "x"},
        {"goal_options": []},
    ):
        with pytest.raises(SeedbenchError, match="no goal record"):
            Goal.from_record(bad)
