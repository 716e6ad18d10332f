"""What a page looks like: text, text_rich, html, url, json. The two texts equal the original's byte for byte.

A page is first a list of nodes, which holds the text and says what each part is; each rendering reads that list.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from seedbench.envs.webshop.catalogue import Catalogue
from seedbench.envs.webshop.pages import Page
from seedbench.envs.webshop.products import Product

Observation = Literal["text", "text_rich", "html", "url", "json"]
Role = Literal["text", "button", "link", "option"]
BASE_URL = "http://127.0.0.1:3000"
SEPARATOR = " [SEP] "


class Node(NamedTuple):
    """One visible text node. `name` of an option node is the option's name."""

    text: str
    role: Role = "text"
    name: str = ""


class Session(NamedTuple):
    """What a page shows besides itself: whose session it is, the instruction, and the score once there is one."""

    id: str
    instruction: str
    score: float = 0.0
    hidden: str = ""  # written into the done page's HTML, as the original's web site does with the goal


def nodes(catalogue: Catalogue, page: Page, session: Session) -> list[Node]:
    """The visible nodes in document order. Empty texts, and blank ones with a line break, leave no node."""
    return [n for n in _all_nodes(catalogue, page, session) if n.text and not (n.text.isspace() and "\n" in n.text)]


def _all_nodes(catalogue: Catalogue, page: Page, session: Session) -> Iterator[Node]:
    if page.kind == "start":
        yield from (Node("WebShop"), Node("Instruction: "), Node(session.instruction), Node("Search", "button"))
        return
    if page.kind == "done":
        yield from map(Node, _done_texts(page, session))
        return
    yield from (Node("Instruction:"), Node(session.instruction), Node("Back to Search", "button"))
    if page.kind == "results":
        yield from _results_nodes(catalogue, page)
        return
    yield Node("< Prev", "button")
    product = catalogue.product(page.asin)
    yield from _item_nodes(product) if page.kind == "item" else _sub_nodes(product, page.sub)


def _results_nodes(catalogue: Catalogue, page: Page) -> Iterator[Node]:
    yield Node(f"Page {page.number} (Total results: {len(page.hits)})")
    if page.number > 1:
        yield Node("< Prev", "button")
    yield Node("Next >", "button")
    for asin in page.shown():
        product = catalogue.product(asin)
        yield from (Node(asin, "link"), Node(product.title), Node(product.price_text))


def _item_nodes(product: Product) -> Iterator[Node]:
    for name, values in product.options.items():
        yield Node(name)
        yield from (Node(value, "option", name) for value in values)
    yield from (Node(product.title), Node(f"Price: {product.price_text}"), Node("Rating: N.A."))
    yield from (Node(name, "button") for name in ("Description", "Features", "Reviews", "Buy Now"))


def _sub_nodes(product: Product, sub: str) -> Iterator[Node]:
    if sub == "Description":
        yield Node(product.description)
    elif sub == "Features":
        yield from (Node(f" {bullet}") for bullet in product.bullets)


def _done_texts(page: Page, session: Session) -> Sequence[str]:
    """What the original's simulator shows after a purchase: it fills in neither attributes nor goal."""
    bought = ("asin", page.asin, "options", json.dumps(page.options, sort_keys=True))
    unknown = (text for name in ("attrs", "category", "query", "product category") for text in (name, "None"))
    target = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")
    return (
        *("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", *bought, *unknown, "Target", *target, "Goal ", "None"),
        *("Reward", "Your score (min 0.0, max 1.0)", str(session.score), "Reward Details ", "None"),
    )


def url(page: Page, session: Session) -> str:
    """The address that the original's simulator would give the page."""
    keywords, options = "+".join(page.keywords), json.dumps(page.options)
    if page.kind == "start":
        return f"{BASE_URL}/{session.id}"
    if page.kind == "results":
        return f"{BASE_URL}/search_results/{session.id}/{keywords}/{page.number}"
    if page.kind == "done":
        return f"{BASE_URL}/done/{session.id}/{page.asin}/{page.options}"
    sub = f"{page.sub}/" if page.kind == "sub" else ""
    kind = "item_sub_page" if sub else "item_page"
    return f"{BASE_URL}/{kind}/{session.id}/{page.asin}/{keywords}/{page.number}/{sub}{options}"


def text(catalogue: Catalogue, page: Page, session: Session) -> str:
    """Node texts, stripped, in one line."""
    return SEPARATOR.join([n.text.strip() for n in nodes(catalogue, page, session)])


def text_rich(catalogue: Catalogue, page: Page, session: Session) -> str:
    """One node a line, marked as what it is. An option counts as clicked when the URL holds it in double quotes."""
    address = url(page, session)
    lines, clicked = [], []
    for node in nodes(catalogue, page, session):
        line = node.text
        if node.role == "button":
            line = f"[button] {line} [button_]"
        elif node.role == "link":
            mark = "clicked button" if line in page.visited else "button"
            line = f"\n[{mark}] {line} [{mark}_]"
        elif node.role == "option":
            mark = "button"
            if f'"{line}"' in address:
                mark = "clicked button"
                clicked.append(f"You have clicked {line}.\n")
            line = f"  [{mark}] {line} [{mark}_]"
        lines.append(f"{line}\n")
    return "".join([*reversed(clicked), *lines])


def page_html(catalogue: Catalogue, page: Page, session: Session) -> str:
    """A plain document: its visible text nodes are those of `text`; what can be clicked has the class btn."""
    body = "".join(_element(node, page) for node in nodes(catalogue, page, session))
    box = '<input name="query" type="text">' if page.kind == "start" else ""
    hidden = f"<div hidden>{html.escape(session.hidden)}</div>" if page.kind == "done" and session.hidden else ""
    return f'<!DOCTYPE html><html><body class="{page.kind}">{body}{box}{hidden}</body></html>'


def _element(node: Node, page: Page) -> str:
    shown = html.escape(node.text)
    if node.role == "text":
        return f"<p>{shown}</p>"
    if node.role == "option":
        checked = " checked" if page.options.get(node.name) == node.text else ""
        radio = f'<input type="radio" name="{html.escape(node.name)}" value="{shown}"{checked}>'
        return f'<label class="btn">{radio}{shown}</label>'
    kind = "product-link" if node.role == "link" else "button"
    return f'<button class="btn {kind}">{shown}</button>'


def page_json(catalogue: Catalogue, page: Page, session: Session) -> str:
    """The page as JSON: what `text` shows, by name."""
    shown: dict[str, object] = {"page": page.kind, "instruction": session.instruction}
    if page.kind == "results":
        products = [catalogue.product(asin) for asin in page.shown()]
        rows = [{"asin": p.asin, "title": p.title, "price": p.price_text} for p in products]
        shown |= {"number": page.number, "total": len(page.hits), "products": rows}
    elif page.kind in ("item", "sub"):
        product = catalogue.product(page.asin)
        shown |= {"asin": product.asin, "title": product.title, "price": product.price_text}
        shown |= {"options": product.options, "chosen": page.options}
    elif page.kind == "done":
        shown |= {"asin": page.asin, "chosen": page.options, "score": session.score}
    if page.kind == "sub":
        shown |= {"sub_page": page.sub, "text": [n.text.strip() for n in _sub_nodes(product, page.sub) if n.text]}
    return json.dumps(shown, ensure_ascii=False)


RENDERINGS: dict[str, Callable[[Catalogue, Page, Session], str]] = {
    "text": text,
    "text_rich": text_rich,
    "html": page_html,
    "url": lambda catalogue, page, session: url(page, session),
    "json": page_json,
}
