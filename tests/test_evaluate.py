"""`seedbench eval` end to end, through the command line: what it writes, and what no kill, flag or file can break."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench import cli, record
from tests.conftest import need

BASE = ["--env", "alfworld"]


def run(*args: object, code: int = 0) -> None:
    """One command in this process, with the exit code it must have."""
    try:
        cli.main([str(a) for a in args])
    except SystemExit as stop:
        assert (stop.code or 0) == code
    else:
        assert code == 0


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


def lines(out: Path) -> list[dict[str, Any]]:
    return list(record.read_lines(out / "trajectories.jsonl.gz"))


def start(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "seedbench", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_run_folder_holds_what_the_protocol_names(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("eval", "--agent", "expert", *BASE, "--limit", 5, "--out", out)
    assert {p.name for p in out.iterdir()} - {".lock"} == {
        "run.json", "results.json", "trajectories.jsonl.gz", "report.html",
    }  # fmt: skip
    top = results(out)
    assert set(top) == {"schema", "agent", "protocol", "software", "chain_head", "selection", "results"}
    assert [(r["split"], r["tasks"], r["attempted"], r["partial"]) for r in top["results"]] == [
        ("seen", 5, 5, True),
        ("unseen", 5, 5, True),
    ]
    assert all(r["success"]["mean"] == 1 and r["errors"] == 0 and r["data"] == "mini" for r in top["results"])
    held = json.loads((out / "run.json").read_text())
    assert held["status"] == "complete" and held["sessions"][0]["episodes"] == 10
    assert str(tmp_path) not in (out / "results.json").read_text() + (out / "report.html").read_text()


def test_the_chain_holds_and_order_is_the_manifests(tmp_path: Path) -> None:
    run("eval", "--agent", "random", *BASE, "--limit", 7, "--trials", 2, "--out", tmp_path / "r")
    got = lines(tmp_path / "r")
    bare = [{k: v for k, v in line.items() if k not in ("prev", "hash")} for line in got]
    assert list(record.chain(bare)) == got
    assert results(tmp_path / "r")["chain_head"] == got[-1]["hash"]
    from seedbench.exam import make_env

    env = make_env("seedbench/ALFWorld-v0")
    want = [(s, t.id, k) for s in ("seen", "unseen") for t in env.tasks(s)[:7] for k in range(2)]
    assert [(line["split"], line["task"], line["trial"]) for line in got] == want


def test_bytes_do_not_depend_on_the_batch_and_do_on_the_seed(tmp_path: Path) -> None:
    for name, batch, seed in (("a", 1, 4), ("b", 64, 4), ("c", 7, 5)):
        run(
            "eval", "--agent", "random", *BASE, "--limit", 6, "--batch", batch, "--seed", seed, "--out", tmp_path / name
        )
    a, b, c = ((tmp_path / n / "trajectories.jsonl.gz").read_bytes() for n in "abc")
    assert a == b != c
    assert results(tmp_path / "a")["results"] == results(tmp_path / "b")["results"]


def test_figures_are_those_of_the_lines(tmp_path: Path) -> None:
    out = tmp_path / "r"
    run(
        "eval",
        "--agent",
        "expert",
        *BASE,
        "--split",
        "seen",
        "--trials",
        3,
        "--limit",
        20,
        "--max-steps",
        6,
        "--out",
        out,
    )
    (result,) = results(out)["results"]
    got = lines(out)
    assert result["attempted"] == len(got) == 60
    assert result["success"]["mean"] == pytest.approx(sum(line["success"] for line in got) / 60)
    assert "bootstrap" in result["success"]["method"] and set(result["pass_k"]) == {"1", "2", "3"}
    steps = [s for line in got for s in line["steps"]]
    assert result["invalid_rate"] == sum(not s["format_valid"] for s in steps) / len(steps) == 0
    assert result["steps"]["mean"] == pytest.approx(len(steps) / 60)


def test_null_never_wins_and_is_always_invalid(tmp_path: Path) -> None:
    run("eval", "--agent", "null", *BASE, "--split", "seen", "--limit", 4, "--out", tmp_path / "r")
    (result,) = results(tmp_path / "r")["results"]
    assert (result["success"]["mean"], result["invalid_rate"], result["errors"]) == (0, 1, 0)
    low, high = result["success"]["ci"]
    assert low == 0 and 0.3 < high < 0.6  # Wilson at 0 of 4: .490


def test_published_games_the_expert_wins_all(published_seen: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    run("eval", "--agent", "expert", *BASE, "--split", "seen,paper", "--data", published_seen, "--out", out)
    for result in results(out)["results"]:
        assert (result["attempted"], result["errors"], result["success"]["mean"]) == (140, 0, 1.0)
        assert result["pinned"] and result["data"] == "real" and result["success_at_30"] == 1.0
        assert result["success"]["ci"][0] == pytest.approx(0.97329, abs=1e-5)  # Wilson, 140 of 140


RESUME = ["--agent", "random", *BASE, "--split", "unseen", "--seed", 5, "--limit", 20, "--trials", 40]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "r"
    run("eval", *RESUME, "--out", out)
    return out


def test_kill_9_at_random_moments_then_resume_gives_the_same_bytes(uninterrupted: Path, tmp_path: Path) -> None:
    """Killed several times in a row, each time with half a line left behind, at moments drawn anew for each kill."""
    out, rng, kills = tmp_path / "r", random.Random(), 0
    journal = out / "journal.jsonl"
    args: list[object] = ["eval", *RESUME, "--out", out]
    for _ in range(6):
        held = journal.read_bytes().count(b"\n") if journal.exists() else 0
        stop_at = held + rng.randrange(1, 180)
        process = start(*args)
        while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < stop_at):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not journal.exists():
            break
        kills += 1
        now = journal.read_bytes()
        assert now.count(b"\n") >= held
        with journal.open("ab") as f:
            f.write(b'{"record": {"task": "half')
        args = ["eval", "--resume", out]
    assert kills >= 3
    run("eval", "--resume", out)
    for name in ("trajectories.jsonl.gz", "results.json", "report.html"):
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes(), name
    assert not journal.exists()


def test_killed_while_finishing_is_finished_again(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    run("eval", *RESUME, "--out", out)
    held = json.loads((out / "run.json").read_text())
    records = [{k: v for k, v in line.items() if k not in ("prev", "hash")} for line in lines(out)]
    (out / "journal.jsonl").write_text(
        "".join(record.canonical({"record": r, "tokens": None, "usage": None}) + "\n" for r in records)
    )
    (out / "results.json").unlink()
    (out / "trajectories.jsonl.gz").write_bytes(b"half")
    record.write_json(out / "run.json", {**held, "status": "running"})
    run("eval", "--resume", out)
    assert (out / "results.json").read_bytes() == (uninterrupted / "results.json").read_bytes()
    assert (out / "trajectories.jsonl.gz").read_bytes() == (uninterrupted / "trajectories.jsonl.gz").read_bytes()


def test_resuming_a_finished_run_changes_nothing(uninterrupted: Path) -> None:
    before = {p.name: p.read_bytes() for p in uninterrupted.iterdir()}
    run("eval", "--resume", uninterrupted)
    assert {p.name: p.read_bytes() for p in uninterrupted.iterdir()} == before


def test_a_full_disk_keeps_what_was_done(uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)); "
    code = limit + f"from seedbench.cli import main; main({[*map(str, ('eval', *RESUME, '--out', out))]!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no space left" in done.stderr and "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert (out / "journal.jsonl").read_bytes().count(b"\n") > 10
    run("eval", "--resume", out)
    assert (out / "trajectories.jsonl.gz").read_bytes() == (uninterrupted / "trajectories.jsonl.gz").read_bytes()


def test_a_second_process_on_one_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r"
    first = start("eval", *RESUME, "--out", out)
    while not (out / "journal.jsonl").exists():
        assert first.poll() is None
        time.sleep(0.005)
    os.kill(first.pid, signal.SIGSTOP)
    for args in (("eval", *RESUME, "--out", out), ("eval", "--resume", out)):
        run(*args, code=2)
        assert "another process is writing" in capsys.readouterr().err
    os.kill(first.pid, signal.SIGCONT)
    first.communicate()
    assert first.returncode == 0
    run("eval", *RESUME, "--out", out, code=2)
    assert "holds a run already" in capsys.readouterr().err


def test_a_run_that_changed_underneath_cannot_be_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r"
    run("eval", "--agent", "random", *BASE, "--limit", 2, "--out", out)
    held = json.loads((out / "run.json").read_text())
    held["protocol"]["environments"]["seedbench/ALFWorld-v0"]["digest"] = "0" * 64
    record.write_json(out / "run.json", {**held, "status": "running"})
    run("eval", "--resume", out, code=2)
    assert "environments changed" in capsys.readouterr().err


MISTAKES = [
    ([], "--agent is missing"),
    (["--agent", ""], "--agent is empty"),
    (["--agent", "random", "--env", "alfwold"], "alfwold is not an environment"),
    (["--agent", "random", "--env", ""], "--env is empty"),
    (["--agent", "random", "--split", "test"], "--split test"),
    (["--agent", "random", "--trials", "0"], "--trials is 0"),
    (["--agent", "random", "--limit", "0"], "--limit is 0"),
    (["--agent", "random", "--batch", "-1"], "--batch is -1"),
    (["--agent", "random", "--temperature", "-1"], "temperature is -1"),
    (["--agent", "random", "--temperature", "nan"], "temperature is nan"),
    (["--agent", "random", "--top-p", "0"], "top-p is 0"),
    (["--agent", "random", "--preset", "nope"], "--preset nope"),
    (["--agent", "random", "--skill", "no_such_file.md"], "--skill no_such_file.md"),
    (["--agent", "random", "--skill", os.devnull], "is empty"),
    (["--agent", "random", "--env", "alfworld-v99"], "alfworld-v99 is not an environment"),
    (["--agent", "random", "--selection", "\udcff"], "not valid UTF-8"),
    (["--agent", "random", "--env", "alfworld", "--data", "no_such_folder"], "no_such_folder"),
    (["--agent", "no_such_model_folder"], "no_such_model_folder"),
    (["--resume", "no_such_run"], "holds no run.json"),
    (["--resume", "x", "--agent", "random"], "leave out --agent"),
]


@pytest.mark.parametrize("args, says", MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_get_one_sentence_and_write_nothing(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run("eval", *args, code=2)
    err = capsys.readouterr().err
    assert says in err and err.startswith("seedbench: ") and "Traceback" not in err
    assert not any(tmp_path.iterdir())


def test_an_impossible_out_gets_one_short_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for out, says in (("/proc/x", "/proc/x"), ("x" * 5000, "File name too long")):
        run("eval", "--agent", "null", *BASE, "--limit", 1, "--out", out, code=1)
        err = capsys.readouterr().err
        assert says in err and len(err) < 700 and "Traceback" not in err


def test_out_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("x")
    for out in (tmp_path / "f", tmp_path / "f" / "deeper"):
        run("eval", "--agent", "null", *BASE, "--limit", 1, "--out", out, code=2)
        assert "name a folder" in capsys.readouterr().err


def test_a_lesson_reaches_the_prompt_and_its_digest(tmp_path: Path) -> None:
    (tmp_path / "lesson.md").write_text("Look in the fridge first.")
    run("eval", "--agent", "null", *BASE, "--split", "seen", "--limit", 1, "--out", tmp_path / "plain")
    run("eval", "--agent", "null", *BASE, "--split", "seen", "--limit", 1, "--out", tmp_path / "told",
        "--skill", tmp_path / "lesson.md")  # fmt: skip
    plain, told = (lines(tmp_path / n)[0]["steps"][0] for n in ("plain", "told"))
    assert plain["observation"] == told["observation"] and plain["prompt_sha"] != told["prompt_sha"]
    assert results(tmp_path / "told")["protocol"]["skill"] == "Look in the fridge first."


def test_a_replay_plays_what_its_recording_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = ["--split", "unseen", "--limit", 3, "--trials", 2, "--max-steps", 5, "--seed", 9]
    run("eval", "--agent", "random", *BASE, *how, "--out", tmp_path / "a")
    run("eval", "--agent", f"replay:{tmp_path / 'a'}", "--out", tmp_path / "b")
    a, b = ((tmp_path / n / "trajectories.jsonl.gz").read_bytes() for n in "ab")
    assert a == b
    run("eval", "--agent", f"replay:{tmp_path / 'none'}", "--out", tmp_path / "c", code=2)
    assert "holds no run.json" in capsys.readouterr().err


def test_an_agent_that_always_raises_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_agent.py").write_text(
        "def make():\n    def act(views):\n        raise KeyError('[red]x')\n    return act"
    )
    run("eval", "--agent", "broken_agent:make", *BASE, "--split", "seen", "--limit", 2, "--out", tmp_path / "r")
    said = " ".join(capfd.readouterr().err.split())  # the console wraps
    assert "2 episodes ended in an error and count as failures, the first mini/seen/" in said and "'[red]x'" in said
    (result,) = results(tmp_path / "r")["results"]
    assert (result["attempted"], result["errors"], result["success"]["mean"]) == (2, 2, 0)


def test_run_json_shows_the_first_prompt(tmp_path: Path) -> None:
    run("eval", "--agent", "null", *BASE, "--split", "seen", "--limit", 1, "--out", tmp_path / "r")
    (messages,) = json.loads((tmp_path / "r" / "run.json").read_text())["prompts"].values()
    from seedbench.prompts import prompt_sha

    assert prompt_sha(messages) == lines(tmp_path / "r")[0]["steps"][0]["prompt_sha"]


def test_presets_and_flags_are_recorded(tmp_path: Path) -> None:
    run(
        "eval",
        "--agent",
        "null",
        *BASE,
        "--split",
        "seen",
        "--limit",
        1,
        "--preset",
        "verl-agent",
        "--out",
        tmp_path / "a",
    )
    run("eval", "--agent", "null", *BASE, "--split", "seen", "--limit", 1, "--max-steps", 3, "--history", 0,
        "--temperature", 0, "--out", tmp_path / "b")  # fmt: skip
    a, b = (next(iter(results(tmp_path / n)["protocol"]["environments"].values())) for n in "ab")
    assert (a["max_steps"], a["history"]) == (50, 2)
    assert (b["max_steps"], b["history"], b["sampling"]["temperature"]) == (3, 0, 0)
    assert len(lines(tmp_path / "b")[0]["steps"]) == 3


def test_trajectories_are_readable_by_anyone(tmp_path: Path) -> None:
    run("eval", "--agent", "expert", *BASE, "--split", "seen", "--limit", 1, "--out", tmp_path / "r")
    with gzip.open(tmp_path / "r" / "trajectories.jsonl.gz", "rt", encoding="utf-8") as f:
        line = json.loads(f.readline())
    assert line["success"] is True and line["steps"][-1]["reward"] == 1.0


# --agent PATH


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random causal LM with a chat template of its own, made here."""
    need(
        find_spec("torch") and find_spec("transformers"), "torch and transformers are missing: make test installs them"
    )
    from tests.tiny import tiny_folder

    return tiny_folder(tmp_path_factory.mktemp("model") / "my_checkpoint", max_position_embeddings=4096)


