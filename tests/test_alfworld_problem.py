"""Reading PDDL problems: the six goals, and refusals in one sentence of whatever else comes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import SeedbenchError
from seedbench.envs.alfworld.engine import Game
from seedbench.envs.alfworld.problem import Goal, parse_problem
from tests.alfworld_house import GOALS, TASK, house


def test_goals_of_all_kinds() -> None:
    assert {name: parse_problem(house(name)).goal for name in GOALS} == {
        "place": Goal("booktype", "drawertype"),
        "clean": Goal("mugtype", "countertoptype", "clean"),
        "heat": Goal("appletype", "fridgetype", "hot"),
        "cool": Goal("potatotype", "countertoptype", "cool"),
        "two": Goal("penciltype", "drawertype", count=2),
        "look": Goal("booktype", lamp="desklamptype"),
    }


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(house()) - 1))
def test_a_cut_problem_is_refused_with_one_sentence(length: int) -> None:
    with pytest.raises(SeedbenchError, match=r"this PDDL problem is not one of ALFWorld's: .*again\.$"):
        parse_problem(house()[:length])


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(SeedbenchError):
        parse_problem(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_problem_parses_or_is_refused(data: st.DataObject) -> None:
    """Cut a piece out anywhere: never another exception than SeedbenchError, from the parser or the compiler."""
    text = house(data.draw(st.sampled_from(sorted(GOALS))))
    a, b = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    try:
        Game(text[:a] + text[b:], TASK)
    except SeedbenchError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("(:domain alfred)", "(:domain blocks)", "domain is not alfred"),
        ("(openable Drawer_bar_1)", "(flies Drawer_bar_1)", "unknown fact"),
        ("(openable Drawer_bar_1)", "()", "unknown fact"),
        ("(openable Drawer_bar_1)", "(openable)", "not of the types"),
        ("(openable Drawer_bar_1)", "(openable Book_bar_1)", "not of the types"),
        ("(openable Drawer_bar_1)", "(not (openable Drawer_bar_1))", "more than plain facts"),
        ("(objectType ?o BookType)", "(objectType ?o BookType) (isHot ?o)", "none of the six kinds"),
        ("\n)\n(:init", " Stray\n)\n(:init", "without a type"),
        ("(:goal (and", "(:goal () (and", "not one condition"),
        ("(:goal (and", "(:goal (and ()", "malformed"),
        ("(:goal (and", "(:goal (and " + "(" * 500 + ")" * 500, "too long"),
    ],
)
def test_strange_problems_are_refused(old: str, new: str, why: str) -> None:
    assert old in house()
    with pytest.raises(SeedbenchError, match=re.escape(why)):
        parse_problem(house().replace(old, new, 1))


@pytest.mark.parametrize("fact", ["objectType Book_bar_1 MugType", "receptacleAtLocation Drawer_bar_1 l1"])
def test_two_values_where_one_belongs_are_refused(fact: str) -> None:
    with pytest.raises(SeedbenchError, match="more than one"):
        Game(house(more=f"({fact})"), TASK)


def test_a_game_without_an_agent_is_refused() -> None:
    with pytest.raises(SeedbenchError, match="exactly one agent"):
        Game(house().replace("(atLocation agent1 l0)", ""), TASK)


def test_comments_and_case_do_not_matter() -> None:
    assert parse_problem(house().upper() + "\n; the end (") == parse_problem(house())
