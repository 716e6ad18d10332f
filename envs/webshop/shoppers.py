"""Scripted shoppers, as floors: what an episode is worth to one who does not compare products.

`first` searches for the instruction and buys the first hit; `clicker` also clicks each option whose value the
instruction names; `reader` takes the first hit of ten that names every attribute said outright in its title, is priced
below the bound and offers an option's value wherever the instruction names one. None of them sees the goal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seedbench.core import SeedbenchError, Task
from seedbench.envs.webshop.catalogue import Catalogue
from seedbench.envs.webshop.data import Dataset
from seedbench.envs.webshop.families import ATTRIBUTES
from seedbench.envs.webshop.nouns import open_tagger
from seedbench.envs.webshop.oracle import query_words
from seedbench.envs.webshop.pages import PER_PAGE
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.reward import score


class Outcome(NamedTuple):
    """Means over tasks: the score, and the share of purchases that scored 1."""

    score: float
    success: float
    n: int


Shopper = Callable[[Catalogue, str], tuple[Product, dict[str, str]] | None]  # instruction -> purchase


def first(catalogue: Catalogue, instruction: str) -> tuple[Product, dict[str, str]] | None:
    """The first hit as it comes."""
    return next(((product, {}) for product in _hits(catalogue, instruction)), None)


def clicker(catalogue: Catalogue, instruction: str) -> tuple[Product, dict[str, str]] | None:
    """The first hit with the options that the instruction names."""
    said = _words(instruction)
    return next(((product, _named(product, said)) for product in _hits(catalogue, instruction)), None)


def reader(catalogue: Catalogue, instruction: str) -> tuple[Product, dict[str, str]] | None:
    """The first of ten hits that fits what the page of results and the item's page show; else the first."""
    said = _words(instruction)
    wanted = said & set(ATTRIBUTES)
    bound = min((int(word) for word in said if word.isdigit()), default=10**6)
    for product in _hits(catalogue, instruction):
        named = _named(product, said)
        if wanted <= _words(product.title) and product.prices[-1] <= bound and len(named) == len(product.options):
            return product, named
    return clicker(catalogue, instruction)


SHOPPERS: dict[str, Shopper] = {"first": first, "clicker": clicker, "reader": reader}


def _hits(catalogue: Catalogue, instruction: str) -> Iterator[Product]:
    yield from (catalogue.product(asin) for asin in catalogue.search(query_words(instruction).lower())[:PER_PAGE])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _named(product: Product, said: set[str]) -> dict[str, str]:
    found = {name: next((v for v in values if v in said), "") for name, values in product.options.items()}
    return {name: value for name, value in found.items() if value}


def outcomes(dataset: Dataset, tasks: Sequence[Task], how: str) -> dict[str, Outcome]:
    """Outcome of one shopper by kind of task, and over "all". Raises SeedbenchError for an unknown shopper."""
    if how not in SHOPPERS:
        raise SeedbenchError(f"There is no shopper {how!r}; choose one of {', '.join(SHOPPERS)}.")
    tagger, earned = open_tagger("auto", dataset.nouns), dict[str, list[float]]()
    for task in tasks:
        goal = dataset.goal(task.id)
        bought = SHOPPERS[how](dataset.catalogue, goal.instruction_text)
        got = 0.0
        if bought is not None:
            got = score(goal, bought[0], dataset.catalogue.price(bought[0].asin), bought[1], tagger)
        for kind in ("all", task.kind):
            earned.setdefault(kind, []).append(got)
    return {k: Outcome(sum(v) / len(v), sum(x == 1 for x in v) / len(v), len(v)) for k, v in earned.items()}
