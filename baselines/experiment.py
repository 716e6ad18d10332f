"""Run an experiment that was written down: arms x seeds, each trained and then played, and the report of all of them.

    python -m seedbench.baselines.experiment baselines/results/grpo-alfworld.json --jobs 2

A plan is a JSON file: `start` (a model), `env`, `arms` (name -> arguments of `seedbench train`), `seeds`, `eval`
(arguments of `seedbench eval`), `control` (the arm that others are compared with, "" for the start alone); and where
they are needed `contrasts` (pairs of arms whose two endpoints are compared) and `again` (an arm, or start -> arguments
of a second `seedbench eval`, whose splits are kept under their names with a star). What every run leaves that is worth
keeping (metrics.jsonl, outcomes of all tasks) goes into a folder beside the plan, named like it;
seedbench.baselines.report reads that folder alone. Every command is read before the first is given. Runs that are there
are not run again, unless the plan has changed, which is refused; one that was killed goes on, so the same command
resumes. Several processes may work on one plan: each takes the next run that no other has in hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from seedbench import record
from seedbench.baselines.plan import Plan
from seedbench.core import SeedbenchError

SETTINGS = "settings.json"  # beside what is kept of a run: what it was made with
PAUSE = 5.0  # seconds between looks at what another process has in hand


@dataclass(frozen=True)
class Job:
    """One run of an arm, or (arm "start") the play of the model that all begin with."""

    plan: Plan
    arm: str
    seed: int
    work: Path
    kept: Path

    @property
    def done(self) -> bool:
        return (self.kept / "outcomes.json").is_file()

    def same(self, folder: Path) -> None:
        """Raises SeedbenchError if what lies in `folder` was made with other settings than the plan's. (What was kept
        before settings were kept with it is taken as it is.)"""
        if not (folder / SETTINGS).is_file():
            return
        from seedbench.policy.weights import read_object

        was, now = read_object(folder / SETTINGS), self.plan.settings(self.arm, self.seed)
        for name, value in now.items():
            if was.get(name) != value:
                raise SeedbenchError(
                    f"{folder} was made with {name} {json.dumps(was.get(name))}, and the plan says "
                    f"{json.dumps(value)}: put the plan back, or give the new one a name of its own."
                )


def run(path: Path, work: Path, jobs: int, arms: Sequence[str] = ()) -> Path:
    """Do what is left of the plan or of some `arms`, `jobs` runs at a time; returns the folder with what is kept. Runs
    that another process has in hand are waited for, and taken over if it dies."""
    plan, kept = Plan.load(path), path.with_suffix("")
    if kept == path:
        raise SeedbenchError(f"{path}: what is kept goes into a folder named like the plan: call the file NAME.json.")
    if strange := sorted(set(arms) - set(plan.arms)):
        raise SeedbenchError(f"{path} has no arm {strange[0]!r}: {', '.join(plan.arms) or 'none'} are its arms.")
    plan.check_commands()
    wanted = ("start", *(arm for arm in plan.arms if arm in arms or not arms))
    named = [(arm, seed) for seed in plan.seeds for arm in wanted]  # seeds outermost: pairs come first
    every = [Job(plan, arm, seed, work / arm / str(seed), kept / arm / str(seed)) for arm, seed in named]
    for job in every:
        job.same(job.kept)
    todo, done = [job for job in every if not job.done], 0
    all_of_them = len(todo)
    while todo:
        left = []
        with ThreadPoolExecutor(jobs) as pool:
            for job, ours in zip(todo, pool.map(one, todo), strict=True):
                if ours:
                    done += 1
                    print(f"{done} of {all_of_them}: {job.arm}, seed {job.seed}", flush=True)
                else:
                    left.append(job)
        if left == todo:
            time.sleep(PAUSE)
        elif left:
            print(f"{len(left)} runs are in the hands of another process, which is waited for", flush=True)
        todo = left
    return kept


def one(job: Job) -> bool:
    """Train (or go on), play, and keep the little that the report needs; False where another process is doing it.
    Raises SeedbenchError with what was said."""
    job.kept.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(record.locked(job.kept))  # and not job.work: that may be another one
        except SeedbenchError:
            return False
        if not job.done:  # by another process, meanwhile
            _one(job)
    return True


def _one(job: Job) -> None:
    plan, model, trained = job.plan, job.plan.start, job.work / "train"
    job.work.mkdir(parents=True, exist_ok=True)
    if (job.work / "train").exists() or (job.work / "eval").exists():
        if not (job.work / SETTINGS).is_file():
            raise SeedbenchError(f"{job.work} does not say what it was made with: remove it, or name another --work.")
        job.same(job.work)
    record.write_json(job.work / SETTINGS, plan.settings(job.arm, job.seed))
    if job.arm != "start":
        model = str(trained)
        if not (trained / "model.safetensors").is_file():
            if (trained / "train.json").is_file():
                _seedbench("train", plan.arms[job.arm][0], "--resume", model)
            else:
                _seedbench(*plan.train(job.arm, job.seed, model))
    told = _played(job, model, job.work / "eval")
    if job.arm in plan.again:
        more = _played(job, model, job.work / "again", plan.again[job.arm])
        told |= {f"{split}*": figures for split, figures in more.items()}
    if job.arm != "start":
        shutil.copy(trained / "metrics.jsonl", job.kept / "metrics.jsonl")
    shutil.copy(job.work / SETTINGS, job.kept / SETTINGS)
    record.write_json(job.kept / "outcomes.json", told)


def _played(job: Job, model: str, folder: Path, more: Sequence[str] = ()) -> dict[str, Any]:
    if not (folder / "results.json").is_file():
        if (folder / "run.json").is_file():
            _seedbench("eval", "--resume", str(folder), "--quiet")
        else:
            _seedbench(*job.plan.play(model, job.seed, str(folder), more))
    return outcomes(folder)


def outcomes(run: Path) -> dict[str, Any]:
    """Per split of a finished run: won episodes as a string of 0 and 1, tasks in manifest order and the trials of each
    together; mean steps, invalid rate, and means of what else the environment measures."""
    from seedbench.results import load

    found = load(run).results
    told: dict[str, Any] = {
        r.split: {"won": "", "score": r.score.mean, "steps": r.steps.mean, "invalid_rate": r.invalid_rate or 0.0,
                  "trials": r.attempted // r.tasks,
                  "metrics": {k: v for k, v in r.metrics.items() if isinstance(v, int | float)}}
        for r in found
    }  # fmt: skip
    for line in record.read_lines(run / "trajectories.jsonl.gz"):
        told[line["split"]]["won"] += str(int(line["success"]))
    for r in found:
        if len(told[r.split]["won"]) != r.attempted:
            raise SeedbenchError(f"{run} is damaged, {r.attempted} episodes of {r.split} were played: remove it.")
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
    some = arms.split(",") if arms else []
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
