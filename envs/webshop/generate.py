"""A shop of our own making and what to buy in it: a pure function of (seed, level, sizes).

    shop = generate(seed=0, level=2, sizes={"train": 1200, "dev": 120, "seen": 240, "unseen": 240})
    shop.items, shop.goals["seen"]

Products come in clusters: one of them is what a goal asks for, the others are its near misses. They are of the same
family and differ in an attribute of the title, in one that only the features page names, in an option's values, or
in a price beyond the bound. Every attribute asked for stands on a page of the product, every option asked for can be
clicked, every bound lies above the whole price range: each goal can be reached with score 1.

The embedded `mini` set was made by this once and frozen (seedbench.envs.webshop.mini), so a change here changes no
exam. Words are in `families`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.families import CATEGORIES
from seedbench.envs.webshop.goals import UNSEEN_CATEGORY, Goal, split_of
from seedbench.envs.webshop.instructions import draw_goals, rivals_of
from seedbench.envs.webshop.stock import LEVELS, Item, cluster, ids

SPLITS = ("train", "dev", "seen", "unseen")
PRODUCTS = 1200  # at least so many in a shop
GOALS = 3  # of one product, before its split is given another product


class Shop(NamedTuple):
    """All items, and goals by split with categories in turn."""

    items: list[Item]
    goals: dict[str, list[Goal]]


def generate(seed: int, level: int, sizes: Mapping[str, int], products: int = PRODUCTS) -> Shop:
    """A shop with at least `products` items, and `sizes` goals by split, none of which asks the same as another.

    Splits are disjoint by product; `unseen` is the category garden, which the others do without. Raises SeedbenchError
    for an unknown level or split, and for more goals than the products can be asked for in different ways.
    """
    if level not in LEVELS:
        raise SeedbenchError(f"WebShop's generator has no level {level}; choose one of {', '.join(map(str, LEVELS))}.")
    if unknown := set(sizes) - set(SPLITS):
        raise SeedbenchError(f"WebShop goals are generated for {', '.join(SPLITS)}, not for {min(unknown)!r}.")
    wanted = _quotas(sizes)
    names = ids(seed)
    shop = Shop([], {})
    goals: dict[tuple[str, str], list[Goal]] = {}
    asked: set[object] = set()
    for category in CATEGORIES:
        least = -(-products // len(CATEGORIES))
        items = _stock(seed, level, category, names, wanted, least)
        shop.items.extend(items)
        rivals = rivals_of(items)
        for split in SPLITS:
            here = [item for item in items if split_of(item.product.asin, category) == split]
            goals[split, category] = draw_goals(seed, level, here, rivals, wanted[split, category], asked)
    for split in SPLITS:
        columns = itertools.zip_longest(*(goals[split, category] for category in CATEGORIES))
        shop.goals[split] = [goal for row in columns for goal in row if goal is not None]
    return shop


def _quotas(sizes: Mapping[str, int]) -> Counter[tuple[str, str]]:
    """Goals by (split, category): a split's size shared out evenly."""
    wanted: Counter[tuple[str, str]] = Counter()
    for split, size in sizes.items():
        held = [c for c in CATEGORIES if (c == UNSEEN_CATEGORY) == (split == "unseen")]
        for n in range(size):
            wanted[split, held[n % len(held)]] += 1
    return wanted


def _stock(
    seed: int, level: int, category: str, names: Iterator[str], wanted: Mapping[tuple[str, str], int], least: int
) -> list[Item]:
    """Items of one category, cluster by cluster, until every split has enough of them for its goals."""
    items: list[Item] = []
    supply: Counter[str] = Counter()
    for index in itertools.count():
        if len(items) >= least and all(GOALS * supply[split] >= wanted.get((split, category), 0) for split in SPLITS):
            return items
        for item in cluster(seed, level, category, index, names):
            items.append(item)
            supply[split_of(item.product.asin, category)] += 1
    raise AssertionError("unreachable")
