"""The environment by hand, two ways of writing actions, the prompt, the judge, live search, the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seedbench.cli import main
from seedbench.core import InfrastructureError, SeedbenchError, TextEnv, View
from seedbench.envs.deepsearch import judge as judging
from seedbench.envs.deepsearch.env import DeepSearchEnv
from seedbench.envs.deepsearch.live import open_live
from seedbench.envs.deepsearch.pages import best_window, snippet, windows
from seedbench.envs.deepsearch.prompts import LEFT_OUT, TAGS
from seedbench.envs.deepsearch.tags import Move, escape, parse_calls, parse_tags, read_calls, read_tags, write_calls
from seedbench.exam import make_env
from seedbench.remote import RemoteEnv
from seedbench.serve.app import create_app
from tests.fake_endpoint import FakeEndpoint
from tests.servers import threaded

ENV = "seedbench/DeepSearch-v0"
TASK = "deepsearch-mini/3-hop/3d627808"  # There is a building which was designed by Zulon Vadar and ... Jarapo


def begin(task: str = "", **settings: Any) -> DeepSearchEnv:
    env = make_env(ENV, **settings)
    assert isinstance(env, DeepSearchEnv)
    env.reset(options={"task": task or env.tasks("train")[0].id})
    return env


def test_an_episode_by_hand() -> None:
    env = begin()
    question = env.dataset.question(env.tasks("train")[0].id)
    gold = question.evidence[0].passage
    said, _, _, _, info = env.step(f"<think>let me see</think><search>{question.evidence[0].query}</search>")
    lines = said.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["[1]", "[2]", "[3]", "[4]"] and gold in info["retrieved"]
    assert (info["searches"], info["visits"], info["precision"]) == (1, 0, 1.0) and info["evidence"] > 0
    assert info["admissible"][1:] == [f"<visit>{n}</visit>" for n in (1, 2, 3, 4)]
    number = info["retrieved"].index(gold) + 1
    said, _, _, _, info = env.step(f"<visit>{number}</visit>")
    assert said.startswith(f"[{number}] {question.evidence[0].title}") and info["retrieved"] == [gold]
    said, reward, _, _, info = env.step("<visit>9</visit>")
    assert "no result has the number 9" in said and not info["is_action_valid"] and reward == 0
    _, _, _, _, info = env.step("<search>zzzz qqqq</search>")
    assert info["precision"] == 0.5 and info["retrieved"] == []
    _, reward, terminated, truncated, info = env.step(f"<answer>the {question.golds[0]}.</answer>")
    assert (reward, terminated, truncated, info["won"], info["em"]) == (1.0, True, False, True, 1.0)


def test_a_document_keeps_its_number_and_a_page_goes_by_windows() -> None:
    env = begin(window=80)
    assert env._question is not None
    hop = env._question.evidence[0]
    env.step(f"<search>{hop.query}</search>")
    number = env._browser.numbers()[hop.passage]
    again = env.step(f"<search>{hop.title}</search>")[0]
    assert any(line.startswith(f"[{number}] {hop.title}") for line in again.splitlines())
    parts = windows(next(p for p in env._browser.listed if p.id == hop.passage).text, 80)
    assert len(parts) > 1
    shown = [env.step(f"<visit>{number}</visit>")[0].splitlines()[1] for _ in parts]
    assert shown == parts  # the next part each time
    goal = " ".join(parts[-1].split()[-3:])
    assert env.step(f"<visit>{number} | {goal}</visit>")[0].endswith(parts[best_window(parts, goal)])


def test_windows_hold_all_words_in_order() -> None:
    text = "One two three. Four five! Six seven eight nine ten eleven twelve thirteen. " + "x" * 50
    for size in (1, 7, 20, 1000):
        parts = windows(text, size)
        assert all(len(part) <= size for part in parts) and "".join("".join(parts).split()) == "".join(text.split())
    assert windows("", 10) == [""] and windows("One two. Three four.", 9) == ["One two.", "Three", "four."]
    assert best_window(["a cat sat", "the dogs ran", "a dog and a cat"], "dog cat") == 2
    assert best_window(["a", "b"], "zebra") == 0
    assert snippet("one two three", 8) == "one two..." and snippet("one two", 8) == "one two"


@pytest.mark.parametrize("reply, action", [
    ("<search>a b</search>", "<search>a b</search>"),
    (" <think>a <search>b</search></think>\n<visit>3</visit>", "<think>a <search>b</search></think>\n<visit>3</visit>"),
    ("I think so. <answer>x</answer>", "I think so. <answer>x</answer>"),
    ("<search>a</search> more", ""),
    ("<search>a</search><visit>1</visit>", ""),
    ("<search>a</search><search>b</search>", ""),
    ("<search>a\nb</search>", ""),
    ("<think>never closed <search>a</search>", ""),
    ("<search></search>", ""),
    ("<search>a</visit>", ""),
    ("nothing", ""),
])  # fmt: skip
def test_strict_tags(reply: str, action: str) -> None:
    parsed = parse_tags(reply)
    assert parsed.action == action and parsed.format_valid == bool(action)
    if action:
        assert read_tags(action).kind != "nothing"


@pytest.mark.parametrize("reply, move", [
    ("<search>B c", Move("search", "b c")),
    ("<think>t</think><search>a</search> and <visit>2</visit>", Move("visit", number=2)),
    ("<visit>2 | Its height</visit> ok", Move("visit", "its height", 2)),
    ("<answer>x</search>", Move("answer", "x")),
])  # fmt: skip
def test_tolerant_tags(reply: str, move: Move) -> None:
    parsed = parse_tags(reply, "tolerant")
    assert parsed.format_valid and read_tags(parsed.action) == move
    assert ("<think>t</think>" in parsed.action) == ("<think>t</think>" in reply)


def test_native_calls() -> None:
    for move in (Move("search", 'a "b"'), Move("visit", "its height", 4), Move("visit", number=4), Move("answer", "x")):
        said = f"<think>so</think>\n{write_calls(move)}"
        parsed = parse_calls(said)
        assert parsed.format_valid and parsed.action == said and read_calls(said) == move
        assert read_calls(parse_calls(said.removesuffix("</tool_call>"), "tolerant").action) == move
    for bad in (
        '{"name": "search"}',
        '{"name": "buy", "arguments": {}}',
        "[1]",
        "{",
        '{"name":"visit","arguments":{"id":"x"}}',
    ):
        assert not parse_calls(f"<tool_call>{bad}</tool_call>").format_valid
    assert not parse_calls("<search>a</search>").format_valid


def test_the_expert_wins_with_native_calls() -> None:
    env = begin(prompt="tools")
    assert env.PROMPT.name == "deepsearch-tools-v1" and env.PROMPT.digest() != begin().PROMPT.digest()
    won = False
    while not won:
        action = env.expert()
        assert action is not None and env.parse(env.PROMPT.reply(action)).action == action
        won = env.step(action)[-1]["won"]


def test_who_goes_by_the_anchors_is_there_sooner() -> None:
    """Straight to the last page that they name, also in the midst of an episode."""
    env = begin()

    def steps(task: str, before: int) -> int:
        """With `before` steps of the expert's first."""
        env.reset(options={"task": task})
        for n in range(1, 20):
            action = env.expert() if n <= before else env.informed()
            assert action is not None
            if n == 1 > before:
                assert action in {f"<search>{a.title}</search>" for a in env.anchors(tasks[task])}
            if env.step(action)[-1]["won"]:
                return n
        raise AssertionError(f"{task} was not won")

    tasks = {task.id: task for task in env.tasks("train")[:40]}
    told, alone, late = ([steps(task, before) for task in tasks] for before in (0, 20, 2))
    assert sum(told) < 0.8 * sum(alone) and all(a <= b for a, b in zip(told, alone, strict=True))
    assert sum(told) < sum(late)


