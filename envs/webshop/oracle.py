"""The oracle: what to buy for a goal, and the next action towards it from any page.

It is privileged: it knows the goal's product. Where that product cannot give the full score (the original's leniency
can turn a wanted value into another word, and mined attributes may be on no page) it looks among the products that the
goal's words and the product's title find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from seedbench.envs.webshop.catalogue import Catalogue
from seedbench.envs.webshop.goals import Goal
from seedbench.envs.webshop.nouns import Tagger
from seedbench.envs.webshop.pages import ITEM_NAV, PER_PAGE, SUB_PAGES, Page, choices, executable
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.reward import Rule, option_matches, score, strict_option_matches, wanted_options


class Plan(NamedTuple):
    """A purchase: the product, its options (name -> value), the query that finds it, and what it scores."""

    asin: str
    options: Mapping[str, str]
    query: str
    score: float


def query_words(text: str) -> str:
    """`text` as a query that `search[...]` carries: one line, without brackets."""
    return " ".join(text.replace("[", " ").replace("]", " ").split())


def make_plan(
    catalogue: Catalogue, goal: Goal, price: Callable[[str], float], tagger: Tagger, rule: Rule
) -> Plan | None:
    """The best purchase that is known for a goal; None where no search leads to a product."""
    own = catalogue.product(goal.asin) if goal.asin in catalogue else None
    queries = [query_words(text) for text in (goal.instruction_text, own.title if own else goal.name, goal.query)]
    queries = [query for query in queries if query]
    best: Plan | None = None
    for asin in _candidates(catalogue, goal, queries):
        product = catalogue.product(asin)
        query = _finding_query(catalogue, asin, [*queries, query_words(product.title)])
        if query is None:
            continue
        options = best_options(goal, product, rule)
        earned = score(goal, product, price(asin), options, tagger, rule)
        if best is None or earned > best.score:
            best = Plan(asin, options, query, earned)
        if best.score == 1:
            break
    return best


def _candidates(catalogue: Catalogue, goal: Goal, queries: Iterable[str]) -> Iterable[str]:
    """The goal's own product first, then all that its queries find, each once."""
    found = dict.fromkeys([goal.asin] if goal.asin in catalogue else [])
    yield from tuple(found)
    for query in queries:
        for asin in catalogue.search(query.lower()):
            if asin not in found:
                found[asin] = None
                yield asin


def _finding_query(catalogue: Catalogue, asin: str, queries: Iterable[str]) -> str | None:
    """The first query with the product on its first page of results, else the one with the earliest page."""
    pages: list[tuple[int, int, str]] = []
    for query in filter(None, dict.fromkeys(queries)):
        hits = catalogue.search(query.lower())
        if asin in hits:
            page = hits.index(asin) // PER_PAGE
            if page == 0:
                return query
            pages.append((page, len(pages), query))
    return min(pages)[2] if pages and executable(asin.lower()) else None


def best_options(goal: Goal, product: Product, rule: Rule) -> dict[str, str]:
    """Clickable options of `product` that fulfil most of the goal's: its own values if these suffice, else any."""
    offered = _clickable_values(product)
    wanted = wanted_options(goal)
    matches = option_matches if rule == "webshop" else strict_option_matches

    def fulfilled(chosen: Mapping[str, str]) -> frozenset[int]:
        return frozenset(i for i, (_, found) in enumerate(matches(goal, chosen)) if found)

    own = dict(_own_choices(wanted, offered))
    if len(fulfilled(own)) == len(wanted):
        return own
    ways: dict[frozenset[int], dict[str, str]] = {frozenset(): {}}
    for name, values in offered.items():
        first = sorted(values, key=lambda value: own.get(name) != value)
        alone = [(fulfilled({name: value}), value) for value in first]
        for done, chosen in list(ways.items()):
            for more, value in alone:
                ways.setdefault(done | more, {**chosen, name: value})
    most, chosen = max(ways.items(), key=lambda way: len(way[0]))
    return own if len(fulfilled(own)) == len(most) else chosen


def _clickable_values(product: Product) -> dict[str, list[str]]:
    """Values by option name that a click selects: none that a button or another option of the page shadows."""
    offered: dict[str, list[str]] = {}
    for value, name in choices(product).option_of.items():
        if executable(value) and value not in ITEM_NAV and value not in SUB_PAGES:
            offered.setdefault(name, []).append(value)
    return offered


def _own_choices(wanted: Iterable[tuple[str, str]], offered: Mapping[str, list[str]]) -> Iterable[tuple[str, str]]:
    """The goal's very values where the product offers them; a value without a name belongs to any option."""
    for name, value in wanted:
        holder = name if name else next((n for n, values in offered.items() if value in values), "")
        if value in offered.get(holder, ()):
            yield holder, value


def next_action(page: Page, plan: Plan) -> str | None:
    """The next action towards the plan's purchase; None once something was bought."""
    if page.kind == "done":
        return None
    if page.kind == "start":
        return f"search[{plan.query}]"
    if page.kind == "results":
        return _towards(page, plan)
    if page.kind == "sub" or page.asin != plan.asin:
        return "click[< prev]"
    for name, value in plan.options.items():
        if page.options.get(name) != value:
            return f"click[{value}]"
    return "click[buy now]"


def _towards(page: Page, plan: Plan) -> str:
    if plan.asin in page.shown():
        return f"click[{plan.asin.lower()}]"
    if plan.asin not in page.hits:
        return "click[back to search]"
    return "click[next >]" if page.number <= page.hits.index(plan.asin) // PER_PAGE else "click[< prev]"
