"""Run an experiment that was written down: arms x seeds, each trained and then played, and the report of all of them.

    python -m seedbench.baselines.experiment baselines/results/grpo-alfworld.json --jobs 2

A plan is a JSON file: `start` (a model), `env`, `arms` (name -> arguments of `seedbench train`), `seeds`, `eval`
(arguments of `seedbench eval`), `control` (the arm that others are compared with, "" for the start alone); and where
they are needed `contrasts` (pairs of arms whose two endpoints are compared) and `again` (an arm, or start -> arguments
of a second `seedbench eval`, whose splits are kept under their names with a star). What every run leaves that is worth
keeping (metrics.jsonl, outcomes of all tasks) goes into a folder beside the plan, named like it;
seedbench.baselines.report reads that folder alone. Runs that are there are not run again, and one that was killed goes
on, so the same command resumes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from pydantic import ConfigDict, TypeAdapter, ValidationError

from seedbench.core import SeedbenchError


@dataclass(frozen=True)
class Plan:
    """What is run; read from a file that is committed before the first run."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    title: str
    start: str
    env: str
    arms: dict[str, list[str]]
    seeds: list[int]
    eval: list[str]
    control: str = ""
    question: str = ""
    analysis: str = ""
    contrasts: list[list[str]] = field(default_factory=list)
    again: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Read a plan. Raises SeedbenchError."""
        try:
            plan = TypeAdapter(cls).validate_json(path.read_text(encoding="utf-8"), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise SeedbenchError(f"{path} is not a plan of an experiment: {where}: {first['msg']}.") from error
        except (OSError, ValueError, RecursionError) as error:
            raise SeedbenchError(f"{path} is not a plan of an experiment ({error}).") from error
        if strange := [arm for arm in plan.arms if not re.fullmatch(r"[\w-][\w.-]*", arm) or arm == "start"]:
            raise SeedbenchError(f"{path}: an arm is called {strange[0]!r}: take letters, digits, - and _, not start.")
        if empty := [arm for arm, told in plan.arms.items() if not told]:
            raise SeedbenchError(f"{path}: the arm {empty[0]!r} names no algorithm: begin it with grpo, say.")
        if plan.control and plan.control not in plan.arms:
            raise SeedbenchError(f"{path}: the control {plan.control!r} is none of the arms.")
        named = {arm for pair in plan.contrasts for arm in pair} | set(plan.again) - {"start"}
        if strange := sorted(named - set(plan.arms)):
            raise SeedbenchError(f"{path}: {strange[0]!r} in contrasts or again is none of the arms.")
        if any(len(pair) != 2 for pair in plan.contrasts):
            raise SeedbenchError(f"{path}: each of the contrasts is a pair of arms.")
        return plan


@dataclass(frozen=True)
class Job:
    """One run of an arm, or (arm "start") the play of the model that all begin with."""

    arm: str
    seed: int
    work: Path
    kept: Path

    @property
    def done(self) -> bool:
        return (self.kept / "outcomes.json").is_file()


def run(path: Path, work: Path, jobs: int, arms: Sequence[str] = ()) -> Path:
    """Do what is left of the plan or of some `arms`, `jobs` runs at a time; returns the folder with what is kept."""
    plan, kept = Plan.load(path), path.with_suffix("")
    if strange := sorted(set(arms) - set(plan.arms)):
        raise SeedbenchError(f"{path} has no arm {strange[0]!r}: {', '.join(plan.arms)} are its arms.")
    wanted = ("start", *(arm for arm in plan.arms if arm in arms or not arms))
    named = [(arm, seed) for seed in plan.seeds for arm in wanted]  # seeds outermost: pairs come first
    todo = [Job(arm, seed, work / arm / str(seed), kept / arm / str(seed)) for arm, seed in named]
    todo = [job for job in todo if not job.done]
    with ThreadPoolExecutor(jobs) as pool:
        for n, job in enumerate(pool.map(lambda job: one(plan, job), todo), 1):
            print(f"{n} of {len(todo)}: {job.arm}, seed {job.seed}", flush=True)
    return kept


def one(plan: Plan, job: Job) -> Job:
    """Train (or go on), play, and keep the little that the report needs. Raises SeedbenchError with what was said."""
    model, trained = plan.start, job.work / "train"
    if job.arm != "start":
        model = str(trained)
        if not (trained / "model.safetensors").is_file():
            if (trained / "train.json").is_file():
                _seedbench("train", plan.arms[job.arm][0], "--resume", model)
            else:
                told = ("--env", plan.env, "--model", plan.start, "--seed", str(job.seed), "--out", model)
                _seedbench("train", *plan.arms[job.arm], *told)
    kept = _played(plan, job, model, job.work / "eval", [])
    if job.arm in plan.again:
        more = _played(plan, job, model, job.work / "again", plan.again[job.arm])
        kept |= {f"{split}*": figures for split, figures in more.items()}
    job.kept.mkdir(parents=True, exist_ok=True)
    if job.arm != "start":
        shutil.copy(trained / "metrics.jsonl", job.kept / "metrics.jsonl")
    text = json.dumps(kept, indent=1) + "\n"
    (job.kept / "outcomes.json.part").write_text(text, encoding="utf-8")
    os.replace(job.kept / "outcomes.json.part", job.kept / "outcomes.json")
    return job


def _played(plan: Plan, job: Job, model: str, folder: Path, more: list[str]) -> dict[str, Any]:
    if not (folder / "results.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        told = ("--agent", model, "--env", plan.env, "--seed", str(job.seed), "--out", str(folder))
        _seedbench("eval", *told, *plan.eval, *more, "--quiet")
    return outcomes(folder)


def outcomes(run: Path) -> dict[str, Any]:
    """Per split of a finished run: won episodes as a string of 0 and 1, tasks in manifest order and the trials of each
    together; mean steps, invalid rate, and means of what else the environment measures."""
    from seedbench import record

    results = json.loads((run / "results.json").read_text(encoding="utf-8"))["results"]
    told: dict[str, Any] = {
        r["split"]: {"won": "", "score": r["score"]["mean"], "steps": r["steps"]["mean"],
                     "invalid_rate": r["invalid_rate"], "trials": r["attempted"] // r["tasks"],
                     "metrics": {k: v for k, v in r["metrics"].items() if isinstance(v, int | float)}}
        for r in results
    }  # fmt: skip
    for line in record.read_lines(run / "trajectories.jsonl.gz"):
        told[line["split"]]["won"] += str(int(line["success"]))
    return told


def _seedbench(*args: str) -> None:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "seedbench", *args], capture_output=True, text=True, env=one_thread)
    if done.returncode:
        raise SeedbenchError(f"seedbench {' '.join(args)} failed: {(done.stderr or done.stdout)[-2000:]}")


def main(
    plan: Annotated[Path, tyro.conf.Positional],
    work: Path | None = None,
    jobs: int = 1,
    arms: str = "",
) -> None:
    """Run what is left of an experiment and write its report.

    Args:
        plan: The plan's file.
        work: Folder for models and runs; by default runs/<name of the plan>.
        jobs: Runs at a time; each takes one core.
        arms: Run these arms alone, with commas between them; the report then waits for the rest.
    """
    from seedbench.baselines import report

    if jobs < 1:
        raise SeedbenchError(f"--jobs is {jobs}: it must be 1 or more.")
    some = [arm for arm in arms.split(",") if arm]
    kept = run(plan, work or Path("runs") / plan.stem, jobs, some)
    if some:
        print(f"these arms are done: the same command without --arms runs the rest and reports into {kept}")
    else:
        print(report.write(plan, kept))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: stopped; the same command goes on.")
    except OSError as error:
        sys.exit(f"error: {error}: mend that, and the same command goes on.")