def test_tags_in_pages_and_questions_are_spelled_out() -> None:
    assert escape("a <visit>1</visit> <|im_end|> <tool_call> b < c") == (
        "a &lt;visit>1&lt;/visit> &lt;|im_end|> &lt;tool_call> b < c"
    )


def test_the_oldest_observations_are_left_out_first() -> None:
    import dataclasses

    prompt = dataclasses.replace(TAGS, room=10)
    past = (("first", "A"), ("x" * 7, "B"), ("y" * 4, "C"), ("z" * 5, "D"))
    text = prompt.render(View("goal", "now", (), past))[1]["content"]
    assert text.split("\n\n")[1].splitlines() == [
        "Past steps 1-4:",
        "> A",
        LEFT_OUT,
        "> B",
        "y" * 4,
        "> C",
        "z" * 5,
        "> D",
    ]
    whole = dataclasses.replace(prompt, room=1000).render(View("goal", "now", (), past))[1]["content"]
    assert LEFT_OUT not in whole and "x" * 7 in whole
    assert prompt.digest() != dataclasses.replace(prompt, room=11).digest()


@pytest.mark.parametrize("settings, match", [
    ({"prompt": "xml"}, "no prompt"), ({"top_k": 0}, "top_k"), ({"max_steps": 0}, "max_steps"), ({"room": 0}, "room"),
    ({"data": "/nowhere"}, "not there"), ({"judge": "x@httpnonsense"}, "--judge"),
])  # fmt: skip
def test_wrong_settings_are_refused_with_a_sentence(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SeedbenchError, match=match):
        make_env(ENV, **settings)


# --- the judge


def says(*texts: str) -> FakeEndpoint:
    def act(text: str) -> Any:
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}  # fmt: skip
        return lambda handler: handler.send(json.dumps(body).encode())

    return FakeEndpoint(*map(act, texts))


