"""Goals: what a shopper is told to buy, from what the product files hold.

The original draws prices and price bounds anew in each process, so its instructions and scores drift from run to run.
Here they are drawn once, from a stream of the product's (or instruction's) own name: `frozen_prices`, `frozen_goals`.
The original's order of draws is kept as `compat_prices` and `compat_goals`, for comparison with one of its runs.
"""

from __future__ import annotations

import itertools
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from seedbench.core import SeedbenchError, stream
from seedbench.envs.webshop.products import Instruction, Product
from seedbench.prompts import sha256_json

Kind = Literal["synthetic", "human"]
UNBOUNDED = 1_000_000.0  # dollars: the bound of a goal whose instruction names none
SHUFFLE_SEED = 233  # the original's, fixed, so that its goal numbers mean the same everywhere
UNSEEN_CATEGORY = "garden"
SPLIT_SIZE = 500  # goals of dev and of seen, at most
PAPER_SIZE = 500


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be bought. `goal_options` is name -> value (synthetic) or values alone (human)."""

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: tuple[str, ...]
    price_upper: float  # dollars
    goal_options: Mapping[str, str] | tuple[str, ...]
    weight: float = 1.0  # in the original's weighted draw of goals

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Goal:
        """A goal from JSON, as the original's or `to_record`'s. Raises SeedbenchError for another shape."""
        try:
            options = record["goal_options"]
            known = {k: record[k] for k in cls.__dataclass_fields__ if k in record}
            known["attributes"] = tuple(record["attributes"])
            known["goal_options"] = dict(options) if isinstance(options, Mapping) else tuple(options)
            known["price_upper"] = float(record["price_upper"])
            return cls(**known)
        except (KeyError, TypeError, ValueError) as error:
            raise SeedbenchError(f"This is no goal record ({type(error).__name__}: {error}).") from error

    def to_record(self) -> dict[str, Any]:
        """The goal as plain JSON."""
        return asdict(self)


def draw_price(product: Product, rng: random.Random) -> float:
    """What the product costs in dollars: its price, or a draw from its range."""
    return product.prices[0] if len(product.prices) == 1 else rng.uniform(*product.prices)


def draw_bound(price: float, rng: random.Random) -> tuple[float, str]:
    """An upper bound of the price in dollars, and its words: the larger of two of the next four tens above it."""
    above = int(price // 10) * 10 + 10
    candidates = [float(ten) for ten in range(above, 1000, 10)[:4]]
    if len(candidates) < 2:
        return UNBOUNDED, ""
    upper = max(rng.sample(candidates, 2))
    return upper, f", and price lower than {upper:.2f} dollars"


def compat_prices(products: Iterable[Product], rng: random.Random) -> dict[str, float]:
    """Prices by asin in the original's order of draws; `rng` goes on to `compat_goals`."""
    return {p.asin: draw_price(p, rng) for p in products}


def compat_goals(
    products: Iterable[Product], prices: Mapping[str, float], rng: random.Random, kind: Kind
) -> list[Goal]:
    """Goals in file order, bounds drawn from the one `rng` as the original does."""
    return _goals(products, prices, kind, lambda *name: rng)


def frozen_prices(products: Iterable[Product]) -> dict[str, float]:
    """Prices by asin, each drawn from its product's own stream: the same for ever, whatever else is loaded."""
    return {p.asin: frozen_price(p) for p in products}


def frozen_goals(products: Iterable[Product], prices: Mapping[str, float], kind: Kind) -> list[Goal]:
    """Goals in file order, each bound drawn from the goal's own stream."""
    return _goals(products, prices, kind, _own_stream)


def frozen_goals_of(product: Product, price: float, kind: Kind) -> Iterator[Goal]:
    """The goals of one product in order, weights left at 1."""
    return _goals_of(product, price, kind, _own_stream)


def frozen_goal(product: Product, price: float, kind: Kind, number: int, weight: float) -> Goal:
    """Goal `number` (from 0) of a product, without making the others."""
    (goal,) = _goals_of(product, price, kind, _own_stream, number, number + 1)
    return goal if weight == goal.weight else replace(goal, weight=weight)


def frozen_price(product: Product) -> float:
    """The product's price in dollars, drawn from its own stream."""
    return draw_price(product, _own_stream("price", product.asin))


def _own_stream(*name: str) -> random.Random:
    return random.Random(stream("seedbench/WebShop-v0", *name))


def _goals(
    products: Iterable[Product],
    prices: Mapping[str, float],
    kind: Kind,
    rng_for: Callable[..., random.Random],
) -> list[Goal]:
    goals = [goal for product in products for goal in _goals_of(product, prices[product.asin], kind, rng_for)]
    return goals if kind == "human" else _weighted(goals)


