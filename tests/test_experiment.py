"""Experiments: their plans, how they are run and gone on with, and what their reports say."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seedbench.baselines.plan import Plan
from seedbench.core import SeedbenchError
from seedbench.train.args import Args
from tests.command import run as command
from tests.tiny import one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
report = pytest.importorskip("seedbench.baselines.report")
experiment = pytest.importorskip("seedbench.baselines.experiment")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)

RESULTS = Path(experiment.__file__).parent / "results"
PLANS = sorted({*RESULTS.glob("seed-*.json"), *RESULTS.glob("sspo-deep*.json")} - {RESULTS / "seed-signal.json"})
FEWER = {"task_share": 0.6}
OTHERWISE = {"half": {"updates": 6}, "grpo_60": FEWER, "seed_60": FEWER}  # half of GRPO's updates, rounded up


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def test_power_of_the_paired_test() -> None:
    """Cohen 1988's worked figures: d = .5 needs 34 pairs for 80 % at 5 %; the pilot's .17 needs about 25 for .10."""
    assert report.pairs_needed(1.0, 0.5) == 34 and report.pairs_needed(0.17, 0.10) == 25
    assert report.power(1.0, 34, 0.5) == pytest.approx(0.808, abs=1e-3)
    assert report.power(0.2, 10, 0.0) == pytest.approx(0.05, abs=1e-4)  # without effect: the level
    assert report.power(1e-9, 2, 1.0) == 1.0 and report.pairs_needed(1e-9, 0.1) == 2
    assert report.power(0.17, 25, report.detectable(0.17, 25)) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_plans_are_ones_that_can_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arm's flags are understood, and all arms have as many updates, episodes and mini-batches, but for
    OTHERWISE; second plays have flags of `seedbench eval`."""
    from seedbench import cli
    from seedbench.commands import runs, train

    told: list[Any] = []
    monkeypatch.setattr(train._Common, "run", lambda self, page, args: told.append(args))
    plan = Plan.load(path)
    for arm in plan.arms.values():
        cli.main(["train", *arm, "--env", plan.env, "--model", plan.start, "--seed", "0", "--out", "x"])
    shared = [f.name for f in dataclasses.fields(Args) if f.name != "deal_seed"]
    for arm, args in zip(plan.arms, told, strict=True):
        assert OTHERWISE.get(arm, {}) == {n: v for n in shared if (v := getattr(args, n)) != getattr(told[0], n)}, arm
    assert len(plan.arms) == len(told) == len({(type(a), json.dumps(dataclasses.asdict(a))) for a in told})
    assert len(set(plan.seeds)) == len(plan.seeds) and "--temperature" in plan.eval
    if "again" in plan.arms:
        control, again = (dataclasses.asdict(told[list(plan.arms).index(n)]) for n in ("grpo", "again"))
        assert {k for k in control if control[k] != again[k]} == {"deal_seed"}
    played: list[Any] = []
    monkeypatch.setattr(runs.Eval, "__call__", lambda self: played.append(self))
    for flags in plan.again.values():
        cli.main(["eval", "--agent", "expert", "--env", plan.env, "--out", "x", *plan.eval, *flags])
    assert all(p.temperature == 0.6 and p.trials == 4 for p in played) or "sspo" not in path.name


