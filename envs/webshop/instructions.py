"""What shoppers ask for, and how they say it: goals for the products of a generated shop.

Half of the instructions are in the fixed form that the original calls synthetic, with options by name; half are worded
as people speak, with option values alone. Attributes are said outright or paraphrased (`families.ATTRIBUTES`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from seedbench.core import SeedbenchError, stream
from seedbench.envs.webshop.families import ATTRIBUTES, families
from seedbench.envs.webshop.goals import UNBOUNDED, Goal
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.stock import LEVELS, Item, Level

TRIES = 24  # rounds of goals for the same products
DRAWS = 8  # of a goal, of which one is taken
RIVALS = 40  # items of the same family to either side that a goal is compared with


def rivals_of(items: Sequence[Item]) -> dict[str, list[Item]]:
    """For each product id the items of its family that were made around the same time, its cluster among them."""
    of_family: dict[str, list[Item]] = {}
    for item in items:
        of_family.setdefault(item.product.query, []).append(item)
    return {
        item.product.asin: family[max(0, place - RIVALS) : place + RIVALS]
        for family in of_family.values()
        for place, item in enumerate(family)
    }


def draw_goals(
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
        article = "some" if family.some else "an" if thing[0] in "aeiou" else "a"
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
    ("could you get me {thing} in {values}", " for less than {upper} dollars"),
    ("i want {thing}. make it {values}", ", and below {upper} dollars"),
    ("please buy {thing}, {values}", ". i may spend {upper} dollars"),
)


def _spoken(rng: random.Random, thing: str, chosen: Mapping[str, str], upper: float) -> str:
    head, price = rng.choice(_SPOKEN)
    plain = ("color", "material")
    values = " and ".join(value if axis in plain else f"{value} {axis}" for axis, value in chosen.items())
    return head.format(thing=thing, values=values) + ("" if upper == UNBOUNDED else price.format(upper=f"{upper:.0f}"))
