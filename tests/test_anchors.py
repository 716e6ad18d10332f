"""Evidence anchors: what a teacher may be told, where it comes from, and what `seedbench anchors` makes and finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.baselines.anchors import store
from seedbench.baselines.anchors.build import picks
from seedbench.baselines.anchors.fair import fair, faults, mask, of_task, quoted
from seedbench.core import Anchor, SeedbenchError
from seedbench.exam import make_env
from tests import fake_endpoint as fake
from tests import searchqa_island
from tests.command import run
from tests.fake_endpoint import FakeEndpoint

FIRST, LAST = Anchor("Zor", "1", "Zor lies on the Mu."), Anchor("Mu", "2", "The Mu is a river of Ta and of Tara.")


def test_answers_are_masked_and_the_way_is_never_told_whole() -> None:
    assert mask("The Mu, the MU; Mutter", ["mu", "The Mu"]) == "[ANSWER], [ANSWER]; Mutter"
    assert mask("a.b (c) axb", ["a.b (c)", ""]) == "[ANSWER] axb" and mask("Mu", []) == "Mu"
    both = (FIRST, LAST)
    assert fair(both, ["Ta"]) == (FIRST, LAST._replace(text="The Mu is a river of [ANSWER] and of Tara."))
    assert fair(both, ["Ta"], masked=False) == (FIRST,)
    assert fair(both, ["no"]) == (FIRST,)  # it follows from the two together
    assert fair(both, []) == both  # facts of a task that asks for no answer
    assert fair((LAST,), ["Ta"], masked=False) == fair((LAST,), ["Ta"])  # alone it is the answer
    many = [FIRST._replace(source=str(n)) for n in range(9)]
    assert len(fair(many, ["Mu"])) == store.MOST


def test_a_snippet_stands_in_its_source() -> None:
    text = "Zor lies  on the Mu. It was\nbuilt in 1871 by Mara Quint."
    assert quoted("lies on the Mu. It was built", text) and quoted("built in [ANSWER] by Mara", text)
    assert quoted("[ANSWER] lies on", text) and not quoted("lies by the Mu", text)
    assert not quoted("in [ANSWER] by Jo", text) and not quoted("built (.*) by", text)
    assert quoted("a[ANSWER]c", "ab" + 198 * "x" + "bc") and not quoted("a[ANSWER]c", "ab" + 199 * "x" + "bc")
    assert not quoted("a[ANSWER]c", "ac") and quoted("a [ANSWER] [ANSWER] d", "a b c d")
    assert quoted("a [ANSWER] c [ANSWER] e", "a c" + 90 * " b" + " c " + 150 * "d" + " e"), "not the first c alone"
    assert not quoted("[ANSWER]", "") and not quoted("x[ANSWER]", "x") and not quoted("[ANSWER]x", "x")


def test_hostile_marks_and_lists_take_no_time_to_speak_of() -> None:
    assert not quoted("a [ANSWER] " * 64 + "z", "a " * 5000), "which backtracking would not finish"
    assert not quoted("a[ANSWER]" * 100_000, "a" * 100_000)
    nested = '[{"a":' * 100_000
    assert picks(nested) == picks(nested + '"' * 50_000) == picks('[{"a": "' + "[{" * 100_000) == []
    assert picks(nested + '[{"b": 2}]') == [{"b": 2}]


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return searchqa_island.write(tmp_path_factory.mktemp("island"))


def test_gold_sentences_of_published_files(island: Path, tmp_path: Path) -> None:
    env = make_env("seedbench/SearchQA-v0", data=str(island))
    first = env.tasks("seen")[0]
    assert [(a.title, a.text) for a in env.anchors(first)] == [
        ("Orrin Lighthouse", "It was built by Mara Quint in 1871."),
        ("Mara Quint", "She was born in Dallow."),
    ]
    assert [a.text for a in of_task(env, first)][1] == "She was born in [ANSWER]."
    assert list(faults(env, first, of_task(env, first))) == []
    musique = {"id": "2hop", "question": "Which river runs through Dallow?", "answer": "Senn", "paragraphs": [
        {"idx": 0, "title": "Vell", "paragraph_text": "An island.", "is_supporting": False},
        {"idx": 1, "title": "Dallow", "paragraph_text": "A town. It lies on the Senn river.", "is_supporting": True},
    ]}  # fmt: skip
    (tmp_path / "musique_dev.jsonl").write_text(json.dumps(musique) + "\n")
    env = make_env("seedbench/SearchQA-v0", data=str(tmp_path))
    task = env.tasks("unseen")[0]
    assert [(a.title, a.text) for a in env.anchors(task)] == [("Dallow", "It lies on the Senn river.")]
    assert list(faults(env, task, of_task(env, task))) == []
    assert {passage.title for passage in env.dataset.passages()} == {"Vell", "Dallow"}  # type: ignore[attr-defined]


def test_what_is_wrong_is_found(island: Path) -> None:
    env = make_env("seedbench/SearchQA-v0", data=str(island))
    task = env.tasks("seen")[0]
    one, two = env.anchors(task)

    def found(*anchors: Anchor) -> list[str]:
        return list(faults(env, task, anchors))

    assert found() == ["no anchor"] and found(one) == []
    assert found(one, two) == ["tells the way whole"]
    assert found(one._replace(source="x")) == ["no such source"]
    assert found(one._replace(text="It was built by Jo.")) == ["not in its source"]
    assert found(one, one) == ["an anchor twice"]
    assert found(two._replace(text="Dallow")) == found(two._replace(text=store.ANSWER)) == ["nothing but the answer"]
    for little in ("the", ".", "She was", "[ANSWER] was", "in"):
        assert "says too little" in found(one._replace(text=little)), little
    assert "more than 6 anchors" in found(*[one] * 7)
    assert "longer than 64 words" in found(one._replace(text="a " * 65)) and "empty" in found(one._replace(text=" "))


@pytest.mark.parametrize("env_id", ["ALFWorld", "WebShop"])
def test_facts_are_true_and_no_actions(env_id: str) -> None:
    env = make_env(f"seedbench/{env_id}-v0")
    for task in env.tasks("train")[::97]:
        anchors = of_task(env, task)
        assert 2 <= len(anchors) <= store.MOST and list(faults(env, task, anchors)) == []
        _, info = env.reset(seed=0, options={"task": task.id})
        said = " ".join(a.text for a in anchors).lower()
        assert not any(secret.lower() in said for secret in env.secrets(task))
        if env_id == "ALFWorld":  # where the oracle takes the thing from is where the facts say it is
            over = False
            while not over and (action := env.expert()) is not None:
                if action.startswith("take "):
                    thing, _, place = action.removeprefix("take ").partition(" from ")
                    assert f"the {thing} is in or on the {place}." in said
                    break
                over = any(env.step(action)[2:4])
        else:
            assert not any(action.lower() in said for action in info["admissible"])


def test_from_gold_to_a_file_that_training_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "anchors.jsonl"
    run("anchors", "build", "--out", out, "--limit", 40)
    first = out.read_bytes()
    run("anchors", "build", "--out", out, "--limit", 40)
    assert out.read_bytes() == first and "anchors of 40 of 40 tasks" in capsys.readouterr().out
    run("anchors", "validate", out)
    assert "40 tasks" in capsys.readouterr().out and len(store.read(out)) == 40
    task, anchors = next(iter(store.read(out).items()))
    made_up = store.line_of(task, "gold", [anchors[0]._replace(text="Nobody ever wrote this.")])
    out.write_text(json.dumps(made_up) + "\n" + json.dumps({**made_up, "task": "x"}) + "\n")
    run("anchors", "validate", out, code=1)
    said = capsys.readouterr().out
    assert "0 without fault" in said and "not in its source: 1" in said
    assert "no task of these splits of this --env: 1" in said
    out.write_text('{"task": "x", "anchors": [{"title": 1}]}\n')
    with pytest.raises(SeedbenchError, match="line 1, is damaged"):
        store.read(out)
    run("anchors", "validate", out, code=2)
    assert "anchors.jsonl, line 1, is damaged (anchors.0.title: " in capsys.readouterr().err
    out.write_text((json.dumps(made_up) + "\n") * 2)
    run("anchors", "validate", out, code=2)
    assert f"anchors.jsonl, line 2, repeats line 1 ({task})" in capsys.readouterr().err
    run("anchors", "build", "--out", out, "--by", "magic", code=2)
    assert "--by magic is not known" in capsys.readouterr().err


def test_a_model_picks_what_stands_in_a_passage(
    island: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env: Any = make_env("seedbench/SearchQA-v0", data=str(island))
    task = env.tasks("seen")[1]  # Which river runs through Dallow?

    def answers(handler: fake.Handler) -> None:
        asked = handler.request_json["messages"][0]["content"]
        number = next((n for n in range(1, 9) if f"[{n}] Dallow\n" in asked), 1)
        texts = ["Its river is the  Senn.", "I made this up."]
        picked = [*({"passage": number, "text": t} for t in texts), {"passage": 99, "text": "x"}, {"passage": True}, 5]
        fake.says(f"<think>[1]</think>Here: {json.dumps(picked)}.")(handler)

    out = tmp_path / "a.jsonl"
    how = ["anchors", "build", "--data", island, "--split", "seen", "--limit", 2, "--out", out, "--concurrency", 1]
    with FakeEndpoint(fake.status(500), answers) as server:
        by = ["--by", f"openai:m@{server.url}"]
        run(*how, *by, "--budget-tokens", 10, code=1)
        assert not server.requests and "2 questions are left" in capsys.readouterr().err
        run(*how, *by)
        n = len(server.requests)
        run(*how, *by)
        assert len(server.requests) == n  # what was paid for is kept
    said = capsys.readouterr().out
    assert "2 answers bought" in said and "0 answers bought" in said and "3 snippets were not in the passage" in said
    made = store.read(out)[task.id]
    assert [a.text for a in made] == ["Its river is [ANSWER]."] and list(faults(env, task, made)) == []
    run("anchors", "validate", out, "--data", island, "--split", "seen")


def test_a_file_is_never_replaced_by_a_worse_one(
    island: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    gold = ["anchors", "build", "--data", island, "--split", "seen", "--out", out]
    run(*gold)
    there = out.read_bytes()
    with FakeEndpoint(fake.error(404, "the model m does not exist"), fake.says("[]")) as server:
        by = [*gold, "--by", f"openai:m@{server.url}", "--concurrency", 1, "--passages"]
        for args, code, said in (
            ([*gold, "--limit", 1], 2, "would be lost"),
            ([*by, 8, "--budget-tokens", 10], 1, "are left"),
            ([*by, 0], 2, "--passages is 0: it must be at least 1"),
            ([*by, 8], 2, "would be lost"),  # it answers the control question, and picks nothing
        ):
            run(*args, code=code)
            assert said in capsys.readouterr().err and out.read_bytes() == there
        n = len(server.requests)
        out.rename(tmp_path / "away")
        run(*by, 8, code=2)
        assert "no file is written" in capsys.readouterr().err and not out.exists() and len(server.requests) == n
    out.write_bytes(there[:-5])
    run(*gold, code=2)
    assert "left alone" in capsys.readouterr().err and out.read_bytes() == there[:-5]


def test_lists_in_answers() -> None:
    assert picks('no [{"a": 1}] but [ {"b": 2}, 3]') == [{"b": 2}]
    assert picks("[{") == picks("[1]") == picks("") == picks("[" * 100_000) == []


def test_reading_a_file_of_anchors_never_changes_it(tmp_path: Path) -> None:
    from seedbench.baselines.anchors.store import read

    file = tmp_path / "note.json"
    file.write_text('{"task": "x", "anchors": []}')
    with pytest.raises(SeedbenchError, match="breaks off in its last line"):
        read(file)
    assert file.read_text() == '{"task": "x", "anchors": []}'