def test_report_compares_pairs_and_shows_second_plays(tmp_path: Path) -> None:
    plan = {"title": "t", "start": "s", "env": "alfworld", "seeds": [0, 1, 2], "eval": [], "control": "a",
            "arms": {"a": ["grpo"], "b": ["seed"], "c": ["skill_grpo"]}, "contrasts": [["b", "c"]],
            "again": {"c": ["--skill", "static"]}}  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    wins = {"start": "0000", "a": "1000", "b": "1110", "c": "1000"}
    for arm, won in wins.items():
        for seed in range(3):
            run = tmp_path / "plan" / arm / str(seed)
            run.mkdir(parents=True)
            one = won if seed else won[::-1]
            one = "1111" if (arm, seed) == ("b", 2) else one
            split = {"won": one, "score": 0.0, "steps": 3.0, "invalid_rate": 0.0}
            told = {"seen": split, "unseen": {**split, "won": "1" + one[1:]}}
            if arm == "c":
                told["seen*"] = told["unseen*"] = {**split, "won": "1111"}
            (run / "outcomes.json").write_text(json.dumps(told))
            if arm != "start":
                lines = [json.dumps({"update": 1, "success": 0.25 * (arm == "b") * (1 + 0.1 * seed)})]
                (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    said = report.write(path, tmp_path / "plan")
    assert "- b - c: all splits +0.583" in said and "area under the training curve +0.275" in said
    assert "- c, seen, played with --skill static: 1.000" in said
    assert "at 80 % power" in said and "all splits, b:" in said
    for wrong in ({"contrasts": [["b", "x"]]}, {"again": {"x": []}}, {"contrasts": [["b"]]}):
        path.write_text(json.dumps(plan | wrong))
        with pytest.raises(SeedbenchError):
            Plan.load(path)


def test_report_describes_what_every_run_measured(tmp_path: Path) -> None:
    """Over both splits by their episodes; the last five updates; a task's trials are one observation of a test."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"title": "t", "start": "s", "env": "deepsearch", "seeds": [0, 1, 2], "eval": [],
                                "control": "a", "arms": {"a": ["grpo"], "b": ["sspo"]}}))  # fmt: skip
    for arm in ("start", "a", "b"):
        for seed in range(3):
            run = tmp_path / "plan" / arm / str(seed)
            run.mkdir(parents=True)
            metrics = {"evidence": 0.5 + 0.1 * (arm == "b") + 0.01 * seed * (arm == "b"), "f1": 0.25}
            split = {"won": "11000000" if arm == "b" else "00000000", "score": 0.0, "steps": 3.0, "invalid_rate": 0.0,
                     "trials": 4, "metrics": metrics}  # fmt: skip
            other = {**split, "won": "00" * 8, "metrics": {"evidence": 0.8} | ({} if seed else {"f1": 0.25})}
            (run / "outcomes.json").write_text(json.dumps({"seen": split, "unseen": other}))
            if arm != "start":
                lines = [{"update": k, "success": 0.0, "grad_norm": float(k) + (arm == "b"), "entropy": 1.0}
                         for k in range(1, 8)]  # fmt: skip
                if arm == "b":
                    del lines[0]["entropy"], lines[6]["entropy"]
                (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = report.write(path, tmp_path / "plan")
    assert "| steps | invalid | evidence | gradient norm | entropy |" in said and "f1" not in said
    assert "| 0.700 ± 0.000 | - | - |" in said and "| 0.700 ± 0.000 | 5.000 ± 0.000 | 1.000 ± 0.000 |" in said
    assert "- b: evidence +0.037 [+0.028, +0.045]" in said  # (.100, .110, .120) / 3: the other split is twice as long
    assert "exact sign-flip test of each run, Holm over seeds: seed 0: +1 -0, p 1;" in said  # two trials of one task


@pytest.mark.parametrize("name", ["grpo-searchqa", "grpo-webshop"])
def test_older_outcomes_make_the_report_they_made(tmp_path: Path, name: str) -> None:
    source = Path(experiment.__file__).parent / "results" / name
    shutil.copy(source.with_suffix(".json"), tmp_path)
    shutil.copytree(source, tmp_path / name)
    new = report.write(tmp_path / f"{name}.json", tmp_path / name).splitlines()
    assert len(old := (source / "report.md").read_text().splitlines()) > 10
    assert [line for line in old if not any(one.startswith(line.rstrip(" |")) for one in new)] == []


def again_and_otherwise(
    path: Path, plan: Any, kept: Path, work: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed play goes on; what another process has in hand is waited for, and done when it lets go of it; a changed
    plan is refused, and so is a play with an episode too few."""
    from seedbench import record

    before, run = (kept / "a" / "3" / "outcomes.json").read_bytes(), work / "a" / "3"
    for gone in (kept / "a" / "3" / "outcomes.json", run / "again" / "results.json"):
        gone.unlink()
    waited: list[float] = []
    with contextlib.ExitStack() as lock:
        lock.enter_context(record.locked(kept / "a" / "3"))
        monkeypatch.setattr(experiment.time, "sleep", lambda seconds: waited.append(seconds) or lock.close())
        assert experiment.run(path, work, 1) == kept
    assert waited == [experiment.PAUSE]
    assert asked[5:] == [("eval", "--resume", str(run / "again"), "--quiet")]
    assert (kept / "a" / "3" / "outcomes.json").read_bytes() == before
    path.write_text(json.dumps(plan | {"arms": {"a": [*plan["arms"]["a"], "--lr", "1e-3"]}}))
    with pytest.raises(SeedbenchError, match=r"a/3 was made with train .* and the plan says .*\"1e-3\""):
        experiment.run(path, work, 1)
    path.write_text(json.dumps(plan))
    played = run / "eval" / "trajectories.jsonl.gz"
    played.write_bytes(gzip.compress(gzip.decompress(played.read_bytes()).splitlines(keepends=True)[0]))
    with pytest.raises(SeedbenchError, match="eval is damaged, 2 episodes of seen were played"):
        experiment.outcomes(run / "eval")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [1, 1]}, "the seed 1 is there twice"),
        ({"eval": ["--split", "seen", "--agent", "expert"]}, "--agent is for the runner to give"),
        ({"again": {"a": ["--seed=0"]}}, "--seed=0 is for the runner to give"),
        ({"arms": {"a": ["grpo", "--recipe", "nope"]}}, "--recipe nope"),
        ({"arms": {"a": ["grpo", "--updates", "0"]}}, "--updates is 0"),
        ({"arms": {"a": ["sft"]}}, "'a' names no algorithm that plays"),
        ({"arms": {"a": ["skill_grpo", "--skill", "nowhere.md"]}}, "nowhere.md is no file"),
        ({"eval": ["--split", "nowhere"]}, "nowhere"),
        ({"start": "no/such/folder/here"}, "no/such/folder/here"),
        ({"arms": {"a": ["grpo", "--lr\0"]}}, "cannot be printed"),
        (
            {"arms": {"a": ["grpo"], "b": ["grpo", "--updatez", "3"]}},
            "arm 'b' of the plan is no command: seedbench train",
        ),
        ({"arms": {"a": ["grpo", "--lr", "-1"]}}, "--lr is -1.0: give a finite number"),
        ({"eval": ["--split", "seen", "--trials", "x"]}, "eval of the plan is no command"),
        ({"again": {"a": ["--skil", "static"]}}, "again of 'a' of the plan is no command"),
        ({"arms": []}, "arms: Input should be an object"),
    ],
)
def test_a_plan_is_refused_before_its_first_run(
    wrong: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "one", lambda job: pytest.fail("a run began"))
    plan = {"title": "t", "start": "tiny", "env": "alfworld", "seeds": [0], "eval": [], "arms": {"a": ["grpo"]}}
    (tmp_path / "plan.json").write_text(json.dumps(plan | wrong))
    with pytest.raises(SeedbenchError) as error:
        experiment.run(tmp_path / "plan.json", tmp_path / "work", 1)
    assert said in str(error.value)


