"""Level form on its own: it plays nothing, needs little memory, and a figure is a function of the episodes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seedbench import record
from seedbench.core import stream
from seedbench.exam import make_env
from seedbench.leaderboard import form
from seedbench.leaderboard.entry import schema
from seedbench.leaderboard.findings import MAX_FINDINGS, Options
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.verify import verify
from seedbench.results import Results
from tests.command import run
from tests.forge import ALFWORLD, Copy

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("played") / "run"
    run(
        "eval", "--agent", "tests.forge:Half", "--env", "alfworld", "--limit", 8, "--trials", 3, "--out", out, "--quiet"
    )
    return out


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def found(folder: Path) -> str:
    return "\n".join(map(str, verify(Run(folder), "form")))


def test_the_committed_schema_is_the_models() -> None:
    assert (ROOT / "leaderboard" / "entry.schema.json").read_text(encoding="utf-8") == schema(), (
        "renew it: python -m seedbench.leaderboard.entry"
    )


def test_form_plays_nothing_and_loads_no_torch(played: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from seedbench.envs.alfworld.env import ALFWorldEnv
def never(*a, **k): raise AssertionError("an episode was begun")
ALFWorldEnv.reset = ALFWorldEnv.step = never
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.verify import verify
assert verify(Run(Path({str(played)!r})), "parse") == []
print([m for m in ("torch", "transformers", "scipy", "jinja2") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_replay_loads_no_torch_either(played: Path) -> None:
    code = f"""
import sys
from seedbench import cli
try: cli.main(["verify", {str(played)!r}, "--quiet", "--workers", "1"])
except SystemExit as stop: assert not stop.code
print([m for m in ("torch", "transformers", "scipy") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip().endswith("[]"), done.stderr


def test_any_batch_size_gives_the_same_figures(tmp_path: Path) -> None:
    """protocol.md A.2-1: a figure averaged over batches depends on their size, and the last one weighs as a whole."""
    held = []
    for batch in (1, 3, 7, 64):
        out = tmp_path / str(batch)
        what = ["--agent", "tests.forge:Half", "--env", "alfworld", "--split", "seen", "--limit", 13, "--batch", batch]
        run("eval", *what, "--out", out, "--quiet")
        assert found(out) == ""
        held.append((out / "results.json").read_bytes())
    assert len(set(held)) == 1
    row = json.loads(held[0])["results"][0]
    won = [line["success"] for line in record.read_lines(tmp_path / "7" / "trajectories.jsonl.gz")]
    assert row["success"]["mean"] == sum(won) / 13
    by_batches = (sum(won[:7]) / 7 + sum(won[7:]) / 6) / 2
    assert row["success"]["mean"] != by_batches, "these episodes tell the two ways of averaging apart"


FIGURES: dict[str, Any] = {
    "success.ci": [0.0, 0.9],
    "success.n": 24,
    "success.method": "wald",
    "score.mean": 0.7,
    "macro": 0.8,
    "steps.mean": 3.0,
    "steps.median": 3.0,
    "invalid_rate": 0.0,
    "errors": 0,
    "success_at_30": 0.5,
    "pass_k": None,
    "metrics": {"em": 0.9},
    "data": "real",
    "attempted": 25,
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_recomputed(name: str, copy: Path) -> None:
    it = Copy.of(copy)
    *outer, last = name.split(".")
    at = it.results["results"][1]
    for part in outer:
        at = at[part]
    assert at[last] != FIGURES[name]
    at[last] = FIGURES[name]
    it.save()
    said = found(copy)
    assert f"results.{ALFWORLD}.unseen.{name}" in said, said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["protocol"].update(bonus=1), "protocol.bonus: nothing like it belongs there"),
        (lambda r: r["protocol"].pop("backend"), "protocol.backend: is missing"),
        (lambda r: r["protocol"].update(trials=2), "no such episode was to be played"),
        (lambda r: r["protocol"].update(trials="3"), "not as eval writes it"),
        (lambda r: r["protocol"].update(trials=10**12), "there is no episode of"),
        (lambda r: r["protocol"].update(seed=1), "its seed is"),
        (lambda r: r["protocol"].update(preset="none"), "--preset none is not known"),
        (lambda r: r["protocol"].update(agent="expert", server="http://localhost:1"), "protocol.server: nothing like"),
        (lambda r: r["protocol"].pop("environments"), "not as eval writes it"),
        (lambda r: r["protocol"]["environments"].update({"seedbench/Other-v0": {}}), "Other-v0: nothing like it"),
        (lambda r: r["protocol"]["environments"][ALFWORLD]["sampling"].update(temperature=-1), "temperature"),
        (lambda r: r["results"].pop(), "no such episode was to be played"),
        (lambda r: r.update(results=[]), "the run played nothing"),
        (lambda r: r["results"][0].update(env="seedbench/None-v0"), "not each split of each environment once"),
        (lambda r: r["results"][0].update(split="nowhere"), "--split nowhere"),
        (lambda r: r["results"][0].update(split="all"), "are not by environment and split"),
        (lambda r: [row.update(env="all") for row in r["results"]], "not as eval writes it"),
        (lambda r: (r["results"].pop(), r["results"][0].update(split="seen,unseen")), "not by environment and split"),
        (lambda r: r["protocol"].update(limit=0), "--limit is 0"),
        (lambda r: r["protocol"].update(skill=["x"]), "not as eval writes it"),
        (lambda r: r["agent"].update(spec="gpt-9"), "run.json: agent is not that of results.json"),
    ],
)
def test_claims_that_do_not_hold_together(change: Any, words: str, copy: Path) -> None:
    it = Copy.of(copy)
    change(it.results)
    it.save()
    assert words in found(copy)


