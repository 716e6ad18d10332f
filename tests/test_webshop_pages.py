"""The shop's pages: which action leads where, what is clickable, and how pages look."""

from __future__ import annotations

import json
import random
import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.envs.webshop.catalogue import MemoryCatalogue
from seedbench.envs.webshop.pages import Page, act, clickables, executable, parse_action, refusal
from seedbench.envs.webshop.rendering import SEPARATOR, Session, page_html, page_json, text, text_rich, url
from tests.webshop_shop import catalogue

SHOP = catalogue()
SESSION = Session("task-1", "Find me a <shirt> & more")
ODD_NAV = ("back to search", "< prev", "description", "features", "reviews", "buy now")
BRACKETS = st.text(st.sampled_from("ab []]\n\r[\u2028C"), max_size=12) | st.text(max_size=12)


def go(*actions: str, shop: MemoryCatalogue = SHOP) -> Page:
    """The page after actions that must all be accepted."""
    page = Page()
    for action in actions:
        after = act(shop, page, action)
        assert after is not None, (action, refusal(shop, page, action))
        page = after
    return page


ITEM = ("search[odd shirt]", "click[b00000odd1]")


# ------------------------------------------------------------------------------------------------ reading actions
@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("search[Red Shirt]", ("search", "red shirt")),
        ("click[Buy Now] thanks", ("click", "buy now")),
        ("click[a]b]", ("click", "a]b")),
        ("click[a] or click[b]", ("click[a] or click", "b")),
        ("search[foo [bar]]", ("search[foo ", "bar]")),
        ("click[foo []", ("click", "foo [")),
        ("click [x]", ("click ", "x")),
        ("Search[x]", ("Search", "x")),
        ("Action: click[x]", ("Action: click", "x")),
        ("search[a\nb]", None),
        ("search[a]\nb]", ("search", "a")),
        ("\nsearch[a]", None),
        ("search[]", None),
        ("[x]", None),
        ("search[ ]", ("search", " ")),
        ("search", None),
        ("", None),
    ],
)
def test_actions_by_hand(action: str, expected: tuple[str, str] | None) -> None:
    assert parse_action(action) == expected


@settings(max_examples=2000, deadline=None)
@given(BRACKETS)
def test_actions_are_read_as_the_regular_expression_reads_them(action: str) -> None:
    match = re.match(r"(.+)\[(.+)\]", action)
    assert parse_action(action) == (match and (match[1], match[2].lower()))


def test_long_actions_take_linear_time() -> None:
    started = time.process_time()
    for action in ("[" * 200_000, "]" + "[" * 200_000, "x[" * 100_000 + "]", "search[" + "a " * 100_000 + "]"):
        parse_action(action)
    assert time.process_time() - started < 0.5


@settings(max_examples=300, deadline=None)
@given(st.lists(BRACKETS | st.sampled_from([*ITEM, "click[< prev]", "click[both]", "click[next >]"]), max_size=8))
def test_any_text_either_leads_to_a_page_or_is_refused_with_a_reason(actions: list[str]) -> None:
    page = Page()
    for action in actions:
        after, reason = act(SHOP, page, action), refusal(SHOP, page, action)
        assert (after is None) == bool(reason)
        page = after or page
        for name in clickables(SHOP, page):
            assert (act(SHOP, page, f"click[{name}]") is not None) == executable(name)
        assert text(SHOP, page, SESSION) and text_rich(SHOP, page, SESSION) and page_html(SHOP, page, SESSION)


@pytest.mark.parametrize(
    "action", ["Search[x]", "click [search]", "click[search]", "click[b00000odd1]", "Action: click[x]"]
)
def test_no_ops_on_the_start_page(action: str) -> None:
    assert act(SHOP, Page(), action) is None and refusal(SHOP, Page(), action)


# ------------------------------------------------------------------------------------------------ where clicks lead
def test_clickables_in_the_original_s_order() -> None:
    assert clickables(SHOP, Page()) == ("search",)
    results = go("search[shirt]")
    assert len(results.hits) == 35 and len(results.shown()) == 10
    assert clickables(SHOP, results) == ("back to search", "next >", *(a.lower() for a in results.shown()))
    second = go("search[shirt]", "click[next >]")
    assert clickables(SHOP, second)[:3] == ("back to search", "< prev", "next >")
    item = go(*ITEM)
    assert clickables(SHOP, item) == (
        *ODD_NAV,
        *("red", "black | white", 'the "blue"', "search", "small", "large [wide]", "both", "", "plain", "next >"),
    ), "values that are called like a button show once, as the button"
    assert clickables(SHOP, go(*ITEM, "click[reviews]")) == ("back to search", "< prev")
    assert clickables(SHOP, go(*ITEM, "click[buy now]")) == ()