def test_what_is_kept_is_checked_when_it_is_read(tmp_path: Path) -> None:
    split = {"won": "01", "score": 0.5, "steps": 3.0, "invalid_rate": 0.0}
    for arm in ("start", "a"):
        (tmp_path / arm / "0").mkdir(parents=True)
        (tmp_path / arm / "0" / "outcomes.json").write_text(json.dumps({"seen": split}))
    (tmp_path / "a" / "notes").mkdir()
    (tmp_path / "a" / "7").mkdir()
    shutil.copy(tmp_path / "a" / "0" / "outcomes.json", tmp_path / "a" / "7")
    (tmp_path / "a" / "0" / "metrics.jsonl").write_text('{"update": 1, "success": 0.5}\n')
    arms = {name: report.Arm(tmp_path / name) for name in ("start", "a")}
    report.check({name: report.Arm(tmp_path / name, [0]) for name in arms})
    with pytest.raises(SeedbenchError, match=r"a, seed 7, has no metrics\.jsonl"):
        report.check(arms)
    shutil.rmtree(tmp_path / "a" / "7")
    (tmp_path / "a" / "0" / "outcomes.json").write_text(json.dumps({"seen": split | {"won": "0"}}))
    with pytest.raises(SeedbenchError, match=r"a, seed 0, played .* .episodes, trials., the start"):
        report.check({"start": arms["start"], "a": report.Arm(tmp_path / "a")})
    for text in ('{"seen": {"won": "012"', json.dumps({"seen": split | {"won": "012"}}), "[]", '{"seen": []}'):
        (tmp_path / "a" / "0" / "outcomes.json").write_text(text)
        with pytest.raises(SeedbenchError, match=r"outcomes\.json is not what an experiment keeps"):
            report.Arm(tmp_path / "a")
    (tmp_path / "a" / "0" / "outcomes.json").write_text(json.dumps({"seen": split}))
    for text in ("", '{"update": 1}\n', '{"update": 1, "success": 0.5}\n{"upd', '{"update": 2, "success": 0.5}\n'):
        (tmp_path / "a" / "0" / "metrics.jsonl").write_text(text)
        with pytest.raises(SeedbenchError, match=r"metrics\.jsonl is no whole log"):
            report.Arm(tmp_path / "a")


