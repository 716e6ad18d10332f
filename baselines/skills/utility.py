"""What a skill is worth on its own task: the same agent plays it again, with the skill in the prompt and without.

Both sides share seeds: trial k with a skill meets trial k without. The plain side is played once a task, however many
skills the task has.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from seedbench.agents import load_agent, public_spec
from seedbench.baselines.lines import Lines
from seedbench.baselines.skills.rows import PLAYED
from seedbench.baselines.skills.store import Key, settings_of
from seedbench.core import InfrastructureError, Trajectory
from seedbench.exam import Config, Exam
from seedbench.prompts import sha256_json
from seedbench.rollout import Episode, play
from seedbench.stats import paired_bootstrap

if TYPE_CHECKING:
    from seedbench.commands.skills import Validate

FIRST = 1_000_000  # trials of collecting and of measuring share no random stream


class Utility:
    """Plays and keeps what it played, so that it goes on after a kill."""

    def __init__(self, options: Validate, exam: Exam):
        config = Config(**settings_of(options.project)["config"])
        spec = options.agent or config.agent
        self.config = dataclasses.replace(config, agent=spec, batch=options.batch, device=options.device)
        self.agent = load_agent(spec, batch=options.batch, device=options.device, threads=options.threads)
        self.agent.sampling, self.agent.env = exam.sampling, exam.env_id
        self.name = public_spec(spec)
        self.exam, self.trials = exam, options.trials
        self.lines = Lines(options.project / "utility.jsonl", PLAYED)
        self.won = {(r["agent"], r["task"], r["trial"], r["skill"]): r["success"] for r in self.lines.rows}

    def measure(self, rows: list[dict[str, Any]]) -> dict[Key, float]:
        """Success with the skill less success without, of each lesson; prints the mean over tasks."""
        tasks = {task.id: task for tasks in self.exam.tasks.values() for task in tasks}
        skills = list(dict.fromkeys((row["task"], said) for row in rows for said in ("", row["skill"])))
        episodes = [Episode(tasks[task], self.config.seed, FIRST + k, skill)
                    for task, skill in skills for k in range(self.trials)]  # fmt: skip
        left = [e for e in episodes if self._key(e.task.id, e.trial, e.hint) not in self.won]
        unplayed: list[InfrastructureError] = []
        with Progress(console=Console(stderr=True)) as bar:
            shown = bar.add_task("utility", total=len(episodes), completed=len(episodes) - len(left))
            played = play(self.exam.make, left, self.agent, slots=self.config.batch, prompt=self.exam.prompt,
                          mode=self.config.parse, on_unplayed=lambda _, error: unplayed.append(error))  # fmt: skip
            for t in played:
                self._keep(t)
                bar.advance(shown)
        if unplayed:
            raise InfrastructureError(f"{len(unplayed)} episodes were not played ({unplayed[-1]}): run it again.")
        gains = {(r["task"], r["trial"]): self._rate(r["task"], r["skill"]) - self._rate(r["task"], "") for r in rows}
        self._print(rows, gains)
        return gains

    def _keep(self, t: Trajectory) -> None:
        if not t.steps:  # broken before its first turn: no success, and played again by the next call
            return
        skill = t.steps[0].view.hint
        row = {"agent": self.name, "task": t.task.id, "trial": t.trial, "skill": _digest(skill), "success": t.success}
        self.lines.append(row)
        self.won[self._key(t.task.id, t.trial, skill)] = t.success

    def _key(self, task: str, trial: int, skill: str) -> tuple[str, str, int, str]:
        return self.name, task, trial, _digest(skill)

    def _rate(self, task: str, skill: str) -> float:
        return sum(self.won.get(self._key(task, FIRST + k, skill), False) for k in range(self.trials)) / self.trials

    def _print(self, rows: list[dict[str, Any]], gains: dict[Key, float]) -> None:
        """Means over tasks, of lessons after a success, after a failure, and of all."""
        for what, chosen in (("after a success", [r for r in rows if r["success"]]),
                             ("after a failure", [r for r in rows if not r["success"]]), ("all", rows)):  # fmt: skip
            if not chosen:
                continue
            told: dict[str, list[float]] = {}
            for r in chosen:
                told.setdefault(r["task"], []).append(self._rate(r["task"], r["skill"]))
            with_it = [math.fsum(v) / len(v) for v in told.values()]
            plain = [self._rate(task, "") for task in told]
            gap = paired_bootstrap(with_it, plain, seed=0)
            print(f"  utility with {self.name}, {what}: {_mean(plain):.3f} plain, {_mean(with_it):.3f} with the skill, "
                  f"{gap.difference:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}] over {len(told)} tasks")  # fmt: skip


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _digest(skill: str) -> str:
    return sha256_json(skill)[:16] if skill else ""
