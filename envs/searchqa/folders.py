"""What the two environments of questions do alike with folders: imports of published questions, and their check."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError, Task
from seedbench.envs.searchqa.asking import AskingEnv
from seedbench.envs.searchqa.data import Dataset

Progress = Callable[[int, int], None]
Short = Callable[[str, Mapping[str, int]], tuple[int, str]]


def table(
    dataset: Dataset, env: AskingEnv | None, short: Short | None, needs: str, damaged: bool, progress: Progress
) -> list[dict[str, Any]]:
    """One row a split: split, expected, found, missing, damaged, wrong, pinned, solved, first (the first complaint).

    `env` plays the questions with the oracle, where they come with pages; else they need what `needs` says. `short`
    counts what published questions lack of their number; None for generated ones, which the oracle has to win.
    """
    splits = {split: _tasks(dataset, split) for split in ("train", "dev", "seen", "unseen")}
    total, done, rows = sum(map(len, splits.values())), 0, []
    for split, tasks in splits.items():
        missing, first = short(split, Counter(task.kind for task in tasks)) if short else (0, "")
        if tasks and env is None:
            first = f"{first} {needs}".strip()
        if damaged:
            first = "The questions are not those that were imported: import them again into a new folder."
        wrong = won = 0
        for task in tasks:
            if env is not None:
                fault = _fault(env, task.id)
                won += not fault
                if fault and short is None:  # who published them promised no search engine
                    wrong, first = wrong + 1, first or fault
            done += 1
            progress(done, total)
        found = {"split": split, "expected": len(tasks) + missing, "found": len(tasks), "missing": missing}
        solid = {"damaged": int(damaged), "wrong": wrong, "pinned": bool(tasks) and dataset.pinned(split)}
        rows.append(found | solid | {"solved": won, "first": first})
    return rows


def _tasks(dataset: Dataset, split: str) -> list[Task]:
    try:
        return list(dataset.tasks(split))
    except SeedbenchError:  # a folder may hold only some splits
        return []


def _fault(env: AskingEnv, task_id: str) -> str:
    """Why the oracle does not win; "" where it does."""
    try:
        return "" if solved(env, task_id) else f"The oracle does not win {task_id}: generate the questions again."
    except SeedbenchError as error:
        return str(error)


def solved(env: AskingEnv, task_id: str) -> bool:
    """Whether the oracle wins the task, step by step in the real environment."""
    _, info = env.reset(options={"task": task_id})
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(env.expert() or "")
        over = terminated or truncated
    return info["won"]


def lacking(published: Mapping[str, tuple[int, ...]], held: Mapping[str, int]) -> tuple[int, str]:
    """How many questions sets lack of their `published` numbers (the first counts, any is right), and a sentence."""
    less = {k: published[k][0] - n for k, n in held.items() if n and published.get(k) and n not in published[k]}
    said = ", ".join(f"{kind} has {held[kind]} of {published[kind][0]} published questions" for kind in less)
    return sum(map(abs, less.values())), said and f"{said}."


def held(manifest: Path, schema: str) -> str:
    """The digest of the import that a manifest is of; "" where there is none. Raises SeedbenchError for other files."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        if found["schema"] != schema:
            raise SeedbenchError(f"{manifest} is of another version ({found['schema']}): import again.")
        return str(found["digest"])
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SeedbenchError(f"{manifest} cannot be read ({error}): remove it and import again.") from error


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """JSON a line, there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(part, path)


@contextmanager
def writing(dest: Path) -> Iterator[None]:
    """Raises SeedbenchError where `dest` cannot be made or written."""
    try:
        dest.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some space" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
