"""Lessons as rows to learn from: the analysis prompt, and the compact JSON that answers it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from seedbench.baselines.lines import Lines, Row, once, write_lines
from seedbench.baselines.skills.analysis import dumps, messages
from seedbench.baselines.skills.rows import CHECKED, LESSON
from seedbench.baselines.skills.store import Key, key, settings_of, trajectories
from seedbench.core import Lesson, SeedbenchError, Trajectory, stream
from seedbench.record import locked

TRAIN, VAL = "sft.jsonl", "sft_val.jsonl"


def run(project: Path, keep: str, val: float) -> None:
    """Write sft.jsonl and sft_val.jsonl anew. Held out are whole tasks, so that none is on both sides."""
    seed = settings_of(project)["config"]["seed"]
    if not 0 <= val < 1:
        raise SeedbenchError(f"--val is {val}: give a share from 0 to below 1.")
    with locked(project):
        episodes = {key(t): t for t in trajectories(project)}
        checked = _checked(project, episodes)
        rows = [row for row in checked if row["skill"] and (keep == "parsed" or not row["reasons"])]
        if not rows:
            raise SeedbenchError(f"{project} holds no {keep} lesson: `seedbench skills validate` first.")
        tasks = sorted({row["task"] for row in rows}, key=lambda task: stream("skills val", seed, task))
        held = set(tasks[: math.floor(val * len(tasks))])
        n = [write_lines(project / name, _rows([r for r in rows if (r["task"] in held) == out], episodes))
             for name, out in ((TRAIN, False), (VAL, True))]  # fmt: skip
    print(f"{project}: {n[0]} rows in {TRAIN}, {n[1]} in {VAL} ({len(held)} of {len(tasks)} tasks)")


def _checked(project: Path, episodes: Mapping[Key, Trajectory]) -> list[Row]:
    """The checked lessons. Raises SeedbenchError where they are not those of all episodes that have one."""
    file, again = Lines(project / "validated.jsonl", CHECKED), f"`seedbench skills validate {project}` makes it anew"
    if file.torn:
        raise SeedbenchError(f"{file.path} breaks off in its last line: {again}.")
    found = [(row["task"], row["trial"]) for row in file.rows]
    once(file.path, found)
    told = {key for key, row in zip(found, file.rows, strict=True) if row["skill"]}
    if strange := [k for k in found if k not in episodes or (k in told and not episodes[k].steps)]:
        raise SeedbenchError(f"{file.path} has a lesson of an episode that is not there, or has no step "
                             f"({strange[0][0]}, trial {strange[0][1]}): {again}.")  # fmt: skip
    by = {row["analyzer"] for row in file.rows}
    lessons = Lines(project / "lessons.jsonl", LESSON).rows
    there = {(row["task"], row["trial"]) for row in lessons if row["analyzer"] in by}
    if left := sum(key in episodes for key in there - set(found)):
        raise SeedbenchError(f"{file.path} lacks {left} of the lessons in lessons.jsonl: {again}.")
    return file.rows


def _rows(rows: list[Row], episodes: dict[Key, Trajectory]) -> Iterator[Row]:
    for row in rows:
        asked = messages(episodes[row["task"], row["trial"]])
        yield {"messages": asked, "completion": dumps(Lesson(row["summary"], row["skill"])),
               "task": row["task"], "trial": row["trial"]}  # fmt: skip
