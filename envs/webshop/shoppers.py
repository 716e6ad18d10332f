"""Scripted shoppers, as floors and as a ceiling without privilege. None of them sees the goal.

`first hit` searches for the instruction and buys the first hit. `clicker` also clicks each option whose value the
instruction names. `reader` takes the first of ten hits that names every attribute said outright in its title, is
priced below the bound and offers all options. `scholar` is what a lesson is worth: it knows every paraphrase
(`families.lesson`), searches in the shop's words and opens features pages as long as 15 steps allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seedbench.core import SeedbenchError, Task
from seedbench.envs.webshop.catalogue import Catalogue
from seedbench.envs.webshop.data import Dataset
from seedbench.envs.webshop.families import ATTRIBUTES, AXES, FAMILIES
from seedbench.envs.webshop.nouns import open_tagger
from seedbench.envs.webshop.oracle import query_words
from seedbench.envs.webshop.pages import PER_PAGE
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.reward import score

STEPS = 15  # the environment's limit


class Outcome(NamedTuple):
    """Means over tasks: the score, and the share of purchases that scored 1."""

    score: float
    success: float
    n: int


Shopper = Callable[[Catalogue, str], tuple[Product, dict[str, str]] | None]  # instruction -> purchase


def first_hit(catalogue: Catalogue, instruction: str) -> tuple[Product, dict[str, str]] | None:
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


def scholar(catalogue: Catalogue, instruction: str) -> tuple[Product, dict[str, str]] | None:
    """The first product that fits for certain: what its title does not say, its features page must."""
    plain = in_the_shops_words(instruction)
    said = _words(plain)
    wanted = said & set(ATTRIBUTES)
    bound = min((int(word) for word in said if word.isdigit()), default=10**6)
    left = STEPS - 1  # after the search
    for page in range(3):
        shown = [p for p in _hits(catalogue, plain, page) if p.prices[-1] <= bound and p.query in plain]
        for product in sorted(shown, key=lambda p: len(wanted - _words(p.title))):
            named = _named(product, said)
            offers, unsure = _VALUES & said == set(named.values()), bool(wanted - _words(product.title))
            left -= 1 + 2 * (offers and unsure)  # open it; features and back
            if left < len(named) + 1:
                return None
            if offers and wanted <= _words(product.title).union(product.bullets):
                return product, named
            left -= 1  # back to the results
        left -= 1  # next page
    return None


def in_the_shops_words(instruction: str) -> str:
    """The instruction with every paraphrase of an attribute or a thing undone."""
    for said, word in _PARAPHRASES.items():
        instruction = re.sub(rf"\b{re.escape(said)}\b", word, instruction)
    return instruction


_VALUES = {value for values in AXES.values() for value in values.split()}
_PARAPHRASES = {said: word for word, said in ATTRIBUTES.items()} | {f.said: f.noun for f in FAMILIES}
SHOPPERS: dict[str, Shopper] = {"first hit": first_hit, "clicker": clicker, "reader": reader, "scholar": scholar}


def _hits(catalogue: Catalogue, instruction: str, page: int = 0) -> Iterator[Product]:
    hits = catalogue.search(query_words(instruction).lower())
    yield from (catalogue.product(asin) for asin in hits[page * PER_PAGE : (page + 1) * PER_PAGE])


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
