"""Normalisation, EM, substring EM, F1 and the published rewards, with values from the specification, by hand."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.envs.searchqa import scoring
from seedbench.envs.searchqa.protocols import PROMPT_R1
from seedbench.envs.searchqa.scoring import (
    blocks,
    exact_match,
    f1,
    follows_structure,
    normalise,
    search_r1,
    search_r1_format,
    split_golds,
    substring_match,
    verl_agent,
)

NORMALISED = [
    ("U.S.", "us"), ("it's", "its"), ("state-of-the-art", "stateoftheart"), ("1,000", "1000"), ("3.14", "314"),
    ("$5", "5"), ("_x_", "x"), ("“Smart” quotes", "“smart” quotes"), ("New–York", "new–york"), ("Café", "café"),
    ("İ", "i̇"), ("The", ""), ("A", ""), ("THE an a", ""), ("the Beatles", "beatles"), ("a\tb\n c", "b c"),
    ("theatre an", "theatre"), ("The-Who", "thewho"), ("", ""), ("x the a y", "x y"),
]  # fmt: skip


@pytest.mark.parametrize("text, plain", NORMALISED)
def test_normalise(text: str, plain: str) -> None:
    assert normalise(text) == plain


def test_a_capital_i_with_dot_becomes_two_code_points() -> None:
    assert len(normalise("İ")) == 2


@given(st.text())
def test_normalise_is_what_the_three_steps_say(text: str) -> None:
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    assert normalise(text) == " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


EM = [
    ("Paris", "paris", True), ("the Paris.", ["London", "Paris"], True), ("Paris, France", ["Paris"], False),
    ("the", "A", True), ("", ["!"], True), ("", ["x"], False), ("1000", "1,000", True),
    ("Jonny Craig", 'Jonny" Craig', True),
    ("x", [], False),
]  # fmt: skip


@pytest.mark.parametrize("said, golds, right", EM)
def test_exact_match(said: str, golds: str | list[str], right: bool) -> None:
    assert exact_match(said, golds) is right


@pytest.mark.parametrize(
    "said, golds, right",
    [
        ("Paris, France", ["paris"], True),
        ("Parisian", ["Paris"], True),  # by letters, not by words
        ("Par", ["Paris"], False),
        ("anything", ["the"], True),  # an empty normalised gold is in everything
        ("", ["x"], False),
    ],
)
def test_substring_match(said: str, golds: list[str], right: bool) -> None:
    assert substring_match(said, golds) is right


@pytest.mark.parametrize(
    "said, golds, expected",
    [
        ("Barack Obama", ["Obama"], 2 / 3),
        ("Barack Hussein Obama", ["Barack Obama", "Obama"], 0.8),
        ("b b c", ["b c c"], 2 / 3),  # a multiset: one b and one c in common
        ("the b", ["b"], 1.0),
        ("x", ["y"], 0.0),
        ("the", ["A"], 0.0),  # no word in common, though EM calls them equal
        ("yes", ["yes"], 1.0),
        ("yes it is", ["yes"], 0.0),
        ("no", ["no way"], 0.0),
        ("noanswer", ["answer"], 0.0),
        ("yes it is", ["yes", "it is"], 0.8),  # a closed gold is 0 for that gold alone
        ("x", [], 0.0),
        ("x", "x", 1.0),
    ],
)
def test_f1(said: str, golds: str | list[str], expected: float) -> None:
    assert f1(said, golds) == pytest.approx(expected, abs=0)


@given(st.text(max_size=40), st.lists(st.text(max_size=40), min_size=1, max_size=3))
def test_measures_agree(said: str, golds: list[str]) -> None:
    assert 0 <= f1(said, golds) <= 1
    if exact_match(said, golds):
        assert substring_match(said, golds) and (f1(said, golds) == 1 or not normalise(said))


def test_golds_are_taken_apart() -> None:
    assert split_golds("one<|answer_split|> two <|answer_split|>one") == ("one", "two")
    assert split_golds(["a b", " ", "c<|answer_split|>"]) == ("a b", "c")
    assert split_golds("a b") == ("a b",)
    assert split_golds([]) == ()


@given(st.lists(st.sampled_from(["<answer>", "</answer>", "x", " ", "\n", "<Answer>"]), max_size=12).map("".join))
def test_blocks_are_those_of_a_non_greedy_expression(text: str) -> None:
    assert blocks(text, "answer") == re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)


def test_blocks_are_found_in_linear_time() -> None:
    assert blocks("<answer>" * 200_000, "answer") == []


A = "<answer>{}</answer>".format


@pytest.mark.parametrize(
    "text, paid",
    [
        ("Paris", 0),
        (A("Paris"), 0),  # the one match is the prompt's own
        (A("Beijing") + A("Paris"), 1),
        (A("Paris") + A("London"), 0),  # the last one counts
        (A("x") + A(" the Paris. "), 1),
        (A("x") + "<answer>a<answer>Paris</answer>", 0),  # captures "a<answer>Paris"
        (A("x") + "<Answer>Paris</Answer>", 0),
        (A("x") + A("\nParis\n"), 1),
    ],
)
def test_search_r1(text: str, paid: float) -> None:
    assert search_r1(text, ["Paris"]) == paid


def test_nested_answers_keep_the_inner_tag() -> None:
    assert blocks("<answer>a<answer>b</answer>", "answer") == ["a<answer>b"]


T, Q, I = "<think>t</think>", "<search>q</search>", "<information>Paris it was</information>"  # noqa: E741
RIGHT, WRONG = A("Paris"), A("London")
STRUCTURES = [
    (T + RIGHT, True), (T + Q + I + T + RIGHT, True), (f"{T}\n{Q}\n\n{I}\n\n{T} {RIGHT}\n", True),
    (T + Q + I + T + Q + I + T + RIGHT, True),
    (RIGHT, False), (T + T + RIGHT, False), (T + Q + T + RIGHT, False), (T + Q + I + RIGHT, False),
    (T + Q + I + T, False), (T + RIGHT + "<|im_end|>", False), (T + RIGHT + "more", False), ("so " + T + RIGHT, False),
    (T + "so" + RIGHT, False), (T + RIGHT + RIGHT, False), (T + "<think>" + RIGHT, False), ("", False),
    ("<think>a<think>b</think></think>" + RIGHT, False), (T + "<answer>a<search>b</search></answer>", False),
]  # fmt: skip


@pytest.mark.parametrize("said, valid", STRUCTURES)
def test_structure(said: str, valid: bool) -> None:
    assert follows_structure(PROMPT_R1 + said) is valid
    assert follows_structure("<|im_start|>assistant" + said) is valid
    assert not follows_structure(said)  # without the mark of an assistant's turn


@pytest.mark.parametrize(
    "said, paid",
    [
        (T + RIGHT, 1.0),
        ("so " + T + RIGHT, 0.8),
        (T + WRONG, 0.2),
        ("so " + T + WRONG, 0.1),
        ("nothing", 0.0),
        (T, 0.0),
        (T + RIGHT + "<|im_end|>", 0.8),
    ],
)
def test_search_r1_format(said: str, paid: float) -> None:
    assert search_r1_format(PROMPT_R1 + said, ["Paris"]) == paid


def test_search_r1_format_when_the_prompt_was_cut() -> None:
    """Without the prompt's answer there is one match, so no answer: valid pays the structure, invalid nothing."""
    cut = "<|im_start|>assistant\n"
    assert search_r1_format(cut + T + RIGHT, ["Paris"]) == 0.2
    assert search_r1_format(cut + RIGHT, ["Paris"]) == 0.0


def test_the_retrieval_score_pays_a_found_answer_only_in_a_valid_and_wrong_text() -> None:
    paid = lambda said: search_r1_format(PROMPT_R1 + said, ["Paris"], retrieval=0.1)  # noqa: E731
    assert paid(T + Q + I + T + WRONG) == pytest.approx(0.3)
    assert paid(T + Q + "<information>none</information>" + T + WRONG) == 0.2
    assert paid(T + Q + I + WRONG) == 0.1
    assert paid(T + Q + I + T + RIGHT) == 1.0
    assert (scoring.STRUCTURE, scoring.FINAL, scoring.RETRIEVAL) == (0.2, 0.1, 0.0)


@pytest.mark.parametrize(
    "history, paid",
    [
        (A("Paris"), 1),
        ("<search>q</search><information>" + A("Paris") + "</information>", 1),  # its leak
        (A("Paris") + "<information>" + A("x") + "</information>", 0),
        ("Paris", 0),
    ],
)
def test_verl_agent(history: str, paid: float) -> None:
    assert verl_agent(history, ["Paris"]) == paid