def test_results_have_no_last_page() -> None:
    page = go("search[shirt]", *["click[next >]"] * 5)
    assert page.shown() == () and "Page 6 (Total results: 35)" in text(SHOP, page, SESSION)
    assert go("search[shirt]", "click[next >]", "click[< prev]") == go("search[shirt]")
    assert act(SHOP, go("search[shirt]"), "click[< prev]") is None


def test_options_are_overwritten_and_never_unselected() -> None:
    assert go(*ITEM, "click[red]", "click[RED]").options == {"color": "red"}
    page = go(*ITEM, "click[red]", "click[small]", "click[black | white]")
    assert list(page.options.items()) == [("color", "black | white"), ("size", "small")]


def test_a_value_of_two_options_belongs_to_the_last() -> None:
    assert go(*ITEM, "click[both]").options == {"style": "both"}


def test_values_called_like_buttons() -> None:
    assert go(*ITEM, "click[description]").kind == "sub"
    assert act(SHOP, go(*ITEM), "click[search]") is None
    assert go(*ITEM, "click[next >]").options == {"style": "next >"}, "next > is a button on results alone"
    assert act(SHOP, go(*ITEM), "click[large [wide]]") is None


def test_previous_page() -> None:
    chosen = go(*ITEM, "click[red]")
    assert go(*ITEM, "click[red]", "click[features]", "click[< prev]") == chosen
    back = go(*ITEM, "click[red]", "click[< prev]")
    assert (back.kind, back.options, back.asin, back.number) == ("results", {}, "", 1)
    deep = go("search[shirt]", "click[next >]")
    asin = deep.shown()[3]
    assert go("search[shirt]", "click[next >]", f"click[{asin}]", "click[< prev]").number == 2


def test_search_works_anywhere() -> None:
    for before in ((), ITEM, (*ITEM, "click[reviews]"), (*ITEM, "click[red]", "click[buy now]")):
        page = go(*before, "search[plain]")
        assert page.kind == "results" and page.options == {} and page.number == 1
    assert go("search[ ]").hits == () and go("search[ ]").keywords == ("", "")


def test_visited_products_are_forgotten_on_the_start_page_alone() -> None:
    assert go(*ITEM, "search[odd shirt]").visited == {"B00000ODD1"}
    assert go(*ITEM, "click[back to search]") == Page()


def test_magic_queries_are_plain_text_unless_asked_for() -> None:
    assert go("search[<c> garden]").hits == go("search[garden]").hits
    start = Page()

    def hits(query: str) -> tuple[str, ...]:
        page = act(SHOP, start, f"search[{query}]", random.Random(0))
        assert page is not None
        return page.hits

    assert hits("<c> garden") == ("B00000PLA1",) and len(hits("<c> fashion")) == 34
    assert len(hits("<q> men's shirts")) == 35
    assert len(set(hits("<r>"))) == 35 and hits("<r>") == hits("<r>")
    assert hits("<a> plain") == hits("<c>") == ()
    assert hits("odd shirt") == go("search[odd shirt]").hits


