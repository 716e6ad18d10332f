"""Products of our own making, cluster by cluster: a pure function of (seed, level, category, index).

A cluster is some products of one family that are near misses of each other. They differ in an attribute of the title,
in one that only the features page names, in an option's values, or in a price beyond the bound of a goal. Words are in
`families`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from seedbench.core import stream
from seedbench.envs.webshop.families import AXES, ENDINGS, FAMILIES, SYLLABLES, Family, families
from seedbench.envs.webshop.products import Product


class Level(NamedTuple):
    """How hard a shop is."""

    near: int  # near misses in a cluster beside each product
    axes: int  # options of a product, at most
    values: int  # values of an option, at most
    asked: int  # attributes in a goal, at most
    deep: float  # share of the attributes asked for that only the features page names, where there are both
    hidden: float  # share of the attributes asked for that the instruction paraphrases
    renamed: float  # share of the instructions that call the thing by another name than the shop


LEVELS = {
    1: Level(3, 1, 2, 1, 0.0, 0.0, 0.0),
    2: Level(5, 2, 3, 2, 0.4, 0.5, 0.0),
    3: Level(7, 3, 4, 3, 0.5, 0.75, 0.5),
    4: Level(9, 3, 6, 4, 0.5, 1.0, 1.0),
}
CHANGES = ("price", "feature", "title", "price", "option")  # in what a near miss differs, in turn


class Item(NamedTuple):
    """A product, what it costs in dollars within its range, and the nouns of its title for the type reward."""

    product: Product
    price: float
    nouns: tuple[str, ...]


class Draft(NamedTuple):
    """What distinguishes a product from those of its cluster; prices in whole dollars."""

    title: tuple[str, ...]  # attributes in the title
    features: tuple[str, ...]  # attributes that only the features page names
    options: Mapping[str, tuple[str, ...]]
    low: int
    high: int  # equal to low but for a price range


def ids(seed: int) -> Iterator[str]:
    """Product ids without end, none a word of the shop: two syllables each, then three, in an order of the seed's."""
    words = {word for family in FAMILIES for text in (family.noun, family.said, *family.uses) for word in text.split()}
    for length in itertools.count(2):
        numbers = list(range(len(SYLLABLES) ** length))
        random.Random(stream("webshop ids", seed, length)).shuffle(numbers)
        for number in numbers:
            name = ""
            for _ in range(length):
                number, syllable = divmod(number, len(SYLLABLES))
                name += SYLLABLES[syllable]
            if name not in words:
                yield name


def cluster(seed: int, level: int, category: str, index: int, names: Iterator[str]) -> list[Item]:
    """One cluster of a category: families in turn. `names` gives each product its id."""
    rng = random.Random(stream("webshop cluster", seed, level, category, index))
    here = families(category)
    family, settings = here[index % len(here)], LEVELS[level]
    drafts = [_draft(rng, family, settings)]
    first = rng.randrange(len(CHANGES))
    while len(drafts) <= settings.near:
        change = CHANGES[(first + len(drafts)) % len(CHANGES)]
        drafts.append(_near_miss(rng, family, drafts[0], change))
    rng.shuffle(drafts)
    brands = rng.sample([a + b for a in SYLLABLES for b in ENDINGS], len(drafts))
    return [_item(rng, family, draft, brand, next(names)) for draft, brand in zip(drafts, brands, strict=True)]


def _draft(rng: random.Random, family: Family, level: Level) -> Draft:
    in_title = rng.choice((1, 2))
    attributes = rng.sample(family.attributes, in_title + rng.choice((1, 2)))
    options = {}
    for axis in family.axes[: rng.randint(1, level.axes)]:
        values = AXES[axis].split()
        options[axis] = _some(rng, values, min(level.values, len(values) - 1))
    low = rng.randint(family.low, family.high)
    return Draft(tuple(attributes[:in_title]), tuple(attributes[in_title:]), options, low, _range_end(rng, low))


def _some(rng: random.Random, values: Sequence[str], n: int) -> tuple[str, ...]:
    """n of the values, or at times one fewer, in their order."""
    n = max(2, n - (rng.random() < 0.3))
    kept = set(rng.sample(values, n))
    return tuple(v for v in values if v in kept)


def _range_end(rng: random.Random, low: int) -> int:
    """The upper end of a price range within the same ten dollars; mostly the price itself."""
    return rng.randint(low, low // 10 * 10 + 9) if rng.random() < 0.12 else low


def _near_miss(rng: random.Random, family: Family, base: Draft, change: str) -> Draft:
    """A product that differs from `base` in one respect, its price but for that case within the same ten dollars."""
    ten = base.low // 10 * 10
    low = rng.randint(max(ten, family.low), ten + 9)
    if change == "price":  # beyond either bound that a goal for the base may have
        low = rng.randint(ten + 21, ten + 29)
    draft = base._replace(low=low, high=_range_end(rng, low))
    others = [a for a in family.attributes if a not in base.title + base.features]
    if change == "title":
        return draft._replace(title=_swap(rng, base.title, others))
    if change == "feature":
        return draft._replace(features=_swap(rng, base.features, others))
    if change == "option":
        axis = rng.choice(sorted(base.options))
        order = AXES[axis].split()
        new = _swap(rng, base.options[axis], [v for v in order if v not in base.options[axis]])
        return draft._replace(options={**base.options, axis: tuple(sorted(new, key=order.index))})
    return draft


def _swap(rng: random.Random, values: tuple[str, ...], others: Sequence[str]) -> tuple[str, ...]:
    """The values with one of them replaced."""
    place = rng.randrange(len(values))
    return (*values[:place], rng.choice(others), *values[place + 1 :])


def _item(rng: random.Random, family: Family, draft: Draft, brand: str, asin: str) -> Item:
    use = rng.choice(family.uses)
    prices = (float(draft.low),) if draft.low == draft.high else (float(draft.low), float(draft.high))
    product = Product(
        asin=asin,
        title=" ".join((brand, *draft.title, family.noun)),
        description=f"{family.noun} by {brand} for {use}.",
        bullets=(f"for {use}", *draft.features),
        category=family.category,
        query=family.noun,
        product_category=family.product_category,
        prices=prices,
        price_text=price_text(prices),
        options=dict(draft.options),
        attributes=draft.title + draft.features,
    )
    return Item(product, float(rng.randint(draft.low, draft.high)), tuple(family.noun.replace("-", " ").split()))


def price_text(prices: Sequence[float]) -> str:
    """A price or a price range as the original's pages show it."""
    return " to ".join(f"${price}" for price in prices)
