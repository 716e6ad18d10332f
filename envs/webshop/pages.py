"""The shop as a state machine: which page is shown, what can be clicked on it, and where an action leads.

A `Page` is a small immutable value; `act` gives the next one. Nothing here knows rewards, goals or how pages look.
The original's corner cases are kept: search works on any page, there is no last page of results, an option cannot be
unselected, a value that is called like a button is never reached, one that two options share belongs to the last.
Its one injection is not: it reads the kind of page out of the URL, which holds the query.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from seedbench.envs.webshop.catalogue import HITS, Catalogue
from seedbench.envs.webshop.products import Product

Kind = Literal["start", "results", "item", "sub", "done"]
PER_PAGE = 10
SUB_PAGES = {"description": "Description", "features": "Features", "reviews": "Reviews", "attributes": "Attributes"}
RESULTS_NAV = ("back to search", "< prev", "next >")
ITEM_NAV = ("back to search", "< prev", "description", "features", "reviews", "buy now")
SUB_NAV = ("back to search", "< prev")


class Page(NamedTuple):
    """Where a shopper is. `options` is never changed in place; `visited` are the products opened since the start."""

    kind: Kind = "start"
    keywords: tuple[str, ...] = ()
    number: int = 0  # of the page of results, from 1
    hits: tuple[str, ...] = ()
    asin: str = ""
    options: Mapping[str, str] = {}
    visited: frozenset[str] = frozenset()
    sub: str = ""  # Description, Features, Reviews or Attributes

    def shown(self) -> tuple[str, ...]:
        """Ids of the products on this page of results."""
        return self.hits[(self.number - 1) * PER_PAGE : self.number * PER_PAGE]


class Choices(NamedTuple):
    """What an item page offers: everything clickable in order, and which option a clicked value belongs to."""

    clickables: tuple[str, ...]
    option_of: Mapping[str, str]  # value -> lower-cased option name


def parse_action(action: str) -> tuple[str, str] | None:
    """(name, argument) of `name[argument]`, the argument in lower case; None where there is none.

    Equal to matching `(.+)\\[(.+)\\]` at the beginning, greedily, which needs quadratic time on "[[[[...": the last
    bracket pair of the first line counts, the argument holds no "[" but at its end, what follows "]" is ignored.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start < 1:
        return None
    return line[:start], line[start + 1 : end].lower()


@lru_cache(maxsize=4096)
def choices(product: Product) -> Choices:
    """The choices on a product's page. Values equal to a button's name show once, as the button."""
    option_of = {value.lower(): name for name, values in product.options.items() for value in values}
    return Choices(tuple(dict.fromkeys((*ITEM_NAV, *option_of))), option_of)


def clickables(catalogue: Catalogue, page: Page) -> tuple[str, ...]:
    """What the original lists as clickable, in its order."""
    if page.kind == "start":
        return ("search",)
    if page.kind == "results":
        nav = RESULTS_NAV if page.number > 1 else (RESULTS_NAV[0], RESULTS_NAV[2])
        return (*nav, *(asin.lower() for asin in page.shown()))
    if page.kind == "item":
        return choices(catalogue.product(page.asin)).clickables
    return SUB_NAV if page.kind == "sub" else ()


def executable(name: str) -> bool:
    """Whether `click[name]` does what it says. Names with brackets are not read back, `search` is no link."""
    return name != "search" and parse_action(f"click[{name}]") == ("click", name)


def refusal(catalogue: Catalogue, page: Page, action: str) -> str:
    """Why the action changes nothing, in words; "" where it is accepted."""
    parsed = parse_action(action)
    if parsed is None:
        return "an action is search[words] or click[name], on one line"
    name, argument = parsed
    if name == "search":
        return ""
    if name != "click":
        return f"{name[:40]!r} is neither search nor click"
    if argument not in clickables(catalogue, page):
        return f"there is no {argument[:40]!r} to click on this page"
    return "search with search[words]" if argument == "search" else ""


def act(catalogue: Catalogue, page: Page, action: str, magic: random.Random | None = None) -> Page | None:
    """The page that an action leads to; None where the action is not accepted. `magic` enables queries like `<r>`."""
    parsed = parse_action(action)
    if parsed is None:
        return None
    name, argument = parsed
    if name == "search":
        return search(catalogue, page, argument, magic)
    if name != "click" or argument == "search" or argument not in clickables(catalogue, page):
        return None
    return click(catalogue, page, argument)


def search(catalogue: Catalogue, page: Page, query: str, magic: random.Random | None = None) -> Page:
    """The first page of results for `query`."""
    keywords = tuple(query.split(" "))
    hits = None if magic is None else _magic(catalogue, keywords, magic)
    found = tuple(catalogue.search(query) if hits is None else hits)
    return Page("results", keywords, 1, found, visited=page.visited)


def click(catalogue: Catalogue, page: Page, name: str) -> Page:
    """The page behind something clickable on `page`."""
    if name == "buy now":
        return page._replace(kind="done")
    if name == "back to search":
        return Page()
    if page.kind == "results" and name == "next >":
        return page._replace(number=page.number + 1)
    if name == "< prev":
        return _previous(page)
    if page.kind == "item" and name in SUB_PAGES:
        return page._replace(kind="sub", sub=SUB_PAGES[name])
    if page.kind == "results":
        asin = next(asin for asin in page.shown() if asin.lower() == name)
        return page._replace(kind="item", asin=asin, visited=page.visited | {asin})
    option = choices(catalogue.product(page.asin)).option_of[name]
    return page._replace(options={**page.options, option: name})


def _previous(page: Page) -> Page:
    if page.kind == "results":
        return page._replace(number=page.number - 1)
    if page.kind == "sub":
        return page._replace(kind="item", sub="")
    return page._replace(kind="results", asin="", options={})


def _magic(catalogue: Catalogue, keywords: Sequence[str], rng: random.Random) -> Sequence[str] | None:
    """The original's undocumented queries; None for a plain one. Those on which it crashes (`<a>`, `<c>`) find nothing.

    `<r>`: 50 random products. `<c> beauty`: all of a category. `<q> hair masks`: all of a product query.
    """
    if keywords[0] == "<r>":
        ids = list(catalogue.ids())
        return rng.sample(ids, min(HITS, len(ids)))
    if keywords[0] == "<c>":
        wanted = keywords[1].strip() if len(keywords) > 1 else None
        return [i for i in catalogue.ids() if catalogue.product(i).category == wanted]
    if keywords[0] == "<q>":
        wanted = " ".join(keywords[1:]).strip()
        return [i for i in catalogue.ids() if catalogue.product(i).query == wanted]
    return () if keywords[0] == "<a>" else None
