"""Lessons as rows to learn from: the analysis prompt, and the compact JSON that answers it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbench.baselines.skills.analysis import dumps, messages
from seedbench.baselines.skills.store import Key, Lines, key, settings_of, trajectories, write_lines
from seedbench.core import Lesson, SeedbenchError, Trajectory, stream
from seedbench.record import locked

TRAIN, VAL = "sft.jsonl", "sft_val.jsonl"


def run(project: Path, keep: str, val: float) -> None:
    """Write sft.jsonl and sft_val.jsonl anew. Held out are whole tasks, so that none is on both sides."""
    seed = settings_of(project)["config"]["seed"]
    if not 0 <= val < 1:
        raise SeedbenchError(f"--val is {val}: give a share from 0 to below 1.")
    with locked(project):
        checked = Lines(project / "validated.jsonl").rows
        rows = [row for row in checked if row["skill"] and (keep == "parsed" or not row["reasons"])]
        if not rows:
            raise SeedbenchError(f"{project} holds no {keep} lesson: `seedbench skills validate` first.")
        tasks = sorted({row["task"] for row in rows}, key=lambda task: stream("skills val", seed, task))
        held = set(tasks[: math.floor(val * len(tasks))])
        episodes = {key(t): t for t in trajectories(project)}
        n = [write_lines(project / name, _rows([r for r in rows if (r["task"] in held) == out], episodes))
             for name, out in ((TRAIN, False), (VAL, True))]  # fmt: skip
    print(f"{project}: {n[0]} rows in {TRAIN}, {n[1]} in {VAL} ({len(held)} of {len(tasks)} tasks)")


def _rows(rows: list[dict[str, Any]], episodes: dict[Key, Trajectory]) -> Iterator[dict[str, Any]]:
    for row in rows:
        asked = messages(episodes[row["task"], row["trial"]])
        yield {"messages": asked, "completion": dumps(Lesson(row["summary"], row["skill"])),
               "task": row["task"], "trial": row["trial"]}  # fmt: skip
