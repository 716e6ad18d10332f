"""`seedbench skills`: collect, annotate, validate, export, each of them stopped in the middle and gone on with."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.agents import load_agent
from seedbench.agents.scripted import say
from seedbench.baselines.lines import write_lines
from seedbench.baselines.skills import analysis, leaks, store, utility
from seedbench.baselines.skills.collect import balanced
from seedbench.baselines.skills.parse import parse
from seedbench.core import Agent, Reply, SeedbenchError, Task, TextEnv, View
from seedbench.exam import Config, plan
from seedbench.record import locked
from seedbench.rollout import Episode, play
from tests import fake_endpoint as fake
from tests.command import run
from tests.fake_endpoint import FakeEndpoint

ANSWER = '{"episode_summary":"It went wrong.","episode_skill":"Open what is closed before you look elsewhere."}'
BAD = "I cannot say."


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def collect(out: Path, env: str = "alfworld", agent: str = "random", tasks: int = 6, trials: int = 1) -> Path:
    run("skills", "collect", "--env", env, "--agent", agent, "--out", out, "--tasks", tasks, "--trials", trials,
        "--max-steps", 4)  # fmt: skip
    return out


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.data())
@settings(max_examples=60, deadline=None)
def test_tasks_are_balanced_by_kind_and_in_order(kinds: list[str], data: st.DataObject) -> None:
    tasks = [Task(str(place), "e", "train", kind) for place, kind in enumerate(kinds)]
    n = data.draw(st.integers(1, len(tasks)))
    chosen = balanced(tasks, n, seed=1)
    assert chosen == balanced(tasks, n, seed=1) and len(chosen) == n
    assert [int(task.id) for task in chosen] == sorted({int(task.id) for task in chosen})
    there, got = Counter(kinds), Counter(task.kind for task in chosen)
    fewest = min((got[k] for k in there if got[k] < there[k]), default=n)
    assert all(got[k] <= fewest + 1 for k in there), "only a kind that ran out stays behind"
    with pytest.raises(SeedbenchError, match="or fewer"):
        balanced(tasks, len(tasks) + 1, seed=1)


@pytest.mark.parametrize("env", ["alfworld", "webshop", "searchqa"])
def test_a_line_gives_back_what_analyzers_are_told(env: str) -> None:
    exam = plan(Config("random", env=env, split="train", max_steps=5))[0]
    there = exam.make()
    for t in play(exam.make, map(Episode, exam.tasks["train"][:4]), load_agent("random"), prompt=exam.prompt):
        again = store.trajectory_of(json.loads(json.dumps(store.line_of(t))))
        assert analysis.messages(again) == analysis.messages(t)
        assert there.lesson(again) == there.lesson(t)
        assert [s.view.history for s in again.steps] == [s.view.history for s in t.steps]
        assert (again.task, again.seed, again.score, again.ended) == (t.task, t.seed, t.score, t.ended)


@pytest.mark.parametrize("env", ["webshop", "searchqa"])
def test_from_episodes_to_rows_without_an_endpoint(
    env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = collect(tmp_path / "p", env, "expert", tasks=10)  # some of which four steps are too few for
    run("skills", "annotate", project)
    run("skills", "validate", project)
    assert re.search(r"10 lessons of rule \(\d+ after a success\), 10 readable, 10 valid", capsys.readouterr().out)
    run("skills", "export", project, "--val", 0.2)
    train, val = rows(project / "sft.jsonl"), rows(project / "sft_val.jsonl")
    assert (len(train), len(val)) == (8, 2)
    assert not {r["task"] for r in train} & {r["task"] for r in val}
    episodes = {store.key(t): t for t in store.trajectories(project)}
    there = store.exam_of(project).make()
    for row in train + val:
        t = episodes[row["task"], row["trial"]]
        assert row["messages"] == analysis.messages(t) and parse(row["completion"]) == there.lesson(t)


def test_a_killed_collection_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = collect(tmp_path / "whole", tasks=4, trials=2)
    cut = collect(tmp_path / "cut", tasks=4, trials=2)
    raw = (cut / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "trajectories.jsonl").write_bytes(b"".join(raw[:3]) + raw[3][:50])
    run("skills", "collect", "--resume", cut)
    assert (cut / "trajectories.jsonl").read_bytes().startswith(b"".join(raw[:3]))
    assert sorted(map(str, rows(cut / "trajectories.jsonl"))) == sorted(map(str, rows(whole / "trajectories.jsonl")))
    run("skills", "collect", "--env", "alfworld", "--agent", "random", "--out", cut, "--tasks", 5, "--trials", 2,
        "--max-steps", 4, code=2)  # fmt: skip
    assert "another --tasks" in capsys.readouterr().err
    (cut / "trajectories.jsonl").write_bytes(b"nothing\n" + b"".join(raw))
    run("skills", "collect", "--resume", cut, code=2)
    assert "line 1, is damaged" in capsys.readouterr().err


def asked(server: FakeEndpoint) -> list[str]:
    return [r["json"]["messages"][0]["content"] for r in server.requests]


def test_an_endpoint_is_asked_once_for_each_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = collect(tmp_path / "p")
    with FakeEndpoint(fake.status(500), fake.says(BAD), fake.says(ANSWER)) as server:
        how = ["skills", "annotate", project, "--analyzer", f"openai:m@{server.url}", "--concurrency", 1]
        run(*how, "--price-in", 100, "--price-out", 1000)
        out = capsys.readouterr().out
        assert (
            "66 prompt and 42 answer tokens, cost 0.0486" in out
            and "6 of 6 episodes" in out
            and "5 with a skill" in out
        )
        assert asked(server)[1:] == [analysis.messages(t)[0]["content"] for t in store.trajectories(project)]
        assert {(r["json"]["temperature"], r["json"]["max_tokens"]) for r in server.requests} == {(0.0, 1024)}
        (project / "lessons.jsonl").unlink()  # what was paid for is kept apart
        run(*how)
        assert len(server.requests) == 7 and "6 of 6 episodes" in capsys.readouterr().out
    run("skills", "validate", project)
    assert "5 readable, 5 valid\n  unreadable: 1" in capsys.readouterr().out
    run("skills", "export", project, "--val", 0)
    assert [parse(r["completion"]) for r in rows(project / "sft.jsonl")] == [parse(ANSWER)] * 5


def test_an_answer_that_no_file_can_hold_is_kept_all_the_same(tmp_path: Path) -> None:
    project = collect(tmp_path / "p", tasks=1)
    with FakeEndpoint(fake.says(ANSWER + " \ud800 <|im_end|>")) as server:
        run("skills", "annotate", project, "--analyzer", f"openai:m@{server.url}")
    assert [r["text"] for r in rows(project / "answers.jsonl")] == [ANSWER + " ? <|im_end|>"]
    assert [bool(r["skill"]) for r in rows(project / "lessons.jsonl")] == [True]


def metered(h: fake.Handler) -> None:
    """Answers, and counts as many tokens as there can be."""
    prompt = len(h.request_json["messages"][0]["content"].encode())
    answer = json.loads(fake.completion(ANSWER))
    answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": h.request_json["max_tokens"]}
    h.send(json.dumps(answer).encode())


@pytest.mark.parametrize("flag, of", [("--budget-tokens", lambda n: n), ("--budget", lambda n: n * 2 / 1e6)])
def test_a_budget_is_never_passed_and_can_be_raised(
    flag: str, of: Callable[[int], float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = collect(tmp_path / "p")
    sizes = [len(analysis.messages(t)[0]["content"].encode()) for t in store.trajectories(project)]
    with FakeEndpoint(metered) as server:
        how = ["skills", "annotate", project, "--analyzer", f"openai:m@{server.url}", "--price-in", 2, "--price-out", 2,
               "--max-new-tokens", 100, "--concurrency", 2, flag]  # fmt: skip
        run(*how, of(min(sizes) + 100), code=1)  # less than the first request could take
        assert not server.requests and "6 episodes are left" in capsys.readouterr().err
        most = sum(sizes[:3]) + 600
        run(*how, of(most), code=1)
        assert "raise it to go on" in capsys.readouterr().err
        assert 2 <= len(server.requests) < 6 and sum(len(text.encode()) + 100 for text in asked(server)) <= most
        run(*how, of(10 * sum(sizes)))
        assert len(server.requests) == len(set(asked(server))) == 6


def test_an_outage_leaves_the_rest_for_the_next_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = collect(tmp_path / "p")
    with FakeEndpoint(fake.says(ANSWER), fake.status(401), fake.says(ANSWER)) as server:
        how = ["skills", "annotate", project, "--analyzer", f"openai:m@{server.url}", "--concurrency", 1]
        run(*how, code=1)
        assert "refuses the key" in capsys.readouterr().err and len(rows(project / "lessons.jsonl")) == 1
        run(*how)
    assert len(rows(project / "lessons.jsonl")) == 6


@pytest.mark.parametrize("skill, why", [
    ("Open what is closed before you go.", []),
    ("", ["unreadable"]),
    ("Go on.", ["too short"]),
    ("先打开关着的柜子。", []),
    ("word " * 61, ["too long"]),
    ("Look into {thing} before you look elsewhere.", ["numbers of this task"]),
    ("Open at most 2 of the many drawers.", []),
    ("Open drawer 99 before you look elsewhere.", []),
])  # fmt: skip
def test_reasons_against_a_lesson(
    skill: str, why: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = collect(tmp_path / "p", tasks=1)
    (t,) = store.trajectories(project)
    thing = re.search(r"[a-z]+ \d+", t.steps[0].view.observation)
    assert thing
    row = {"task": t.task.id, "trial": 0, "analyzer": "x", "text": "", "summary": "", "error": "",
           "skill": skill.replace("{thing}", thing.group())}  # fmt: skip
    write_lines(project / "lessons.jsonl", [row])
    run("skills", "validate", project)
    assert rows(project / "validated.jsonl")[0]["reasons"] == why


@pytest.mark.parametrize("env", ["webshop", "searchqa"])
def test_a_skill_that_tells_the_answer_is_rejected(env: str, tmp_path: Path) -> None:
    project = collect(tmp_path / "p", env, tasks=1)
    (t,) = store.trajectories(project)
    secrets = store.exam_of(project).make().secrets(t.task)
    assert secrets
    for secret in secrets:
        skill = f"In the end the thing is {secret.upper()}, so take it."
        write_lines(project / "lessons.jsonl", [{"task": t.task.id, "trial": 0, "analyzer": "x", "text": "",
                                                       "summary": "", "skill": skill, "error": ""}])  # fmt: skip
        run("skills", "validate", project)
        assert "tells the answer" in rows(project / "validated.jsonl")[0]["reasons"]


def test_leaks_are_whole_words() -> None:
    assert list(leaks.answers("Buy the Red-Hat, quickly.", ["red hat", "hat quick", "", "?"])) == ["red hat"]
    assert list(leaks.numbers("Open drawer 2, then 40 and 7.", ["a drawer 2", "$40.0 or 7"])) == ["drawer 2"]
    assert list(leaks.numbers("Pay 40.0, not 55", ["$40.0 for 55 things"])) == ["40.0", "55"]


class Reader(Agent):
    """The expert where there is a lesson, nobody where there is none."""

    name = "reader"
    needs_env: ClassVar[bool] = True
    calls = 0

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        Reader.calls += len(views)
        return [
            say(env, (env.expert() or "") if view.hint else "") for view, env in zip(views, envs or (), strict=True)
        ]


def test_utility_is_the_difference_that_a_skill_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "p"
    run("skills", "collect", "--env", "searchqa", "--agent", "random", "--out", project, "--tasks", 4, "--trials", 2)
    run("skills", "annotate", project)
    monkeypatch.setattr(utility, "load_agent", lambda spec, **options: Reader())
    how = ["skills", "validate", project, "--utility", "--agent", "reader", "--min-gain", 0.5]
    run(*how)
    assert "all: 0.000 plain, 1.000 with the skill, +1.000 [+1.000, +1.000] over 4 tasks" in capsys.readouterr().out
    assert {r["gain"] for r in rows(project / "validated.jsonl")} == {1.0}
    before = Reader.calls
    run(*how)
    assert Reader.calls == before, "what was played is kept"
    monkeypatch.setattr(utility, "load_agent", lambda spec, **options: load_agent("null"))
    run(*how[:5], "null", *how[6:])
    assert all(r["reasons"] == ["no gain"] for r in rows(project / "validated.jsonl"))
    run("skills", "export", project, code=2)
    assert "holds no valid lesson" in capsys.readouterr().err


@pytest.mark.parametrize("args, said", [
    (["annotate", "{p}"], "is no skills project"),
    (["validate", "{p}"], "is no skills project"),
    (["export", "{p}"], "is no skills project"),
    (["collect", "--resume", "{p}"], "is no skills project"),
    (["collect", "--resume", "{p}", "--seed", 1], "leave out --seed"),
    (["collect", "--env", "alfworld", "--out", "{p}"], "--agent is missing"),
    (["collect", "--env", "all", "--agent", "null", "--out", "{p}"], "one environment"),
    (["collect", "--env", "alfworld", "--agent", "null", "--out", "{p}", "--tasks", 10_000], "or fewer"),
    (["annotate", "{p}", "--analyzer", "gpt"], "--analyzer gpt is not known"),
    (["annotate", "{p}", "--budget", 1], "needs --price-in"),
    (["annotate", "{p}", "--deadline", "nan"], "--deadline is nan"),
    (["validate", "{p}", "--utility", "--min-gain", "nan"], "--min-gain is nan"),
])  # fmt: skip
def test_mistakes_get_one_sentence_and_write_nothing(
    args: list[Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("skills", *(str(a).replace("{p}", str(tmp_path / "p")) for a in args), code=2)
    assert said in capsys.readouterr().err and not (tmp_path / "p").exists()


LESSON = {"task": "t", "trial": 0, "analyzer": "x", "text": "", "summary": "", "skill": "Go on.", "error": ""}
CHECKED = {**LESSON, "success": True, "reasons": []}
PLAYED = {"agent": "a", "task": "t", "trial": 0, "skill": "", "success": True}
OTHER: list[Any] = [[], 5, None, {}]


@pytest.mark.parametrize("command, file, bad", [
    *(("annotate", "trajectories", row) for row in [*OTHER, {"record": 1}]),
    *(("annotate", "lessons", row) for row in [*OTHER, {**LESSON, "task": 1}]),
    *(("validate", "lessons", row) for row in [*OTHER, {**LESSON, "trial": "0"}, {**LESSON, "skill": None}]),
    *(("export", "validated", row) for row in [*OTHER, LESSON, {**CHECKED, "reasons": "none"}]),
    *(("validate --utility", "utility", row) for row in [*OTHER, {**PLAYED, "success": 1}]),
])  # fmt: skip
def test_rows_of_another_shape_are_named_by_line(
    command: str, file: str, bad: Any, project_of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Path(shutil.copytree(project_of_two, tmp_path / "p"))
    good = (project / f"{file}.jsonl").read_text()
    (project / f"{file}.jsonl").write_text(good + json.dumps(bad) + "\n")
    before = {path: path.read_bytes() for path in project.glob("*.json*")}
    run("skills", *command.split(), project, code=2)
    said = " ".join(capsys.readouterr().err.split())
    assert f"{file}.jsonl, line 3, is damaged" in said and "pydantic" not in said
    assert {path: path.read_bytes() for path in project.glob("*.json*")} == before


@pytest.fixture(scope="module")
def project_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of searchqa with two lines in every file."""
    project = collect(tmp_path_factory.mktemp("two") / "p", "searchqa", tasks=2)
    run("skills", "annotate", project)
    run("skills", "validate", project)
    played = [{**PLAYED, "task": row["task"]} for row in rows(project / "lessons.jsonl")]
    write_lines(project / "utility.jsonl", played)
    return project