def test_a_judge_is_asked_once_and_its_verdicts_are_kept_without_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(judging.FILE, str(tmp_path / "verdicts.jsonl"))
    judging.open_judge.cache_clear()
    with says("no word", "Same town. Verdict: right", "verdict: wrong") as endpoint:
        env = begin(judge=f"m@{endpoint.url}")
        assert env.step("<answer>that other town</answer>")[1] == 1.0 and len(endpoint.requests) == 2
        env.reset(options={"task": env.tasks("train")[0].id})
        assert env.step("<answer>that other town</answer>")[-1]["won"] and len(endpoint.requests) == 2
        env.reset(options={"task": env.tasks("train")[0].id})
        _, reward, terminated, _, info = env.step("<answer>nothing</answer>")
        assert (reward, terminated, info["won"], info["em"]) == (0.0, True, False, 0.0)
        assert endpoint.requests[0]["json"]["temperature"] == 0
    assert env._question is not None and env._question.golds[0] not in (tmp_path / "verdicts.jsonl").read_text()
    judging.open_judge.cache_clear()
    known = begin(judge="m")  # without an endpoint: what is in the file
    assert known.digest() == env.digest() != begin().digest() and known.judge_prompt == judging.prompt_digest()
    assert known.step("<answer>that other town</answer>")[1] == 1.0
    known.reset(options={"task": known.tasks("train")[0].id})
    with pytest.raises(InfrastructureError, match=judging.URL):
        known.step("<answer>something new</answer>")


# --- live search

WEB = """
class Web:
    name = "two pages"
    calls = 0
    def search(self, query, k):
        Web.calls += 1
        return [("http://a", "A", "the beginning of a"), ("http://b", "B", "of b")][:k]
    def page(self, url):
        Web.calls += 1
        if url == "http://b":
            raise OSError("gone")
        return "The whole of page a. " * 3
"""


def test_live_search_is_recorded_and_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_web.py").write_text(WEB)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "Which page is it", "answer": "A"}) + "\n")
    record = tmp_path / "record"

    def episode(retriever: str) -> tuple[list[Any], TextEnv]:
        env = make_env(ENV, data=tmp_path / "q.jsonl", retriever=retriever, split="seen")
        env.reset(seed=0)
        return [env.step(a)[:4] for a in ("<search>x</search>", "<visit>1</visit>", "<visit>1</visit>")], env

    first, env = episode(f"live:my_web:Web@{record}")
    assert "the beginning of a" in first[0][0] and "The whole of page a." in first[1][0]
    import my_web

    assert my_web.Web.calls == 2 and env.replay == "exact"
    with pytest.raises(InfrastructureError, match="gone"):
        env.step("<visit>2</visit>")
    again, other = episode(f"live:{record}")
    assert again == first and other.digest() == env.digest() and my_web.Web.calls == 3
    with pytest.raises(InfrastructureError, match="holds no answer"):
        other.step("<search>something else</search>")
    for bad in ("live:", "live:my_web@x", f"live:{tmp_path / 'none'}", f"live:no_such:Web@{record}"):
        with pytest.raises(SeedbenchError):
            open_live(bad)


# --- the command line


def test_a_run_verifies_and_plays_again_to_the_byte(tmp_path: Path) -> None:
    run = tmp_path / "run"
    what = ["eval", "--agent", "random", "--env", "deepsearch", "--limit", "4", "--preset", "tools"]
    main([*what, "--out", str(run), "--quiet"])
    results = json.loads((run / "results.json").read_text())
    for row in results["results"]:
        assert set(row["metrics"]) == {"evidence", "f1", "precision", "searches", "visits"} and not row["errors"]
    settings = results["protocol"]["environments"][ENV]["settings"]
    assert settings["prompt"] == "tools" and settings["judge"] == ""
    main(["verify", str(run)])
    main(["eval", "--agent", f"replay:{run}", "--out", str(tmp_path / "again"), "--quiet"])
    name = "trajectories.jsonl.gz"
    assert (run / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_over_http_prompt_and_parser_follow_the_servers_settings(tmp_path: Path) -> None:
    here, there, name = tmp_path / "here", tmp_path / "there", "trajectories.jsonl.gz"
    with threaded(create_app(ENV, partial(make_env, ENV, prompt="tools"))) as url:
        env, local = RemoteEnv(ENV, url), make_env(ENV, prompt="tools")
        assert env.PROMPT == local.PROMPT and env.digest() == local.digest() and not env.withheld
        what = ["--agent", "random", "--env", "deepsearch", "--limit", "3", "--preset", "tools"]
        main(["eval", *what, "--out", str(here), "--quiet"])
        main(["eval", "--agent", f"replay:{here}", "--server", url, "--out", str(there), "--quiet"])
    assert (here / name).read_bytes() == (there / name).read_bytes()
