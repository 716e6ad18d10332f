"""Prompts render what they say, in the order they say; parsers survive anything and say why."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.core import View
from seedbench.prompts import Prompt, parse_tagged, prompt_sha

PROMPT = Prompt("p", "system line", history=2)
PAST = (("saw 0", "did 0"), ("saw 1", "did 1"), ("saw 2", "did 2"))


def test_layout_by_hand() -> None:
    view = View("win", "saw 3", ("go", "stay"), PAST, hint="open first")
    system, user = PROMPT.render(view)
    assert system == {"role": "system", "content": "system line"}
    assert user["role"] == "user"
    blocks = [
        "Task: win",
        "Lesson:\nopen first",
        "Past steps 2-3:\n> did 1\nsaw 2\n> did 2",
        "Now:\nsaw 3",
        "Actions:\ngo\nstay",
    ]
    assert user["content"] == "\n\n".join(blocks)


def test_an_empty_hint_leaves_no_trace() -> None:
    view = View("win", "here", ("go",), ())
    assert PROMPT.render(view)[1]["content"] == "Task: win\n\nNow:\nhere\n\nActions:\ngo"
    assert PROMPT.render(view, hint="x") == PROMPT.render(dataclasses.replace(view, hint="x"))


@pytest.mark.parametrize("history, shown", [(0, 0), (1, 1), (2, 2), (5, 3), (-1, 3)])
def test_history_window(history: int, shown: int) -> None:
    text = dataclasses.replace(PROMPT, history=history).render(View("g", "o", (), PAST))[1]["content"]
    assert text.count("> did") == shown


def test_digest_sees_every_word_and_setting() -> None:
    variants = [
        PROMPT,
        dataclasses.replace(PROMPT, system="another line"),
        dataclasses.replace(PROMPT, history=3),
        dataclasses.replace(PROMPT, history=-1),
        dataclasses.replace(PROMPT, show_actions=False),
        dataclasses.replace(PROMPT, reply_format="{action}"),
    ]
    assert len({p.digest() for p in variants}) == len(variants)
    assert dataclasses.replace(PROMPT, name="renamed").digest() == PROMPT.digest()


STRICT = [
    ("<action>open fridge 1</action>", "open fridge 1", ""),
    ("<think>hm <action>no</action></think>\n<action> go </action>\n", "go", ""),
    ("I look first. <action>look</action>", "look", ""),
    ("", "", "no <action> block"),
    ("look", "", "no <action> block"),
    ("<action>look", "", "an unclosed <action> block"),
    ("<action>a</action><action>b</action>", "", "more than one <action> block"),
    ("<action>a</action> then I wait", "", "text after </action>"),
    ("</action><action>a", "", "</action> before <action>"),
    ("<action> </action>", "", "empty <action> block"),
    ("<action>a\nb</action>", "", "the action has more than one line"),
    ("<think>never <action>a</action>", "", "<think> is never closed"),
    ("<Action>a</Action>", "", "no <action> block"),
]


@pytest.mark.parametrize("text, action, reason", STRICT)
def test_strict(text: str, action: str, reason: str) -> None:
    assert parse_tagged(text) == (action, not reason, reason)


TOLERANT = [
    ("<action>Open the  Fridge 1.</action>", "open fridge 1"),
    ("<action>take an apple 1 from a fridge 1!", "take apple 1 from fridge 1"),
    ("<action>a</action> <action>look</action> done", "look"),
    ("<think>go <action>go to bed 1</action>", "go to bed 1"),
    ("<action>LOOK\nand more</action>", "look"),
]


@pytest.mark.parametrize("text, action", TOLERANT)
def test_tolerant(text: str, action: str) -> None:
    assert parse_tagged(text, "tolerant") == (action, True, "")


def test_tolerant_still_needs_a_block() -> None:
    assert not parse_tagged("open fridge 1", "tolerant").format_valid
    assert not parse_tagged("<action>.</action>", "tolerant").format_valid


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["<action>", "</action>", "<think>", "</think>", "x", "\n"])).map("".join)
)
def test_parsers_never_raise_and_agree_with_their_flag(text: str) -> None:
    for mode in ("strict", "tolerant"):
        parsed = parse_tagged(text, mode)  # type: ignore[arg-type]
        assert bool(parsed.action) == parsed.format_valid == (not parsed.reason)


@given(st.text(st.characters(blacklist_characters="<>\n\r", blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1))
def test_an_action_survives_its_own_reply(action: str) -> None:
    if action.strip():
        assert parse_tagged(PROMPT.reply(action)).action == action.strip()


def test_prompt_sha_is_of_the_messages() -> None:
    a, b = (prompt_sha(PROMPT.render(View("g", o, (), ()))) for o in ("x", "y"))
    assert a != b and len(a) == 64


def test_many_unclosed_thoughts_are_read_in_linear_time() -> None:
    """Quadratic work would take minutes here."""
    for text in ("<think>" * 150_000, "<think></think>" * 100_000 + "<action>x</action>"):
        parse_tagged(text)
        parse_tagged(text, "tolerant")


def test_a_huge_history_costs_nothing_to_name() -> None:
    assert len(dataclasses.replace(PROMPT, history=10**8).digest()) == 64
