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
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from seedbench.core import SeedbenchError, stream
from seedbench.envs.webshop.families import ATTRIBUTES, AXES, CATEGORIES, ENDINGS, FAMILIES, SYLLABLES, Family, families
from seedbench.envs.webshop.goals import UNBOUNDED, UNSEEN_CATEGORY, Goal, split_of
from seedbench.envs.webshop.products import Product

SPLITS = ("train", "dev", "seen", "unseen")
PRODUCTS = 1200  # at least so many in a shop
GOALS = 3  # of one product, before its split is given another product
TRIES = 24  # rounds of goals for the same products
DRAWS = 8  # of a goal, of which one is taken
RIVALS = 40  # items of the same family to either side that a goal is compared with


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


class Shop(NamedTuple):
    """All items, and goals by split with categories in turn."""

    items: list[Item]
    goals: dict[str, list[Goal]]


class Draft(NamedTuple):
    """What distinguishes a product from those of its cluster; prices in whole dollars."""

    title: tuple[str, ...]  # attributes in the title
    features: tuple[str, ...]  # attributes that only the features page names
    options: Mapping[str, tuple[str, ...]]
    low: int
    high: int  # equal to low but for a price range


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
    names = _ids(seed)
    shop = Shop([], {})
    goals: dict[tuple[str, str], list[Goal]] = {}
    asked: set[object] = set()
    for category in CATEGORIES:
        least = -(-products // len(CATEGORIES))
        items = _stock(seed, level, category, names, wanted, least)
        shop.items.extend(items)
        rivals = _rivals(items)
        for split in SPLITS:
            here = [item for item in items if split_of(item.product.asin, category) == split]
            goals[split, category] = _goals(seed, level, here, rivals, wanted[split, category], asked)
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


def _ids(seed: int) -> Iterator[str]:
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
        price_text=" to ".join(f"${price}" for price in prices),
        options=dict(draft.options),
        attributes=draft.title + draft.features,
    )
    return Item(product, float(rng.randint(draft.low, draft.high)), tuple(family.noun.replace("-", " ").split()))


def _rivals(items: Sequence[Item]) -> dict[str, list[Item]]:
    """For each product id the items of its family that were made around the same time, its cluster among them."""
    of_family: dict[str, list[Item]] = {}
    for item in items:
        of_family.setdefault(item.product.query, []).append(item)
    return {
        item.product.asin: family[max(0, place - RIVALS) : place + RIVALS]
        for family in of_family.values()
        for place, item in enumerate(family)
    }


def _goals(
    seed: int, level: int, items: Sequence[Item], rivals: Mapping[str, Sequence[Item]], n: int, asked: set[object]
) -> list[Goal]:
    """n goals for the items, each once before any twice. `asked` holds what was asked before, by anyone.

    Of several goals that one may have for a product, the one is taken for which the fewest of the rivals that a search
    cannot tell apart are right, so that the first hit usually is not.
    """
    goals: list[Goal] = []
    for number in range(TRIES):
        for item in items:
            if len(goals) == n:
                return goals
            drawn = [_goal(seed, level, item, number * DRAWS + draw) for draw in range(DRAWS)]
            new = [goal for goal in drawn if _key(goal) not in asked]
            if new:
                chosen = min(new, key=lambda goal: _share_right(rivals[goal.asin], goal))
                asked.add(_key(chosen))
                goals.append(chosen)
    if len(goals) < n:
        raise SeedbenchError(f"Level {level} has too few different goals; generate fewer, or a higher level.")
    return goals


def _share_right(rivals: Sequence[Item], goal: Goal) -> float:
    """Of the rivals that offer the options and have in the title what the instruction says outright: who fulfils it."""
    said = set(goal.instruction_text.replace(",", " ").split()) & set(goal.attributes)
    alike = [r for r in rivals if said <= set(r.product.title.split()) and _offers(r, goal)]
    return sum(fulfils(r, goal) for r in alike) / len(alike) if alike else 1.0


def _offers(item: Item, goal: Goal) -> bool:
    return {value for values in item.product.options.values() for value in values}.issuperset(_values(goal))


def _key(goal: Goal) -> object:
    """What a goal asks for, whatever its words."""
    return goal.query, frozenset(goal.attributes), frozenset(_values(goal)), goal.price_upper


def _values(goal: Goal) -> Collection[str]:
    return goal.goal_options.values() if isinstance(goal.goal_options, Mapping) else goal.goal_options


def fulfils(item: Item, goal: Goal) -> bool:
    """Whether the item, with the right options clicked, is all that a goal for its family asks for."""
    affordable = item.price <= goal.price_upper
    return affordable and set(goal.attributes) <= set(item.product.attributes) and _offers(item, goal)


def _goal(seed: int, level: int, item: Item, number: int) -> Goal:
    product, settings = item.product, LEVELS[level]
    rng = random.Random(stream("webshop goal", seed, level, product.asin, number))
    family = next(f for f in families(product.category) if f.noun == product.query)
    attributes = _asked_attributes(rng, product, settings)
    chosen = {axis: rng.choice(values) for axis, values in product.options.items()}
    above = product.prices[-1] // 10 * 10 + 10
    upper = above if rng.random() < 0.7 else above + 10
    spoken = rng.random() < 0.5
    if spoken and rng.random() < 0.2:
        upper = UNBOUNDED
    noun = family.said if rng.random() < settings.renamed else family.noun
    hidden = [a for a in attributes if rng.random() < settings.hidden]
    thing = " ".join([*(a for a in attributes if a not in hidden), noun])
    if hidden:
        thing += f" that {' and '.join(ATTRIBUTES[a] for a in hidden)}"
    if spoken:
        article = "some" if family.some else "an" if thing[0] in "aeio" else "a"
        text = _spoken(rng, f"{article} {thing}", chosen, upper)
    else:
        wishes = [f"{axis}: {value}" for axis, value in sorted(chosen.items())]
        text = f"find me {thing} with {', and '.join([*wishes, f'price lower than {upper:.0f} dollars'])}"
    return Goal(
        asin=product.asin,
        category=product.category,
        query=product.query,
        name=product.title,
        product_category=product.product_category,
        instruction_text=text,
        attributes=tuple(attributes),
        price_upper=upper,
        goal_options=tuple(chosen.values()) if spoken else dict(sorted(chosen.items())),
    )


def _asked_attributes(rng: random.Random, product: Product, level: Level) -> list[str]:
    features = list(product.bullets[1:])
    title = [a for a in product.attributes if a not in features]
    rng.shuffle(title)
    rng.shuffle(features)
    asked: list[str] = []
    for _ in range(rng.randint(1, level.asked)):
        pool = features if features and (rng.random() < level.deep or (not title and level.deep)) else title
        if pool:
            asked.append(pool.pop())
    return asked


_SPOKEN = (  # how people ask, and how they add what it may cost
    ("i am looking for {thing} in {values}", ", under {upper} dollars"),
    ("i need {thing}, {values}", ". it should cost less than {upper} dollars"),
    ("can you get me {thing} in {values}", " for less than {upper} dollars"),
    ("i want {thing}. make it {values}", ", and below {upper} dollars"),
    ("please buy {thing}, {values}", ". i can spend {upper} dollars"),
)


def _spoken(rng: random.Random, thing: str, chosen: Mapping[str, str], upper: float) -> str:
    head, price = rng.choice(_SPOKEN)
    plain = ("color", "material")
    values = " and ".join(value if axis in plain else f"{value} {axis}" for axis, value in chosen.items())
    return head.format(thing=thing, values=values) + ("" if upper == UNBOUNDED else price.format(upper=f"{upper:.0f}"))
