"""Asking an endpoint for many answers: what stops the run, what is one question's own failure, and what is paid for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.baselines.asking import Asking
from seedbench.commands.common import Terms
from seedbench.core import Message, SeedbenchError
from tests import fake_endpoint as fake
from tests.fake_endpoint import FakeEndpoint

NAMES = ["a", "b", "c", "d"]
LONG = "the prompt is too long"


def question(name: str) -> list[Message]:
    return [{"role": "user", "content": f"What is {name}?"}]


class Asked:
    """One call: the answers it kept by question, the errors, and why it stopped."""

    def __init__(self, server: FakeEndpoint, file: Path, retry_refused: bool = False, **terms: Any):
        self.kept: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        how = Terms(**{"concurrency": 1, "retries": 0, "max_new_tokens": 10, **terms})
        self.asking = Asking(f"openai:m@{server.url}", how, file, "questions", "--by", retry_refused)
        self.left = self.asking.run({name: question(name) for name in NAMES}, self.keep)

    def keep(self, keys: list[str], row: dict[str, Any]) -> None:
        for key in keys:
            (self.errors if row["error"] else self.kept)[key] = row["error"] or row["text"]


def refuses_b(h: fake.Handler) -> None:
    asked = h.request_json["messages"][0]["content"]
    (fake.error(400, LONG) if asked == question("b")[0]["content"] else fake.says("yes"))(h)


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("act, words", [
    (fake.error(404, "the model m does not exist"), "has no model m (the model m does not exist)"),
    (fake.error(400, "API key not valid"), "refuses the request (400, API key not valid)"),
    (fake.error(401, "no such key"), "refuses the key (401, no such key)"),
    (fake.status(404, "<html>"), "does the URL end in /v1?"),
])  # fmt: skip
def test_a_wrong_call_stops_and_keeps_nothing_but_answers(
    act: fake.Act, words: str, concurrency: int, tmp_path: Path
) -> None:
    file = tmp_path / "answers"
    with FakeEndpoint(act) as server:
        first = Asked(server, file, concurrency=concurrency)
        assert first.left.startswith("4 questions are left: ") and words in first.left and not first.kept
        assert not first.errors and len(server.requests) <= concurrency + 1
        server.acts = (fake.says("yes"),)
        assert Asked(server, file).kept == dict.fromkeys(NAMES, "yes")


def test_a_model_that_goes_away_stops_the_run(tmp_path: Path) -> None:
    with FakeEndpoint(fake.says("yes"), fake.error(404, "the model m does not exist")) as server:
        call = Asked(server, tmp_path / "answers")
        assert call.left.startswith("3 questions are left") and call.kept == {"a": "yes"} and not call.errors


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_refused_question_is_its_own_failure_until_it_is_wanted_again(concurrency: int, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with FakeEndpoint(refuses_b) as server:
        for _ in range(2):
            call = Asked(server, file, concurrency=concurrency)
            assert call.left == "" and sorted(call.kept) == ["a", "c", "d"] and LONG in call.errors["b"]
        n = len(server.requests)
        assert n == 4 + 1  # with a control question, which tells whose fault it is
        server.acts = (fake.says("now"),)
        call = Asked(server, file, retry_refused=True)
        assert call.kept["b"] == "now" and not call.errors and len(server.requests) == n + 1
        assert Asked(server, file).kept["b"] == "now"


def metered(h: fake.Handler) -> None:
    """Answers without a count of tokens, so that the bound counts."""
    answer = json.loads(fake.completion("yes"))
    del answer["usage"]
    h.send(json.dumps(answer).encode())


MOST = len("What is a?") + 64 + 10  # of one request: bytes, template, answer


@pytest.mark.parametrize("act, counted", [
    (fake.status(503), 2), (fake.body("no json"), 2), (fake.status(429), 0), (fake.error(400, LONG), 0),
])  # fmt: skip
def test_tries_that_may_be_billed_count_for_ever(act: fake.Act, counted: int, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    with FakeEndpoint(act) as server:
        first = Asked(server, file, retries=1)
        assert first.left and first.asking.lost.prompt + first.asking.lost.answer == counted * MOST
        server.acts = (metered,)
        second = Asked(server, file, budget_tokens=(counted + 2) * MOST)
        assert sorted(second.kept) == ["a", "b"] and "2 questions are left" in second.left
        assert "--budget-tokens" in second.left


def test_no_try_goes_beyond_the_budget(tmp_path: Path) -> None:
    with FakeEndpoint(fake.status(503)) as server:
        call = Asked(server, tmp_path / "answers", concurrency=2, retries=4, budget_tokens=4 * MOST)
        assert 2 <= len(server.requests) <= 4 and call.left.startswith("4 questions are left")
        n = len(server.requests)
        call = Asked(server, tmp_path / "answers", budget_tokens=n * MOST)
        assert len(server.requests) == n and f"--budget-tokens {n * MOST}: raise it to go on" in call.left


def test_a_server_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    with FakeEndpoint(metered) as server:
        pass
    call = Asked(server, tmp_path / "answers")
    assert "cannot be reached" in call.left and call.asking.lost.prompt == 0


@pytest.mark.parametrize("row", [
    [], 5, {}, {"digest": 1}, {"digest": "x", "analyzer": "m", "text": "", "usage": [1], "error": ""},
    {"digest": "x", "analyzer": "m", "text": None, "usage": [0, 0], "error": ""},
    {"digest": "x", "analyzer": "m", "text": "", "usage": [0, -1], "error": ""},
])  # fmt: skip
def test_answers_of_another_shape_are_named_by_line(row: Any, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    file.write_text(json.dumps(row) + "\n")
    with FakeEndpoint(metered) as server, pytest.raises(SeedbenchError, match="answers, line 1, is damaged") as caught:
        Asked(server, file)
    assert "pydantic" not in str(caught.value) and not server.requests


def test_messages_name_the_options_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match=r"^--by openai:m names no model"):
        Asking("openai:m", Terms(), tmp_path / "answers", "questions", "--by")
    with FakeEndpoint(fake.hangs()) as server:
        assert "a smaller --concurrency may help" in Asked(server, tmp_path / "answers", deadline=0.05).left