# ------------------------------------------------------------------------------------------------ what pages show
def test_text() -> None:
    assert text(SHOP, Page(), SESSION) == "WebShop [SEP] Instruction: [SEP] Find me a <shirt> & more [SEP] Search"
    head = "Instruction: [SEP] Find me a <shirt> & more [SEP] Back to Search [SEP] "
    page = go("search[bullet]")
    assert text(SHOP, page, SESSION) == (
        head + "Page 1 (Total results: 1) [SEP] Next > [SEP] B00000PLA1 [SEP] Plain Shirt [SEP] $100.0"
    )
    item = text(SHOP, go(*ITEM), SESSION).removeprefix(head)
    assert item == SEPARATOR.join(
        [
            *("< Prev", "color", "red", "black | white", 'the "blue"', "search"),
            *("size", "small", "large [wide]", "description", "buy now", "both"),  # the empty value leaves no node
            *("style", "both", "plain", "next >", "Odd Shirt", "Price: $8.98 to $11.99", "Rating: N.A."),
            *("Description", "Features", "Reviews", "Buy Now"),
        ]
    )
    features = text(SHOP, go(*ITEM, "click[features]"), SESSION).removeprefix(head)
    assert features == "< Prev [SEP] soft <b>cotton</b> [SEP]  [SEP] two\nlines", (
        "an empty bullet leaves an empty segment"
    )
    assert text(SHOP, go(*ITEM, "click[description]"), SESSION) == head + "< Prev [SEP] About Odd Shirt."
    assert text(SHOP, go(*ITEM, "click[reviews]"), SESSION) == head + "< Prev"


def test_text_rich_marks_what_was_clicked() -> None:
    page = go(*ITEM, "click[red]", "click[small]", 'click[the "blue"]')
    seen = text_rich(SHOP, page, SESSION)
    assert seen.startswith("You have clicked small.\nInstruction:\n"), "a value with quotes never shows as clicked"
    assert "  [clicked button] small [clicked button_]\n" in seen and '  [button] the "blue" [button_]\n' in seen
    two = text_rich(SHOP, go(*ITEM, "click[red]", "click[small]"), SESSION)
    assert two.startswith("You have clicked small.\nYou have clicked red.\nInstruction:\n")
    again = text_rich(SHOP, go(*ITEM, "click[< prev]"), SESSION)
    assert "\n\n[clicked button] B00000ODD1 [clicked button_]\nOdd Shirt\n" in again
    quoted = text_rich(SHOP, go('search["red" odd shirt]', "click[b00000odd1]"), SESSION)
    assert quoted.startswith("You have clicked red.\n"), "the query is part of the URL as well"


def test_url() -> None:
    base = "http://127.0.0.1:3000"
    assert url(Page(), SESSION) == f"{base}/task-1"
    assert url(go("search[odd  shirt]"), SESSION) == f"{base}/search_results/task-1/odd++shirt/1"
    item = go(*ITEM, "click[red]", "click[small]")
    options = '{"color": "red", "size": "small"}'
    assert url(item, SESSION) == f"{base}/item_page/task-1/B00000ODD1/odd+shirt/1/{options}"
    sub = go(*ITEM, "click[features]")
    assert url(sub, SESSION) == f"{base}/item_sub_page/task-1/B00000ODD1/odd+shirt/1/Features/{{}}"


class VisibleText(HTMLParser):
    """Text nodes of a document, but for what is hidden."""

    def __init__(self, document: str):
        super().__init__()
        self.hidden, self.found = 0, list[str]()
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag == "div" and ("hidden", None) in attrs

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag == "div"

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.found.append(data)


PAGES = [
    (),
    ("search[shirt]", "click[next >]"),
    (*ITEM, "click[red]"),
    (*ITEM, "click[features]"),
    (*ITEM, "click[small]", "click[buy now]"),
]


@pytest.mark.parametrize("actions", PAGES)
def test_html_shows_what_text_shows(actions: tuple[str, ...]) -> None:
    page = go(*actions)
    document = page_html(SHOP, page, SESSION._replace(hidden="the <goal>"))
    assert SEPARATOR.join(t.strip() for t in VisibleText(document).found) == text(SHOP, page, SESSION)
    assert "<shirt>" not in document and "<b>" not in document, "everything is escaped"
    assert ("the &lt;goal&gt;" in document) == (page.kind == "done")
    assert ("checked" in document) == bool(actions and actions[-1] == "click[red]")


@pytest.mark.parametrize("actions", PAGES)
def test_json_names_the_page(actions: tuple[str, ...]) -> None:
    page = go(*actions)
    shown = json.loads(page_json(SHOP, page, SESSION))
    assert shown["page"] == page.kind and shown["instruction"] == SESSION.instruction
    if page.kind == "results":
        assert [p["asin"] for p in shown["products"]] == list(page.shown()) and shown["total"] == 35
    if page.asin:
        assert shown["asin"] == page.asin and shown["chosen"] == page.options
    if page.kind == "sub":
        assert shown["text"] == ["soft <b>cotton</b>", "", "two\nlines"]