@pytest.mark.parametrize("cut, said", [
    (lambda raw: raw[:-5], "breaks off in its last line"),
    (lambda raw: raw[: raw.index(b"\n") + 1], "lacks 1 of the lessons"),
    (lambda raw: raw + raw, "validated.jsonl, line 3, repeats line 1"),
    (lambda raw: raw.replace(b'"trial":0', b'"trial":7'), "of an episode that is not there"),
])  # fmt: skip
def test_export_drops_no_row_in_silence(
    cut: Callable[[bytes], bytes], said: str, project_of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Path(shutil.copytree(project_of_two, tmp_path / "p"))
    path = project / "validated.jsonl"
    path.write_bytes(cut(path.read_bytes()))
    run("skills", "export", project, code=2)
    assert said in " ".join(capsys.readouterr().err.split()) and not (project / "sft.jsonl").exists()


@pytest.mark.parametrize("change, said", [
    ({"config": 1}, "project.json cannot be read (config: "),
    ({"config": {"agent": "random", "env": "searchqa", "split": "seen"}}, "its split is not train"),
    ({"config": {"agent": "random", "env": "searchqa", "split": "train", "trials": 0}}, "--trials is 0"),
    ({"config": {"agent": "random", "env": "searchqa", "split": "train", "cheat": 1}}, "project.json cannot be read"),
    ({"format": 2}, "project.json cannot be read (format: "),
    ({"tasks": True}, "project.json cannot be read (tasks: "),
])  # fmt: skip
@pytest.mark.parametrize("command", ["collect --resume", "annotate", "validate", "export"])
def test_settings_of_another_shape_are_refused(
    command: str, change: dict[str, Any], said: str, project_of_two: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    project = Path(shutil.copytree(project_of_two, tmp_path / "p"))
    path = project / "project.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    run("skills", *command.split(), project, code=2)
    err = " ".join(capsys.readouterr().err.split())
    assert said in err and "pydantic" not in err


def test_counts_are_of_the_episodes_that_are_wanted(
    project_of_two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Path(shutil.copytree(project_of_two, tmp_path / "p"))
    lessons = (project / "lessons.jsonl").read_bytes()
    (project / "lessons.jsonl").write_bytes(lessons + lessons + lessons.replace(b'"trial":0', b'"trial":7'))
    run("skills", "annotate", project)
    assert "2 of 2 episodes annotated by rule" in capsys.readouterr().out
    run("skills", "validate", project)
    out = capsys.readouterr().out
    assert "2 lessons of rule" in out and "2 more are of episodes that the project does not hold" in out
    played = (project / "trajectories.jsonl").read_bytes()
    (project / "trajectories.jsonl").write_bytes(played + played.replace(b'"trial":0', b'"trial":7'))
    run("skills", "collect", "--resume", project)
    assert "2 of 2 episodes of 2 tasks" in capsys.readouterr().out
    (project / "trajectories.jsonl").write_bytes(played + played)
    run("skills", "validate", project, code=2)
    assert "line 3, repeats line 1" in " ".join(capsys.readouterr().err.split())
    (project / "trajectories.jsonl").write_bytes(re.sub(rb'"task":"[^"]*"', b'"task":"gone"', played, count=1))
    run("skills", "validate", project, code=2)
    assert "episode of gone, which is no train task" in " ".join(capsys.readouterr().err.split())


def test_a_project_that_another_process_holds_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").mkdir()
    with locked(tmp_path / "p"):
        run(
            "skills", "collect", "--env", "searchqa", "--agent", "random", "--out", tmp_path / "p", "--tasks", 1, code=2
        )
    assert "another process is writing" in capsys.readouterr().err and not (tmp_path / "p" / "project.json").exists()


def test_a_wrong_analyzer_annotates_nothing_and_a_refusal_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = collect(tmp_path / "p", tasks=3)
    capsys.readouterr()
    gone, long = fake.error(404, "the model m does not exist"), fake.error(400, "too long")
    with FakeEndpoint(gone, gone, long, fake.says(ANSWER)) as server:
        how = ["skills", "annotate", project, "--analyzer", f"openai:m@{server.url}", "--concurrency", 1]
        run(*how, code=1)
        told = capsys.readouterr()
        assert "0 of 3 episodes annotated" in told.out and "the model m does not exist" in told.err
        assert not (project / "lessons.jsonl").exists()
        for _ in range(2):  # listed again, and not asked again
            run(*how)
            out = capsys.readouterr().out
            assert "3 of 3 episodes annotated" in out and "2 with a skill" in out and "400, too long" in out
            assert "asks about once more: 1\n" in out and len(server.requests) == 6
        run(*how, "--retry-refused")
        out = capsys.readouterr().out
        assert "3 with a skill" in out and "refused" not in out and len(server.requests) == 7
    run("skills", "validate", project)
    assert "3 readable, 3 valid" in capsys.readouterr().out


def test_trajectories_of_other_programs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = collect(tmp_path / "p", tasks=1)
    (project / "trajectories.jsonl").write_text('{"record": 1}\n')
    run("skills", "annotate", project, code=2)
    assert "line 1, is damaged (record: " in capsys.readouterr().err
