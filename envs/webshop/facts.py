"""Facts of a goal that a teacher may be told: what is wanted in the shop's own words, never which product it is (SSPO,
an extension)."""

from __future__ import annotations

from collections.abc import Iterator

from seedbench.core import Anchor
from seedbench.envs.webshop.goals import UNBOUNDED, Goal
from seedbench.envs.webshop.reward import wanted_options

SOURCE = "goal"  # the one document of a task: all its facts
MOST = 6


def anchors(goal: Goal) -> tuple[Anchor, ...]:
    """The facts as anchors."""
    return tuple(Anchor("what is wanted", SOURCE, fact) for fact in facts(goal))[:MOST]


def facts(goal: Goal) -> Iterator[str]:
    """Thing and category, attributes, options, price bound."""
    yield f"What is wanted is listed under {goal.query}, in the category {goal.category}."
    if goal.attributes:
        yield f"It is described as {', '.join(goal.attributes)}."
    for name, value in wanted_options(goal):
        yield f"Its {name} is {value}." if name else f"An option of it is {value}."
    if goal.price_upper < UNBOUNDED:
        yield f"Its price is below {goal.price_upper:.2f} dollars."
