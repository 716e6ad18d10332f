"""Level 3, replay: a fresh environment, given the stored texts, shows and pays what is stored.

Episodes go through `play`, the one loop that played them, with an agent that says again what was said. So each prompt
is rendered anew from what the environment shows now, the declared template and the declared lesson: one word more in
the prompt that the agent saw (a plan, an answer) has another `prompt_sha`. Where an environment promises the score
alone (replay = "score": an approximate index), outcomes are compared, and prompts are rendered from the stored
observations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from seedbench.core import Agent, Reply, TextEnv, Trajectory, View
from seedbench.exam import Config, Exam, plan
from seedbench.leaderboard.findings import MAX_FINDINGS, Finding, Options
from seedbench.leaderboard.pool import Pool
from seedbench.leaderboard.run import Run, place, replayed
from seedbench.prompts import prompt_sha
from seedbench.record import Record, key, record
from seedbench.rollout import Episode, play

SHOWN = 300  # characters of an observation in a finding
Numbered = tuple[int, Record]  # a line and its number in the file


def check_replay(run: Run, options: Options) -> list[Finding]:
    """The first divergence of every episode that has one. Runs in `options.workers` processes of their own."""
    total = sum(len(tasks) for x in run.exams for tasks in x.tasks.values()) * run.trials
    found: list[Finding] = []
    with Pool(Replayer, [replayed(c) for c in run.configs], options, total) as pool:
        for said in pool.map(enumerate(run.lines(), 1)):
            found += said
            if len(found) >= MAX_FINDINGS:
                break
    return found[:MAX_FINDINGS]


class Replayer:
    """What one process holds: the exams of a run, made anew."""

    def __init__(self, configs: Sequence[Config]):
        self.seed, self.mode = configs[0].seed, configs[0].parse
        self.exams = {exam.env_id: exam for config in configs for exam in plan(config)}
        self.tasks = {
            (env_id, split): {t.id: t for t in tasks}
            for env_id, exam in self.exams.items()
            for split, tasks in exam.tasks.items()
        }

    def __call__(self, lines: Sequence[Numbered]) -> list[Finding]:
        """What is found in some lines, one Finding an episode at most."""
        return [finding for env_id, exam in self.exams.items() for finding in self._one_exam(exam, lines)]

    def _one_exam(self, exam: Exam, lines: Sequence[Numbered]) -> Iterator[Finding]:
        ours = [(number, line) for number, line in lines if line["env"] == exam.env_id]
        again = [self._episode(line, exam) for _, line in ours]
        agent = Stored(line for _, line in ours)
        played = play(exam.make, again, agent, slots=1, prompt=exam.prompt, mode=self.mode)  # one slot keeps the order
        for (number, line), t in zip(ours, played, strict=True):
            if said := (outcome_alone if exam.protocol["replay"] == "score" else divergence)(line, t, exam):
                turn, message = said
                yield Finding("replay", f"{place(number, key(line))}{turn and f', step {turn}'}", message)

    def _episode(self, line: Record, exam: Exam) -> Episode:
        task = self.tasks[exam.env_id, line["split"]][line["task"]]
        return Episode(task, self.seed, line["trial"], exam.hint(task))


class Stored(Agent):
    """Says what lines hold, and fails where they hold no more."""

    needs_env: ClassVar[bool] = True

    def __init__(self, lines: Iterator[Record]):
        self.texts = {key(line): [s["text"] for s in line["steps"]] for line in lines}

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        return [self._reply(view, env) for view, env in zip(views, envs or (), strict=True)]

    def _reply(self, view: View, env: TextEnv) -> Reply | Exception:
        assert env.playing is not None
        task, trial = env.playing
        texts, turn = self.texts[task.env, task.split, task.id, trial], len(view.history)
        return (
            Reply(texts[turn], finish_reason="stop") if turn < len(texts) else NoMoreTexts("no more texts are stored")
        )


class NoMoreTexts(Exception):
    """The stored episode ends before the replayed one does."""


Said = tuple[int | str, str] | None  # (turn from 1, or "" for the whole episode; what differs there)


def divergence(line: Record, t: Trajectory, exam: Exam) -> Said:
    """The first thing in which a replayed episode is not the stored one."""
    again = record(t)
    for turn, (a, b) in enumerate(zip(line["steps"], again["steps"], strict=False), 1):
        if a["observation"] != b["observation"]:
            return turn, f"the observation is stored as {_around(a['observation'], b['observation'])}"
        if a["prompt_sha"] != b["prompt_sha"]:
            return turn, (
                f"the agent saw another prompt (sha256 {a['prompt_sha'][:100]}) than the one rendered from the "
                f"episode, the template and the lesson that are stated ({b['prompt_sha']})"
            )
        if (a["action"], a["format_valid"]) != (b["action"], b["format_valid"]):
            return turn, f"the action is stored as {a['action'][:SHOWN]!r} and read as {b['action'][:SHOWN]!r}"
        raised = line["ended"] == "error" and turn == len(line["steps"])  # a step that raised paid nothing
        if a["reward"] != b["reward"] and not (raised and a["reward"] == 0):
            return turn, f"the reward is stored as {a['reward']}, the environment pays {b['reward']}"
    return _end(line, t) or _outcome(line, t)


def outcome_alone(line: Record, t: Trajectory, exam: Exam) -> Said:
    """For an environment that promises only the score: the outcome, and prompts from the stored observations."""
    history: tuple[tuple[str, str], ...] = ()
    for turn, (a, step) in enumerate(zip(line["steps"], t.steps, strict=False), 1):
        view = replace(step.view, observation=a["observation"], history=history)
        if (sha := prompt_sha(exam.prompt.render(view))) != a["prompt_sha"]:
            return turn, f"the agent saw another prompt (sha256 {a['prompt_sha'][:100]}) than the one stated ({sha})"
        history = (*history, (a["observation"], a["action"]))
    return None if line["ended"] == "error" else _outcome(line, t)


def _end(line: Record, t: Trajectory) -> Said:
    """Whether both episodes end after the same turn, in the same way."""
    stored, again = len(line["steps"]), len(t.steps)
    if again < stored:
        how = f"raised ({t.error})" if t.ended == "error" else f"ended the episode ({t.ended})"
        return again, f"the environment {how} here, and {stored} steps are stored"
    if line["ended"] != t.ended:
        more = "goes on" if t.error.startswith(NoMoreTexts.__name__) else f"raised ({t.error})"
        now = more if t.ended == "error" else f"ended it as {t.ended!r}"
        return stored or "", f"the episode is stored as {line['ended']!r} here, the environment {now}"
    return None


def _outcome(line: Record, t: Trajectory) -> Said:
    if line["success"] != t.success or not math.isclose(line["score"], t.score, rel_tol=1e-9, abs_tol=1e-12):
        stored = f"success {line['success']}, score {line['score']}"
        return "", f"the outcome is stored as {stored}, the replay gives success {t.success}, score {t.score}"
    measured, again = line.get("measures", {}), dict(t.measures)
    if line["ended"] != "error" and measured != again:
        return "", f"the measures are stored as {measured}, the replay gives {again}"
    return None


def _around(stored: str, now: str) -> str:
    """Both texts where they first differ."""
    at = next((i for i, (a, b) in enumerate(zip(stored, now, strict=False)) if a != b), min(len(stored), len(now)))
    start = max(0, at - SHOWN // 3) if max(len(stored), len(now)) > SHOWN else 0
    a, b = (f"{'...' * (start > 0)}{x[start : start + SHOWN]}{'...' * (len(x) > start + SHOWN)}" for x in (stored, now))
    return f"{a!r}, the environment shows {b!r}"