MODEL = [*BASE, "--split", "seen", "--limit", 3, "--max-steps", 3, "--max-new-tokens", 12, "--temperature", 1]


def test_a_model_folder_plays_and_keeps_its_tokens(checkpoint: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    out = tmp_path / "r"
    run("eval", "--agent", checkpoint, *MODEL, "--out", out)
    top = results(out)
    (result,) = top["results"]
    assert (result["attempted"], result["errors"]) == (3, 0)
    assert (
        top["agent"]["spec"] == "my_checkpoint"
        and top["agent"]["kind"] == "local"
        and len(top["agent"]["revision"]) == 64
    )
    assert str(tmp_path) not in (out / "results.json").read_text()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    kept = list(record.read_lines(out / "tokens.jsonl.gz"))
    assert [k["task"] for k in kept] == [line["task"] for line in lines(out)]
    counted = 0
    for line, k in zip(lines(out), kept, strict=True):
        for step, tokens in zip(line["steps"], k["steps"], strict=True):
            assert len(tokens["completion_ids"]) == len(tokens["logprobs"]) <= 12
            assert all(p <= 0 for p in tokens["logprobs"])
            assert tokenizer.decode(tokens["completion_ids"], skip_special_tokens=True) == step["text"]
            prompt = tokenizer.decode(tokens["prompt_ids"])
            assert step["observation"].split()[0] in prompt
            counted += len(tokens["completion_ids"])
    assert result["tokens"]["completion"] == counted


def test_the_chat_template_is_honoured(checkpoint: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    own = "{% for m in messages %}MARK {{ m.role }}: {{ m.content }}\n{% endfor %}"
    (tmp_path / "own.jinja").write_text(own)
    for name, more in (("a", []), ("b", ["--chat-template", tmp_path / "own.jinja"])):
        run("eval", "--agent", checkpoint, *MODEL, "--limit", 1, *more, "--out", tmp_path / name)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    a, b = (next(record.read_lines(tmp_path / n / "tokens.jsonl.gz"))["steps"][0]["prompt_ids"] for n in "ab")
    text = lines(tmp_path / "a")[0]["steps"][0]["observation"]
    assert a != b and tokenizer.decode(b).startswith("MARK") and not tokenizer.decode(a).startswith("MARK")
    assert "".join(text.split()) in "".join(tokenizer.decode(a).split())


def test_greedy_and_sampled_runs_repeat_themselves_whatever_the_batch(checkpoint: Path, tmp_path: Path) -> None:
    """Texts are equal; log-probabilities agree to 1e-4 (another batch size sums floats in another order)."""
    for temperature in (0, 1):
        runs = []
        for batch in (1, 3):
            out = tmp_path / f"{temperature}-{batch}"
            run("eval", "--agent", checkpoint, *MODEL, "--temperature", temperature, "--batch", batch, "--out", out)
            said = [[s["text"] for s in line["steps"]] for line in lines(out)]
            kept = record.read_lines(out / "tokens.jsonl.gz")
            runs.append((said, [s["logprobs"] for k in kept for s in k["steps"]]))
        assert runs[0][0] == runs[1][0]
        for one, other in zip(runs[0][1], runs[1][1], strict=True):
            assert one == pytest.approx(other, abs=1e-4)


def test_a_killed_model_run_resumes_to_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    """One episode at a time, so that no float depends on who shares the batch."""
    args = [*MODEL, "--limit", 6, "--batch", 1]
    run("eval", "--agent", checkpoint, *args, "--out", tmp_path / "a")
    process = start("eval", "--agent", checkpoint, *args, "--out", tmp_path / "b")
    journal = tmp_path / "b" / "journal.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 2):
        time.sleep(0.002)
    process.kill()
    process.wait()
    run("eval", "--resume", tmp_path / "b")
    for name in ("trajectories.jsonl.gz", "tokens.jsonl.gz", "results.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_model_that_changed_cannot_continue_a_run(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.tiny import tiny_folder

    model = tiny_folder(tmp_path / "m", max_position_embeddings=4096)
    run("eval", "--agent", model, *MODEL, "--limit", 1, "--out", tmp_path / "r")
    held = json.loads((tmp_path / "r" / "run.json").read_text())
    record.write_json(tmp_path / "r" / "run.json", {**held, "status": "running"})
    tiny_folder(model, max_position_embeddings=4096, seed=1)
    run("eval", "--resume", tmp_path / "r", code=2)
    assert "revision changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage, says", [("no weights", "weights"), ("no tokenizer", "tokenizer"), ("cut", "safetensors")]
)
def test_a_broken_model_folder_gets_one_sentence(
    damage: str, says: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(checkpoint, tmp_path / "m")
    weights = model / "model.safetensors"
    if damage == "no weights":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        for path in model.glob("*token*"):
            path.unlink()
    run("eval", "--agent", model, *MODEL, "--out", tmp_path / "r", code=2)
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err and not (tmp_path / "r").exists()


def spoil(out: Path, **changes: Any) -> None:
    held = json.loads((out / "run.json").read_text())
    record.write_json(out / "run.json", {**held, **changes})


def test_a_journal_is_kept_until_results_are_there(tmp_path: Path) -> None:
    """run.json's word alone is not enough to delete what was played."""
    out = tmp_path / "r"
    process = start("eval", *RESUME, "--out", out)
    while not (out / "journal.jsonl").exists() or (out / "journal.jsonl").read_bytes().count(b"\n") < 20:
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    spoil(out, status="complete")
    run("eval", "--resume", out)
    assert results(out)["results"][0]["attempted"] == 800


TAMPERED: list[dict[str, Any]] = [
    *({"status": "?"}, {"sessions": 3}, {"agent": []}, {"protocol": None}, {"software": 1}, {"config": []}),
    *({"config": {"agent": "random", **wrong}} for wrong in ({"env": 5}, {"limit": 1.5}, {"temperature": "x"})),
    *({"config": {"agent": "random", **wrong}} for wrong in ({"preset": []}, {"unknown": 1}, {"trials": 0})),
    *({"config": {"agent": None}}, {"config": {"agent": "random", "max_new_tokens": True}}),
]


@pytest.mark.parametrize("changes", TAMPERED)
def test_a_tampered_run_json_gets_one_sentence(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r"
    run("eval", "--agent", "random", *BASE, "--limit", 1, "--out", out)
    spoil(out, **{"status": "running", **changes})
    run("eval", "--resume", out, code=2)
    assert "run.json cannot be read" in capsys.readouterr().err


def test_messages_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run("eval", "--agent", "random", "--env", "x\x1b]0;owned\x07[red]", code=2)
    err = capsys.readouterr().err
    assert "\x1b" not in err and "\x07" not in err and "[red]" in err and err.count("\n") == 1
