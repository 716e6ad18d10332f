"""The audit of our own scripted agents: they are functions of state and stream, so they are asked again."""

from __future__ import annotations

from collections.abc import Iterator

from seedbench.exam import Exam
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.findings import MAX_FINDINGS, Finding
from seedbench.leaderboard.run import TRAJECTORIES, Run, place
from seedbench.record import Record, key
from seedbench.rollout import Episode, play

SCRIPTED = ("null", "random", "expert")
_EPISODES = 64


def is_scripted(run: Run) -> bool:
    """Whether the run says that one of them played it."""
    kind = run.results.agent.get("kind")
    return kind in SCRIPTED and kind == run.results.agent.get("spec")


def check_scripted(run: Run) -> list[Finding]:
    """Episodes in which the agent says something else than is recorded. Raises Unreadable as Run does."""
    from seedbench.agents import load_agent

    agent = load_agent(str(run.results.agent["kind"]))
    found: list[Finding] = []
    for exam, part in _parts(run):
        agent.sampling = exam.sampling
        lines = {key(line): (number, line) for number, _, line in part}
        again = [episode for _, episode, _ in part]
        for t in play(exam.make, again, agent, slots=_EPISODES, prompt=exam.prompt, mode=run.mode):
            name = t.task.env, t.task.split, t.task.id, t.trial
            number, line = lines[name]
            was, now = [s["text"] for s in line["steps"]], [s.reply.text for s in t.steps]
            if was != now or line["seed"] != t.seed:
                turn = next((k for k, (a, b) in enumerate(zip(was, now, strict=False), 1) if a != b), len(now) + 1)
                says = f"from turn {turn} on the agent {agent.name} says something else than is recorded."
                found.append(Finding("audit", place(number, name), says))
    return found[:MAX_FINDINGS]


def _parts(run: Run) -> Iterator[tuple[Exam, list[tuple[int, Episode, Record]]]]:
    """Episodes of one exam with their lines, some at a time."""
    part: list[tuple[int, Episode, Record]] = []
    last: Exam | None = None
    lines = run.lines()
    for number, (exam, episode) in enumerate(run.episodes(), 1):
        line = next(lines, None)
        if line is None or key(line) != (exam.env_id, episode.task.split, episode.task.id, episode.trial):
            raise Unreadable(f"{TRAJECTORIES}, line {number}, is not of the episode that belongs there.")
        if last is not None and (exam is not last or len(part) >= _EPISODES):
            yield last, part
            part = []
        last = exam
        part.append((number, episode, line))
    if last is not None:
        yield last, part
