"""What an episode of WebShop teaches, by rule: in whose words to search, what to check and choose, or what went wrong.

The facts are those of the task and of the pages that were seen; what is told is the shop's word for the thing and for
every wish that the instruction paraphrases. No product, no price and no number is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seedbench.core import Lesson, Trajectory
from seedbench.envs.webshop.catalogue import Catalogue
from seedbench.envs.webshop.families import ATTRIBUTES, FAMILIES
from seedbench.envs.webshop.goals import UNBOUNDED, Goal
from seedbench.envs.webshop.pages import Page, choices
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.reward import RewardParts, wanted_options

WISHES = 4  # attributes, and names of options, that a lesson tells
LONGEST_WISH = 30  # characters of one; mined attributes can be whole sentences


class Played(NamedTuple):
    """An episode as the shop saw it: the page after each action that was accepted, and the score of the purchase."""

    pages: Sequence[Page]
    parts: RewardParts | None


class Facts(NamedTuple):
    """What is asked for, in the shop's words; without anything that holds a digit."""

    thing: str
    attributes: tuple[str, ...]
    hidden: tuple[str, ...]  # of these, what only the features page of the right product says
    options: tuple[str, ...]  # names, such as color
    meant: tuple[tuple[str, str], ...]  # (what the instruction says, the shop's word)
    bounded: bool  # in price


def learn(trajectory: Trajectory, goal: Goal, played: Played, catalogue: Catalogue) -> Lesson | None:
    """The lesson of one episode. None for one that broke off or has no step."""
    if not trajectory.steps or trajectory.ended == "error":
        return None
    known = played.pages[-1].asin if trajectory.success else goal.asin
    facts = _facts(goal, catalogue.product(known) if known in catalogue else None)
    if trajectory.success:
        return Lesson(f"The right {facts.thing} was bought.", " ".join(_recipe(facts)))
    summary, warning = _mistake(trajectory, facts, goal, played, catalogue)
    return Lesson(summary, " ".join([warning, *_recipe(facts)]))


def _facts(goal: Goal, own: Product | None) -> Facts:
    """What `goal` asks for, where `own` is a product that fulfils it."""
    said = f" {goal.instruction_text.lower()} "
    attributes = _tellable(goal.attributes)
    title = own.title.lower() if own else said
    features = " ".join(own.bullets).lower() if own else ""
    thing = next(iter(_tellable([goal.query])), "product")
    meant = [(ATTRIBUTES[a], a) for a in attributes if a not in said and ATTRIBUTES.get(a, "\n") in said]
    meant += [(f.said, f.noun) for f in FAMILIES if f.noun == thing and f.said in said and thing not in said]
    return Facts(
        thing,
        attributes,
        tuple(a for a in attributes if a not in title and a in features),
        _tellable([name for name, _ in _named_options(goal, own)]),
        tuple(meant),
        goal.price_upper < UNBOUNDED,
    )


def _tellable(words: Sequence[str]) -> tuple[str, ...]:
    fit = (w.lower() for w in words if w and len(w) <= LONGEST_WISH and not any(c.isdigit() for c in w))
    return tuple(dict.fromkeys(fit))[:WISHES]


def _named_options(goal: Goal, product: Product | None) -> list[tuple[str, str]]:
    """(name, value) of each wanted option; where the goal has values alone, the name is the product's, or ""."""
    option_of = choices(product).option_of if product else {}
    return [(name or option_of.get(value.lower(), ""), value) for name, value in wanted_options(goal)]


def _recipe(facts: Facts) -> list[str]:
    """The way to the purchase, in the order in which it is gone."""
    chosen = _listed(facts.options)
    told = [f"Search {' '.join([*facts.attributes, facts.thing])}{f' and the {chosen}' if chosen else ''}."]
    told += [f"{said[0].upper()}{said[1:]} means {word}." for said, word in facts.meant]
    if facts.hidden:
        told.append(f"Features say {_listed(facts.hidden)}.")
    if facts.bounded:
        told.append("Check the price.")
    return [*told, f"Click {chosen}, then buy." if chosen else "Then buy."]


def _mistake(trajectory: Trajectory, facts: Facts, goal: Goal, played: Played, catalogue: Catalogue) -> tuple[str, str]:
    """What happened, and what not to do: the first mistake that cost the purchase."""
    if played.parts is not None:
        return _wrong_purchase(facts, goal, played.parts, catalogue.product(played.pages[-1].asin))
    if 2 * sum(not step.format_valid for step in trajectory.steps) >= len(trajectory.steps):
        return "Most replies held no action that could be read.", "Give one action a turn."
    kinds = {page.kind for page in played.pages}
    if "results" not in kinds:
        return "Nothing was searched for.", "Begin with a search."
    if "item" not in kinds:
        return "No product was opened.", "Open a product of the list."
    return "Nothing was bought before the turns ran out.", "Buy before the turns run out."


def _wrong_purchase(facts: Facts, goal: Goal, parts: RewardParts, bought: Product) -> tuple[str, str]:
    """Which product was opened comes before what was clicked on its page."""
    missed = _tellable([wish for wish, found in parts.attributes if not found])
    if parts.r_type < 1 and not (parts.query_match or parts.category_match):
        return "Another kind of thing was bought.", f"Buy nothing but {facts.thing}."
    if missed:
        return f"What was bought is not {_listed(missed)}.", f"Buy only what is {_listed(missed)}."
    if not parts.r_price:
        return "What was bought costs too much.", "Do not buy above the price."
    wanted = _named_options(goal, bought)
    open_wishes = [wish for wish, (_, found) in zip(wanted, parts.options, strict=True) if not found]
    offered = choices(bought).option_of
    if any(value.lower() not in offered for _, value in open_wishes):
        return "What was bought does not come as asked for.", "Open one that offers all options asked for."
    names = _tellable([name for name, _ in open_wishes]) or ("options",)
    return f"It was bought without the {_listed(names)} asked for.", f"Do not buy before you click {_listed(names)}."


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words)
