"""The part of an evaluation that takes time: play this process's share of the episodes that no journal holds yet, each
journalled as it ends, with one progress bar over the shares of all processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from seedbench.core import Agent, InfrastructureError, Trajectory, short_name
from seedbench.exam import Config, Exam
from seedbench.record import Key
from seedbench.rollout import Episode, play
from seedbench.shard import BEAT, Team
from seedbench.view import visible

SILENCE = 30.0  # seconds without a word where no bars can be drawn


@dataclass
class Tally:
    """What became of the episodes of one process in one session; ranks tell it to each other as JSON."""

    won: dict[str, int] = field(default_factory=dict)  # by environment and split
    played: dict[str, int] = field(default_factory=dict)
    errors: int = 0
    error: str = ""  # the first of them
    unplayed: int = 0
    reason: str = ""  # why the first of those was not played

    def count(self, t: Trajectory) -> None:
        name = f"{t.task.env} {t.task.split}"
        self.played[name] = self.played.get(name, 0) + 1
        self.won[name] = self.won.get(name, 0) + t.success
        if t.ended == "error":
            self.errors, self.error = self.errors + 1, self.error or f"{t.task.id}: {t.error}"

    def leave(self, episode: Episode, error: InfrastructureError) -> None:
        self.unplayed, self.reason = self.unplayed + 1, self.reason or f"{episode.task.id}: {error}"

    def add(self, other: Mapping[str, Any]) -> None:
        """Another rank's tally, as it told it."""
        for mine, theirs in ((self.won, other["won"]), (self.played, other["played"])):
            for name, n in theirs.items():
                mine[name] = mine.get(name, 0) + n
        self.errors, self.error = self.errors + other["errors"], self.error or other["error"]
        self.unplayed, self.reason = self.unplayed + other["unplayed"], self.reason or other["reason"]


class Board:
    """The progress bars: one a split, over the episodes of all processes; nothing on ranks other than 0. Where they
    cannot be drawn (a file, a pipe), a line at times."""

    def __init__(self, console: Console, exams: list[Exam], config: Config, done: Container[Key], hidden: bool):
        bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[won]}"))
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.progress = Progress(*bar, *times, console=console, disable=hidden)
        self.bars: dict[str, tuple[TaskID, int]] = {}  # with the episodes of earlier sessions
        self.spoken = math.inf if hidden or console.is_terminal else time.monotonic()
        for exam in exams:
            held = dict.fromkeys(exam.tasks, 0)
            for e in exam.episodes(config):
                held[e.task.split] += key_of(exam, e) in done
            for split, tasks in exam.tasks.items():
                total, n = len(tasks) * config.trials, held[split]
                bar_id = self.progress.add_task(
                    f"{short_name(exam.env_id)} {split}", total=total, completed=n, won="", start=False
                )
                self.bars[f"{exam.env_id} {split}"] = bar_id, n

    def show(self, tally: Tally) -> None:
        for name, n in tally.played.items():
            bar, held = self.bars[name]
            won = f"{100 * tally.won[name] / n:.0f} % won{' since' if held else ''}"
            self.progress.start_task(bar)
            self.progress.update(bar, completed=held + n, won=won)
        if time.monotonic() - self.spoken > SILENCE:
            self.spoken = time.monotonic()
            for t in self.progress.tasks:
                if t.completed and not t.finished:
                    words = f"{t.description} {t.completed:.0f}/{t.total:.0f} {t.fields['won']}"
                    self.progress.console.print(words, markup=False)


def key_of(exam: Exam, e: Episode) -> Key:
    """Under which name the journal holds an episode."""
    return exam.env_id, e.task.split, e.task.id, e.trial


def play_share(
    exams: list[Exam],
    agent: Agent,
    config: Config,
    done: Container[Key],
    keep: Callable[[Trajectory], None],
    team: Team | None,
    console: Console,
) -> Tally:
    """Play what `done` lacks: all of it, or every world-th episode where there is a team.

    Returns the tally of all processes, on rank 0; raises InfrastructureError when another rank ended early.
    """
    mine = Tally()
    rank, world = (team.here.rank, team.here.world) if team is not None else (0, 1)
    board = Board(console, exams, config, done, hidden=agent.interactive or rank > 0)
    looked = 0.0
    with board.progress:
        for t in _trajectories(exams, agent, config, done, mine, rank, world):
            keep(t)
            mine.count(t)
            if team is None:
                board.show(mine)
            elif time.monotonic() - looked > BEAT:
                looked = time.monotonic()
                board.show(_together(mine, team))
        if team is None:
            return mine
        while rank == 0 and not all(word["state"] == "done" for word in team.look()):
            time.sleep(BEAT / 5)
            board.show(_together(mine, team))
        whole = _together(mine, team)
        board.show(whole)
    return whole


def _together(mine: Tally, team: Team) -> Tally:
    """The tallies of all ranks; this one's is told to the others on the way."""
    team.say(counts=asdict(mine))
    whole = Tally()
    for counts in (asdict(mine), *(word["counts"] for word in team.look())):
        if counts:
            whole.add(counts)
    return whole


def _trajectories(
    exams: list[Exam], agent: Agent, config: Config, done: Container[Key], tally: Tally, rank: int, world: int
) -> Iterator[Trajectory]:
    for exam in exams:
        agent.sampling, agent.env, agent.prompt = exam.sampling, exam.env_id, exam.prompt
        todo = [e for e in exam.episodes(config) if key_of(exam, e) not in done][rank::world]
        slots = 1 if agent.interactive else exam.slots
        if config.server is not None:  # the sessions that the server grants are for all processes together
            slots = max(1, slots // world)
        yield from play(
            exam.make, todo, agent, slots=slots, prompt=exam.prompt, mode=config.parse, on_unplayed=tally.leave
        )


def say_errors(tally: Tally, console: Console) -> None:
    """One line about the episodes that ended in an error."""
    if tally.errors:
        said = f"{tally.errors} episodes ended in an error and count as failures, the first {tally.error}"
        console.print(visible(said), markup=False, highlight=False)