def test_an_experiment_end_to_end(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms, the second play of one of them, and a second call that finds nothing left to do."""
    asked: list[tuple[str, ...]] = []

    def called(*args: str) -> None:
        asked.append(args)
        command(*args)

    monkeypatch.setattr(experiment, "_seedbench", called)
    short = ["--max-new-tokens", "8", "--max-steps", "2"]
    plan = {"title": "t", "start": str(folder), "env": "deepsearch", "seeds": [3], "control": "",
            "eval": ["--split", "seen", "--limit", "1", "--trials", "2", *short],
            "again": {"a": ["--skill", "static"], "start": ["--trials", "3"]},
            "arms": {"a": ["grpo", "--updates", "1", "--tasks", "1", "--group", "2", *short]}}  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    kept = experiment.run(path, tmp_path / "work", 1)
    told = json.loads((kept / "a" / "3" / "outcomes.json").read_text())
    assert set(told) == {"seen", "seen*"} and told["seen"]["won"] == told["seen*"]["won"] == "00"
    assert told["seen"]["trials"] == 2 and set(told["seen"]["metrics"]) == {
        "searches",
        "visits",
        "f1",
        "evidence",
        "precision",
    }
    start = json.loads((kept / "start" / "3" / "outcomes.json").read_text())
    assert set(start) == {"seen", "seen*"} and (start["seen"]["trials"], start["seen*"]["trials"]) == (2, 3)
    assert [args[0] for args in asked] == ["eval", "eval", "train", "eval", "eval"] and "--skill" in asked[4]
    configs = [json.loads((tmp_path / "work" / "a" / "3" / n / "run.json").read_text()) for n in ("eval", "again")]
    assert [c["config"]["skill"] for c in configs] == ["", "static"]
    experiment.run(path, tmp_path / "work", 1)
    assert len(asked) == 5
    again_and_otherwise(path, plan, kept, tmp_path / "work", asked, monkeypatch)
    said = report.write(path, kept)
    assert "| arm | runs | seen | area" in said and "- start, seen, played with --trials 3: 0.000" in said
