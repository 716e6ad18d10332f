"""The score of a purchase, as the original computes it, and every part of it.

score = type * (attributes found + options found + price within bound) / (attributes + options + 1)

"webshop" keeps the original's leniency on options: a value is replaced by the first colour word that occurs anywhere
in it ("standard" becomes "tan"), and values match when their token sets are alike ("8" matches "8 wide"). "strict"
wants the goal's own values, under the goal's own option names where it has names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.goals import Goal
from seedbench.envs.webshop.nouns import Tagger
from seedbench.envs.webshop.products import Product

Rule = Literal["webshop", "strict"]
RULES: tuple[Rule, ...] = ("webshop", "strict")
ALIKE = 85  # two texts match when their token set ratio, rounded, is above this

_COLOUR_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLOURS = tuple(_COLOUR_WORDS.split())  # in the original's order, which decides


@dataclass(frozen=True, slots=True)
class RewardParts:
    """A score and all that it is made of. `attributes` and `options` pair each wish with what fulfilled it, or ""."""

    reward: float
    rule: str
    r_type: float
    query_match: bool
    category_match: bool
    title_score: float
    attributes: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    price: float  # dollars
    price_upper: float
    r_price: bool

    def original_info(self) -> dict[str, Any]:
        """The parts under the names that the original gives them."""
        attributes, options = len(self.attributes), len(self.options)
        total = attributes + options + 1
        info = {
            "r_type": self.r_type,
            "r_att": _hits(self.attributes) / attributes if attributes else 0.0,
            "w_att": attributes / total,
            "query_match": self.query_match,
            "category_match": self.category_match,
            "title_score": self.title_score,
            "r_price": self.r_price,
            "w_price": 1 / total,
        }
        if options:
            info |= {"r_option": _hits(self.options) / options, "w_option": options / total}
        return info


def score(
    goal: Goal, product: Product, price: float, chosen: Mapping[str, str], tagger: Tagger, rule: Rule = "webshop"
) -> float:
    """The score in [0, 1] of buying `product` at `price` dollars with the options `chosen` (name -> value)."""
    return explain_reward(goal, product, price, chosen, tagger, rule).reward


def explain_reward(
    goal: Goal, product: Product, price: float, chosen: Mapping[str, str], tagger: Tagger, rule: Rule = "webshop"
) -> RewardParts:
    """The score and its parts. Raises SeedbenchError for an unknown rule."""
    if rule not in RULES:
        raise SeedbenchError(f"There is no reward {rule!r}; choose webshop or strict.")
    r_type, query_match, category_match, title_score = type_reward(goal, product, tagger)
    attributes = attribute_matches(goal, product)
    options = option_matches(goal, chosen) if rule == "webshop" else strict_option_matches(goal, chosen)
    r_price = price <= goal.price_upper
    wishes = len(attributes) + len(options) + 1
    reward = (_hits(attributes) + _hits(options) + r_price) / wishes * r_type
    return RewardParts(
        reward,
        rule,
        r_type,
        query_match,
        category_match,
        title_score,
        attributes,
        options,
        price,
        goal.price_upper,
        r_price,
    )


def _hits(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _, found in pairs if found)


def type_reward(goal: Goal, product: Product, tagger: Tagger) -> tuple[float, bool, bool, float]:
    """Is it the kind of thing that was asked for? The factor, and the query, category and title comparisons."""
    wanted = tagger.nouns(goal.name)
    shared = set(tagger.nouns(product.title)) & set(wanted)
    title_score = len(shared) / len(wanted) if wanted else 0.2
    query_match = product.query == goal.query
    category_match = len(_parts(product.product_category) & _parts(goal.product_category)) >= 2
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score == 0:
        r_type = 0.0
    elif title_score < 0.1:
        r_type = 0.1
    return r_type, query_match, category_match, title_score


def _parts(product_category: str) -> set[str]:
    return {part.strip() for part in product_category.split("›")}


def attribute_matches(goal: Goal, product: Product) -> tuple[tuple[str, str], ...]:
    """Each wanted attribute with the product's attribute that is like it, or the text that contains it, or ""."""
    texts = {
        "title": product.title.lower(),
        "features": " ".join(product.bullets).lower(),
        "description": product.description.lower(),
    }
    found = []
    for wanted in goal.attributes:
        like = next((own for own in product.attributes if alike(own, wanted)), None)
        place = next((f"in the {name}" for name, text in texts.items() if wanted in text), "")
        found.append((wanted, place if like is None else f"attribute {like}"))
    return tuple(found)


def option_matches(goal: Goal, chosen: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each wanted option with the chosen value that the original takes for it, or ""."""
    bought = [(value, normalize_colour(value)) for value in chosen.values()]
    found = []
    for name, wanted in wanted_options(goal):
        text = wanted_text(name, wanted)
        match = next((value for value, colour in bought if alike(colour, text)), None)
        found.append((f"{name}: {wanted}" if name else wanted, "" if match is None else f"chosen {match}"))
    return tuple(found)


def strict_option_matches(goal: Goal, chosen: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each wanted option with the chosen value that is the same but for case and spaces, or ""."""
    found = []
    for name, wanted in wanted_options(goal):
        values = [chosen[name]] if name in chosen else [] if name else list(chosen.values())
        match = next((value for value in values if _plain(value) == _plain(wanted)), None)
        found.append((f"{name}: {wanted}" if name else wanted, "" if match is None else f"chosen {match}"))
    return tuple(found)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def wanted_options(goal: Goal) -> list[tuple[str, str]]:
    """(name, value) of each wanted option; the name is "" where the goal has values alone."""
    options = goal.goal_options
    return list(options.items()) if isinstance(options, Mapping) else [("", value) for value in options]


def wanted_text(name: str, value: str) -> str:
    """A wanted option as the original compares it.

    A pair of name and value is compared as Python prints it, unless one of the two is exactly a colour.
    """
    if not name:
        return normalize_colour(value)
    return next((c for c in COLOURS if c in (name, value)), str((name, value)))


def normalize_colour(value: str) -> str:
    """The first colour of the list that is anywhere in the value, or the value itself."""
    return next((colour for colour in COLOURS if colour in value), value)


def alike(a: str, b: str) -> bool:
    """Whether the original takes two texts for the same: thefuzz's token set ratio above 85."""
    token_set_ratio, plain = _fuzzy()
    a, b = plain(a), plain(b)
    return bool(a and b) and round(token_set_ratio(a, b)) > ALIKE


@cache
def _fuzzy() -> tuple[Callable[[str, str], float], Callable[[str], str]]:
    """token_set_ratio, and the processing before it: lower case, a blank for what is neither letter nor digit."""
    try:
        from rapidfuzz.fuzz import token_set_ratio
        from rapidfuzz.utils import default_process
    except ModuleNotFoundError as error:
        raise SeedbenchError("WebShop scores need rapidfuzz: pip install -e '.[webshop]'.") from error
    return token_set_ratio, default_process