def _goals_of(
    product: Product,
    price: float,
    kind: Kind,
    rng_for: Callable[..., random.Random],
    first: int = 0,
    last: int | None = None,
) -> Iterator[Goal]:
    """Goals number `first` to `last` of one product, weights left at 1."""
    if kind == "human":
        for said in itertools.islice((said for said in product.human if said.attributes), first, last):
            yield _human_goal(product, said, draw_bound(price, rng_for("bound", product.asin, said.text)))
    elif product.instruction is not None:
        bound = draw_bound(price, rng_for("bound", product.asin))
        names = sorted(product.options)
        combinations = itertools.product(*(product.options[name] for name in names))
        for values in itertools.islice(combinations, first, last):
            yield _synthetic_goal(product, dict(zip(names, values, strict=True)), bound)


def _human_goal(product: Product, said: Instruction, bound: tuple[float, str]) -> Goal:
    return Goal(
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        said.text.strip(".") + bound[1],
        said.attributes,
        bound[0],
        said.options,
    )


def _synthetic_goal(product: Product, options: dict[str, str], bound: tuple[float, str]) -> Goal:
    chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
    return Goal(
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        f"{product.instruction}{' with ' + chosen if chosen else ''}{bound[1]}",
        product.instruction_attributes,
        bound[0],
        options,
    )


def _weighted(goals: list[Goal]) -> list[Goal]:
    """Goals with rare attributes weigh more: the mean over attributes of 1 / (goals that hold the attribute)."""
    count = Counter(a for goal in goals for a in goal.attributes)
    return [replace(g, weight=weight_of(g.attributes, count)) for g in goals]


def weight_of(attributes: Sequence[str], count: Mapping[str, int]) -> float:
    """The weight of a synthetic goal, where `count` says how many goals hold each attribute."""
    total = 0.0
    for attribute in attributes:  # not sum(): from Python 3.12 on it rounds otherwise, and a digest would differ
        total += 1 / count[attribute]
    return total / len(attributes) if attributes else 0.0


def permutation(n: int) -> list[int]:
    """The original's fixed order: its goal i is goal `permutation(n)[i]` of the file order."""
    return list(_shuffled(n))


def paper_goals(n: int) -> list[int]:
    """Goals 0 to 499 of the original's order, as numbers in file order: those that published results are of."""
    return list(_shuffled(n)[:PAPER_SIZE])


def _shuffled(n: int) -> array[int]:
    order = array("i", range(n))
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def goal_ids(goals: Sequence[Goal], kind: Kind) -> list[str]:
    """An id for each goal, of its asin and a digest of what is asked; the price bound is no part of it.

    `goals` are in file order, which decides who of several equal goals is called `-2`.
    """
    ids: list[str] = []
    times: Counter[str] = Counter()
    for goal in goals:
        asked = goal.instruction_text.partition(", and price lower than ")[0] if kind == "human" else ""
        options = goal.goal_options if isinstance(goal.goal_options, tuple) else dict(goal.goal_options)
        name = f"{goal.asin}-{sha256_json([kind, asked, goal.attributes, options])[:8]}"
        times[name] += 1
        ids.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return ids


def goals_fingerprint(ids: Iterable[str], goals: Iterable[Goal]) -> bytes:
    """Digest of one product's goals: what is asked, at which bound, under which id."""
    fields = ("instruction_text", "attributes", "price_upper", "goal_options")
    return bytes.fromhex(sha256_json([[i, *(getattr(g, f) for f in fields)] for i, g in zip(ids, goals, strict=True)]))


def split_goals(goals: Sequence[Goal], ids: Sequence[str]) -> dict[str, list[int]]:
    """Positions in `goals` by split: train, dev, seen and unseen, disjoint by product, and `paper` across them.

    `goals` are in file order. unseen is the category garden. Of the other products one fifth, by digest of the id, is
    held out: up to 500 of its goals are seen; a twentieth is dev, up to 500 goals; the rest is train. paper is 0-499 of
    the original's order.
    """
    found: dict[str, list[int]] = {"train": [], "dev": [], "seen": [], "unseen": []}
    for position, goal in enumerate(goals):
        found[split_of(goal.asin, goal.category)].append(position)
    for split in ("dev", "seen"):
        drawn = sorted(found[split], key=lambda position: stream("webshop-draw", ids[position]))
        found[split] = sorted(drawn[:SPLIT_SIZE])
    found["paper"] = paper_goals(len(goals))
    return found


def split_of(asin: str, category: str) -> str:
    """The split that all goals of a product belong to."""
    if category == UNSEEN_CATEGORY:
        return "unseen"
    part = stream("webshop-split", asin) % 100
    return "seen" if part < 20 else "dev" if part < 25 else "train"
