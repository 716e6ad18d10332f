"""`seedbench compare`: pairs by task, tests worked out by hand, refusals, and hostile transcripts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seedbench import record, stats
from seedbench.core import SeedbenchError, stream
from seedbench.leaderboard import compare_view
from seedbench.leaderboard.compare import Comparison, compare
from seedbench.results import load
from tests import boards
from tests.command import run

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> \u202egnp.exe \x1b[31m {{ 7*7 }} "


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for agent in ("random", "expert"):
        boards.scripted(folder, agent, env="alfworld,webshop", limit=12)
    return folder


def won(runs: Path, out: Path, pattern: str, trials: int = 1, **agent: Any) -> Path:
    """A run whose episodes end as `pattern` says, again and again from its beginning ("10": every other one)."""
    wins = itertools.cycle(pattern)
    results, lines = boards.replayed(runs / "expert", lambda line: next(wins) == "1", **agent)
    return boards.write_run(out, results, lines)


def part(comparison: Comparison, split: str, kind: str = "", env: str = "seedbench/ALFWorld-v0") -> Any:
    (found,) = [p for p in comparison.parts if (p.env, p.split, p.kind) == (env, split, kind)]
    return found


def test_paired_tests_by_hand(runs: Path, tmp_path: Path) -> None:
    """12 tasks a split: A wins the first 8, B the first 2 and the last: A alone 6, B alone 1."""
    a = won(runs, tmp_path / "a", "111111110000", spec="A")
    b = won(runs, tmp_path / "b", "110000000001", spec="B")
    found = compare(a, b)
    whole = part(found, "seen")
    assert whole.tasks == 12 and whole.means == (8 / 12, 3 / 12) and whole.score is None
    assert (whole.test.first, whole.test.second, whole.test.method) == (6, 1, "exact McNemar")
    assert whole.test.p == stats.mcnemar_exact(6, 1) == 0.125
    assert whole.difference == (5 / 12, *stats.newcombe_paired(2, 6, 1, 3))
    assert whole.p == 0.5, "Holm over four splits: 4 x .125"
    assert [s.name for s in found.sides] == ["A", "B"] and len(found.flips) == 4 * 7
    assert [f.better for f in found.flips[:7]] == [0, 0, 0, 0, 0, 0, 1]
    kinds = [p for p in found.parts if p.env.endswith("ALFWorld-v0") and p.split == "seen" and p.kind]
    assert sum(p.tasks for p in kinds) == 12 and sum(p.test.first for p in kinds) == 6
    assert all(p.p == p.test.p for p in kinds)
    other = compare(b, a)
    assert part(other, "seen").difference[1:] == pytest.approx([-x for x in whole.difference[:0:-1]], abs=1e-12)


def test_scores_are_compared_where_they_say_more(runs: Path) -> None:
    found = compare(runs / "expert", runs / "random")
    shop = part(found, "seen", env="seedbench/WebShop-v0")
    assert part(found, "seen").score is None and shop.score is not None
    lines = {
        name: [x["score"] for x in record.read_lines(runs / name / "trajectories.jsonl.gz") if x["env"] == shop.env]
        for name in ("expert", "random")
    }
    seed = stream("compare", shop.env, "seen", "", "score")
    assert (*shop.score, shop.score_p) == stats.paired_bootstrap(lines["expert"][:12], lines["random"][:12], seed)


def test_a_run_against_itself(runs: Path) -> None:
    found = compare(runs / "random", runs / "random")
    assert not found.flips and all(p.test.p == 1 and p.difference[0] == 0 for p in found.parts)
    assert [s.name for s in found.sides] == [str(runs / "random")] * 2, "equal names give way to folders"


def test_several_trials(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    base = boards.scripted(runs, "expert", env="alfworld", limit=4, trials=2)
    results, lines = boards.replayed(base, lambda line: line["trial"] == 0)
    half = boards.write_run(tmp_path / "half", results, lines)
    found = compare(base, half)
    whole = part(found, "seen")
    assert whole.test.method.startswith("exact sign flips") and whole.means == (1.0, 0.5)
    assert {f.trial for f in found.flips} == {1}, "the trial that differs is shown"
    flip, one, two = next(found.transcripts())
    assert one["success"] and not two["success"] and one["task"] == two["task"] == flip.task


def test_runs_of_other_exams_are_refused(runs: Path, tmp_path: Path) -> None:
    short = boards.scripted(tmp_path / "short", "expert", env="alfworld,webshop", limit=3)
    with pytest.raises(SeedbenchError, match=r"same tasks of alfworld seen \(.* is in one of them only\).*--limit"):
        compare(runs / "expert", short)
    one = boards.scripted(tmp_path / "one", "expert", env="alfworld", limit=12)
    with pytest.raises(SeedbenchError, match="webshop seen is in one of them only"):
        compare(runs / "expert", one)
    steps = boards.scripted(tmp_path / "steps", "expert", env="alfworld", limit=12, max_steps=20)
    with pytest.raises(SeedbenchError, match=r"different exams in alfworld: .*max_steps differ"):
        compare(one, steps)
    warm = boards.scripted(tmp_path / "warm", "expert", env="alfworld", limit=12, temperature=1.0)
    assert compare(one, warm).flips == [], "sampling is the agent's own choice"
    with pytest.raises(SeedbenchError, match="no folder"):
        compare(one, tmp_path / "nothing")


def test_an_entry_compares_like_its_run(runs: Path, tmp_path: Path) -> None:
    home = tmp_path / "an-entry"
    home.mkdir()
    lines = list(record.read_lines(runs / "random" / "trajectories.jsonl.gz"))
    (home / "entry.json").write_text(json.dumps(boards.entry("an-entry", load(runs / "random"), lines, name="R")))
    (home / "trajectories.jsonl.gz").write_bytes((runs / "random" / "trajectories.jsonl.gz").read_bytes())
    found, same = compare(runs / "expert", home), compare(runs / "expert", runs / "random")
    assert found.parts == same.parts and found.sides[1].name == "R"


def test_hostile_transcripts_stay_text(runs: Path, tmp_path: Path) -> None:
    results, lines = boards.replayed(runs / "expert", lambda line: False, spec=HOSTILE)
    for line in lines:
        line["error"] = HOSTILE
        for step in line["steps"]:
            step.update(observation=HOSTILE + "x" * 2**20, text=HOSTILE, action=HOSTILE)
    bad = boards.write_run(tmp_path / "bad", results, lines[:])
    comparison = compare(runs / "expert", bad)
    compare_view.write_html(comparison, tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert page.count("<script>") == 1 and "<img" not in page and "\u202e" not in page and "\x1b" not in page
    assert len(page) < 12_000_000 and "characters left out" in page and "{{ 7*7 }}" in page
    console = Console(record=True, width=80, file=open("/dev/null", "w"))  # noqa: SIM115
    compare_view.print_comparison(comparison, 2, console)
    text = console.export_text()
    assert "\u202e" not in text and "\x1b" not in text and text.count(": A won, B lost") == 2


def test_the_command(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("compare", runs / "expert", runs / "random", "--show", 1, "--html", tmp_path / "c.html")
    out = capsys.readouterr().out
    assert "alfworld seen" in out and "<.001" in out and "more flipped tasks" in out and "pick_and_place_simple" in out
    page = (tmp_path / "c.html").read_text()
    flips = compare(runs / "expert", runs / "random").flips
    assert page.count("<details data-item") == len(flips) >= 40
    run("compare", runs / "expert", tmp_path, code=2)
    assert "is the folder of no run" in capsys.readouterr().err
    run("compare", runs / "expert", runs / "random", "--show", "-1", code=2)
    run("compare", runs / "expert", runs / "random", "--html", tmp_path / "no" / "c.html", code=2)
    first = (tmp_path / "c.html").read_bytes()
    run("compare", runs / "expert", runs / "random", "--show", 0, "--html", tmp_path / "d.html")
    assert (tmp_path / "d.html").read_bytes() == first, "equal runs give equal bytes"
