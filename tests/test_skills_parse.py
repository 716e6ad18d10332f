"""What analyzers may say, and the lesson that is read out of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.baselines.skills.analysis import dumps
from seedbench.baselines.skills.parse import LONGEST_SKILL, LONGEST_SUMMARY, LONGEST_TEXT, clean, parse
from seedbench.core import Lesson

GOOD = '{"episode_summary":"It worked.","episode_skill":"Open what is closed."}'
LESSON = Lesson("It worked.", "Open what is closed.")
DEEP = 100_000
PIECES = [*"{}[]()'\",:\\-\n ", '"episode_skill"', "'episode_skill'", "episode_summary", "true", "1e999", "<think>",
          "</think>", "```", "é", "\x00", "\ud800"]  # fmt: skip


@pytest.mark.parametrize("text", [
    GOOD,
    f"```json\n{GOOD}\n```",
    f"Sure! Here it is:\n\n```\n{GOOD}\n```\nLet me know {{if}} you need more.",
    f"<think>Maybe {{\"episode_skill\": \"Run.\"}}?</think>{GOOD}",
    GOOD[:-1] + ",}",
    GOOD[:-1] + " , \n }",
    "{'episode_summary': 'It worked.', 'episode_skill': 'Open what is closed.',}",
    "{'episode_summary': \"It worked.\", 'episode_skill': 'Open what is closed.'} {",
    '{"episode_summary": "no lesson yet"}\n' + GOOD,
    '{"episode_skill": ""} {"episode_skill": 7} ' + GOOD,
    '{"episode_skill": "the lesson", "episode_summary": "what happened"} ' + GOOD,
    GOOD + ' {"episode_skill": "Another one."}',
    '{"result": ' + GOOD + "}",
    '{"episode_summary":"It worked.","steps":[{"a":{}}],"episode_skill":"Open what is closed."}',
    '{"episode_summary":"It\nworked.","episode_skill":"Open\twhat is  closed."}',
    "{" * DEEP + GOOD,
    '{"a":' * DEEP + GOOD,
    "x" * (LONGEST_TEXT + 5) + GOOD,
    GOOD + "}" * DEEP,
])  # fmt: skip
def test_a_lesson_is_found_whatever_stands_around_it(text: str) -> None:
    assert parse(text) == LESSON


@pytest.mark.parametrize("text", [
    "", "null", "[]", '"episode_skill"', "{}", "episode_skill" * 10_000, '{"episode_skill' * 10_000,
    '{"episode_skill": ["Open it."]}', '{"episode_skill": null}', '{"episode_skill": "..."}', '{"episode_skill": "  "}',
    '{"episode_skill": "Open it', '{"episode_summary": "It worked."}', "{'episode_skill': open('x').read()}",
    "{'episode_skill': 'a' * 9}", "{'episode_skill': f'{1}'}", "{'episode_skill': " + "(" * DEEP,
    "{'episode_skill': " + "-" * 8_000 + "1}", '{"episode_skill": ' + "[" * DEEP,
    '{"episode_skill": ' + "9" * 9_000 + "}",
    "{" * DEEP + '"episode_skill": "x"', '{"episode_skill":' * DEEP, "{'episode_skill': '" + "\\" * DEEP,
    "<think>" * DEEP, "," + " " * DEEP + "}" + '{"episode_skill":',
])  # fmt: skip
def test_no_usable_lesson(text: str) -> None:
    assert parse(text) is None


def test_other_languages_and_lone_surrogates_and_marks_of_chat_templates() -> None:
    assert parse('{"episode_skill":"先打开关着的柜子。"}') == Lesson("", "先打开关着的柜子。")
    assert parse('{"episode_skill":"a\\ud800b <|im_end|>"}') == Lesson("", "a?b < |im_end|>")


def test_both_texts_are_cut_at_a_word() -> None:
    told = parse(json.dumps({"episode_summary": "sum " * 5_000, "episode_skill": "word " * 9_000}))
    assert told is not None
    assert told.skill == " ".join(["word"] * ((LONGEST_SKILL + 1) // 5))
    assert told.summary == " ".join(["sum"] * ((LONGEST_SUMMARY + 1) // 4))
    assert clean("x" * 999, 9) == "x" * 9


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text(), st.text(max_size=40), st.text(max_size=40))
def test_what_is_dumped_is_read_back(summary: str, skill: str, before: str, after: str) -> None:
    """Prose around it changes nothing, as long as it opens no thought and names no skill of its own."""
    told = parse(before.replace("<", "") + dumps(Lesson(summary, skill)) + after)
    skill = clean(skill, LONGEST_SKILL)
    assert told == (Lesson(clean(summary, LONGEST_SUMMARY), skill) if skill else None)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_hostile_text_never_raises(text: str) -> None:
    told = parse(text)
    assert told is None or (told.skill == clean(told.skill, LONGEST_SKILL) != "")
