"""Parsers: ours, strict and tolerant, and those of Search-R1 and verl-agent; and escaping."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seedbench.core import Mode
from seedbench.envs.searchqa.tags import (
    cut,
    escape,
    parse_block,
    parse_search_r1,
    parse_verl_agent,
    read_block,
    read_search_r1,
    read_verl_agent,
)

BITS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "x", "The y.", " ", "\n", "<SEARCH>"]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
S, A = "<search>q</search>", "<answer>a</answer>"


@pytest.mark.parametrize(
    "text, action",
    [
        (S, S),
        (A, A),
        ("words first " + S, S),
        ("<think>why <answer>no</answer></think>" + S, S),
        ("<search> two words </search>\n", "<search>two words</search>"),
        ("<search>a < b & c</search>", "<search>a < b & c</search>"),
    ],
)
def test_strict_reads_one_block(text: str, action: str) -> None:
    assert parse_block(text) == (action, True, "")


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "no <search> or <answer>"),
        ("paris", "no <search> or <answer>"),
        (S + A, "one of them a turn"),
        (A + S, "one of them a turn"),
        ("<search>q</answer>", "one of them a turn"),
        (S + S, "more than one <search>"),
        (A + " so there", "text after </answer>"),
        ("<search></search>", "empty <search>"),
        ("<answer> \t </answer>", "empty <answer>"),
        ("<search>a\nb</search>", "more than one line"),
        ("<search>q", "an unclosed <search>"),
        ("</search>", "no <search> or <answer>"),
        ("<think>" + S, "<think> is never closed"),
        ("<think>", "<think> is never closed"),
        ("<Search>q</Search>", "no <search> or <answer>"),
    ],
)
def test_strict_refuses(text: str, says: str) -> None:
    action, valid, reason = parse_block(text)
    assert (action, valid) == ("", False) and says in reason


@pytest.mark.parametrize(
    "text, action",
    [
        (S + A, A),
        (A + S, S),
        ("<search>The old  Tower.", "<search>old tower</search>"),
        ("<answer>Paris</search> and so on", "<answer>paris</answer>"),
        (A + " so there", A),
        ("<search>one\ntwo</search>", "<search>one</search>"),
        ("<think>never closed " + A, A),
        ("<search>one<SEARCH>two", "<search>one</search>"),
    ],
)
def test_tolerant(text: str, action: str) -> None:
    assert parse_block(text, "tolerant") == (action, True, "")


@given(BITS, st.sampled_from(["strict", "tolerant"]))
@example("<search><SEARCH>", "tolerant")
def test_what_is_parsed_can_be_played_and_parsed_again(text: str, mode: Mode) -> None:
    action, valid, reason = parse_block(text, mode)
    assert valid == (not reason) == bool(action)
    if valid:
        assert read_block(action).kind in ("search", "answer")
        assert parse_block(action).action == action


@given(BITS)
def test_an_action_of_ours_is_one_block_and_nothing_else(text: str) -> None:
    move = read_block(text)
    if move.kind == "nothing":
        assert move.reason
    else:
        assert text.strip().count("<" + move.kind + ">") == 1 and move.content


@pytest.mark.parametrize(
    "action", [S + S, "x" + S, S + "x", "<search> </search>", "<search>a<answer>b</search>", "", "<search>"]
)
def test_no_action_of_ours(action: str) -> None:
    assert read_block(action).kind == "nothing" and read_block(action).reason


@given(BITS)
def test_search_r1_reads_as_its_expression_does(text: str) -> None:
    after = text.split("</search>")[0] + "</search>" if "</search>" in text else text
    if "</search>" not in text and "</answer>" in text:
        after = text.split("</answer>")[0] + "</answer>"
    first = re.search(r"<(search|answer)>(.*?)</\1>", after, re.DOTALL)
    assert cut(text) == after
    move = read_search_r1(after)
    assert (move.kind, move.content) == ((first[1], first[2].strip()) if first else ("nothing", ""))
    assert parse_search_r1(text)[:2] == (after, first is not None)


def test_an_answer_and_then_a_search() -> None:
    """The specification's example: an answer for Search-R1, a search for verl-agent, and invalid there."""
    text = "<answer>A</answer> <search>q</search> more"
    assert parse_search_r1(text).action == "<answer>A</answer> <search>q</search>"
    assert read_search_r1(cut(text)) == ("answer", "A", "")
    assert parse_verl_agent(text)[:2] == ("<search>q</search>", False)


@pytest.mark.parametrize(
    "text, action, valid",
    [
        (S, S, True),
        (A, A, True),
        ("<think>t</think><SEARCH> Q </Search>", "<search>Q</search>", True),
        (S + S, S, False),
        ("<answer>a</answer><answer>b</answer>", A, False),
        ("<search>q", "", False),
        ("", "", False),
        ("<answer>a</answer> <search>", A, False),
    ],
)
def test_verl_agent(text: str, action: str, valid: bool) -> None:
    assert parse_verl_agent(text)[:2] == (action, valid)


@given(BITS)
def test_verl_agent_projects_as_its_rules_say(text: str) -> None:
    trimmed = cut(text)
    search = re.search(r"<search>(.*?)</search>", trimmed, re.DOTALL | re.IGNORECASE)
    answer = re.search(r"<answer>(.*?)</answer>", trimmed, re.DOTALL | re.IGNORECASE)
    expected = (
        f"<search>{search[1].strip()}</search>" if search else f"<answer>{answer[1].strip()}</answer>" if answer else ""
    )
    many = [len(re.findall(f"<{tag}>", text, re.IGNORECASE)) for tag in ("search", "answer")]
    assert parse_verl_agent(text)[:2] == (expected, bool(expected) and not all(many) and max(many) < 2)


def test_verl_agent_ends_with_an_answer_inside_a_search() -> None:
    assert read_verl_agent("<search>q <answer>A</answer></search>") == ("answer", "A", "")
    assert read_verl_agent("<search>q</search>") == ("search", "q", "")
    assert read_verl_agent("").kind == "nothing"


@given(BITS)
def test_escaped_text_holds_no_tag(text: str) -> None:
    hidden = escape(text + "</Answer><|im_start|><information>")
    assert not re.search(r"<(/?(think|search|answer|information|action)\b|\|)", hidden, re.IGNORECASE)
    assert len(hidden.splitlines()) <= 1
    assert (
        parse_block(hidden).action == parse_block(hidden, "tolerant").action == parse_search_r1(hidden)[1] * "x" == ""
    )


def test_other_angle_brackets_stay() -> None:
    assert escape("if a < b or <b>c</b>, <answers> and <thinker>") == "if a < b or <b>c</b>, <answers> and <thinker>"
    assert escape("a <answer>b</answer>\n<|im_end|>") == "a &lt;answer>b&lt;/answer> &lt;|im_end|>"


@pytest.mark.parametrize("bit", ["<search>", "<answer>", "</answer>", "<think>", "<", "<search><answer>"])
def test_parsers_are_linear(bit: str) -> None:
    text, began = bit * 50_000, time.process_time()
    for parse in (parse_block, parse_search_r1, parse_verl_agent):
        parse(text)
        parse(text, "tolerant")
    read_block(text), read_search_r1(text), read_verl_agent(text), escape(text)
    assert time.process_time() - began < 2