def test_an_unfinished_run_says_so(copy: Path) -> None:
    it = Copy.of(copy)
    it.run["status"] = "running"
    it.save()
    assert "the run is not finished" in found(copy)


def test_findings_are_bounded(copy: Path) -> None:
    it = Copy.of(copy)
    for line in it.lines:
        line["seed"] += 1
        line["steps"] = line["steps"][:1]
    it.save()
    assert len(verify(Run(copy), "form")) == MAX_FINDINGS


def test_the_chain_is_the_one_that_eval_writes(copy: Path) -> None:
    path = copy / "trajectories.jsonl.gz"
    lines = list(record.read_lines(path))
    lines[3]["steps"][0]["text"] += " "
    record.write_gzip_lines(path, lines)
    said = verify(Run(copy), "form")
    assert [f.message for f in said] == [
        "prev and hash do not chain it to the line before: it was edited, or a line was moved or left out"
    ]
    assert said[0].where.startswith("line 4 (")


def big_run(folder: Path, trials: int, steps: int = 14) -> None:
    """A run of ALFWorld's seen split with constant observations: good in form, whatever it would replay as."""
    env = make_env(ALFWORLD)
    tasks = env.tasks("seen")
    run("eval", "--agent", "null", "--env", "alfworld", "--split", "seen", "--limit", 1, "--out", folder, "--quiet")
    step = {"observation": "o" * 300, "text": "", "action": "", "format_valid": False, "reward": 0.0, "prompt_sha": "0"}

    def lines() -> Any:
        for task in tasks:
            for trial in range(trials):
                won = stream(task.id, trial) % 3 == 0
                yield {
                    **{"task": task.id, "env": ALFWORLD, "split": "seen", "trial": trial},
                    **{"seed": stream(0, task.id, trial), "steps": [step] * steps, "score": float(won)},
                    **{"success": won, "ended": "terminated" if won else "truncated", "error": ""},
                }

    held = json.loads((folder / "results.json").read_text())
    held["protocol"].update(trials=trials, limit=None)
    held["chain_head"] = record.write_chained(folder / "trajectories.jsonl.gz", lines())
    made = form.summarize(
        *(ALFWORLD, "seen", "mini", [(t.id, t.kind) for t in tasks]),
        (form.summary(line, {t.id: t.kind for t in tasks}[line["task"]]) for line in lines()),
        trials=trials, max_steps=env.max_steps, partial=False, pinned=True,
    )  # fmt: skip
    held["results"] = [made.model_dump(mode="json")]
    (folder / "run.json").unlink()
    (folder / "results.json").write_text(Results.model_validate(held).dumps())


def peak_memory(folder: Path) -> int:
    """MiB that `verify --level form` takes at most."""
    code = f"""
import resource
from seedbench import cli
try: cli.main(["verify", {str(folder)!r}, "--level", "form", "--quiet"])
except SystemExit as stop: assert not stop.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[-1])


def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    big_run(small, 2)
    big_run(large, 15)  # 16 MB of JSON more, of which only the outcomes are kept
    assert peak_memory(large) - peak_memory(small) < 6


@pytest.mark.slow
def test_a_hundred_thousand_episodes(tmp_path: Path) -> None:
    big_run(tmp_path / "run", 500)
    assert peak_memory(tmp_path / "run") < 250


def test_options_do_not_change_what_is_true(played: Path) -> None:
    assert verify(Run(played), "replay", Options(workers=2, quiet=True)) == []
