"""What `seedbench data check|generate|import deepsearch` call. `progress(done, total)` counts questions."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.deepsearch import mini
from seedbench.envs.deepsearch.data import Dataset, open_dataset
from seedbench.envs.deepsearch.env import DeepSearchEnv
from seedbench.envs.deepsearch.published import MANIFEST, QUESTIONS, Published, line_of

Progress = Callable[[int, int], None]
SCHEMA = "seedbench.deepsearch/1"
COUNTS = {"frames": (824,), "gaia": (), "browsecomp": (1266,), "browsecomp-plus": (830,)}  # () where subsets are usual
GENERATED = "steps: how many steps the oracle, which knows the evidence, needs on average."


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Count published questions, or play the generated ones with the oracle.

    One row a split: split, expected, found, missing, damaged, wrong, pinned, solved, first. `missing` is what a set
    that is there lacks of its published number, `damaged` is 1 where the file is no longer that which was imported,
    `solved` counts questions that the oracle wins, `wrong` generated ones that it does not; `first` is the first
    complaint as a sentence.
    """
    return _rows(open_dataset(data), data, progress)


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Write the questions of `source` (a file or a folder of them) into `dest`; returns `check`'s rows.

    What its authors encrypt stays encrypted. The same questions give the same digest in both places. Raises
    SeedbenchError for files that are missing or broken, for a `dest` that holds other questions, and where nothing can
    be written.
    """
    if not source.exists():
        raise SeedbenchError(f"{source} is not there; name the file or folder of questions.")
    found = Published(source)
    held = _held(dest)
    if held not in ("", found.digest()):
        raise SeedbenchError(f"{dest} holds other questions already; name another folder, or remove it first.")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        counts = Counter(item.kind for item in found.items.values())
        _write(dest / QUESTIONS, "".join(f"{line_of(item)}\n" for item in found.items.values()))
        about = {"schema": SCHEMA, "digest": found.digest(), "questions": dict(sorted(counts.items()))}
        _write(dest / MANIFEST, json.dumps(about) + "\n")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some space" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
    return _rows(Published(dest), str(dest), progress)


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate an encyclopedia and questions about it into the folder `dest`: see mini.generate_folder."""
    if _held(dest):
        raise SeedbenchError(f"{dest} holds questions already; name another folder, or remove it first.")
    return mini.generate_folder(dest, progress, seed=seed, level=level, sizes=sizes)


def _rows(dataset: Dataset, data: str, progress: Progress) -> list[dict[str, Any]]:
    damaged = isinstance(dataset, Published) and _held(Path(data)) not in ("", dataset.digest())
    env = DeepSearchEnv(data) if dataset.small else None
    splits = {split: _tasks(dataset, split) for split in ("train", "dev", "seen", "unseen")}
    total, done, table = sum(map(len, splits.values())), 0, []
    for split, tasks in splits.items():
        missing, first = _short(Counter(task.kind for task in tasks)) if env is None else (0, "")
        if tasks and env is None:
            first = f"{first} Without pages: needs an index (--retriever).".strip()
        if damaged:
            first = "The questions are not those that were imported: import them again into a new folder."
        solved = 0
        for task in tasks:
            if env is not None:
                won, fault = _played(env, task.id)
                solved, first = solved + won, first or ("" if won else fault)
            done += 1
            progress(done, total)
        row = {"split": split, "expected": len(tasks) + missing, "found": len(tasks), "missing": missing}
        row |= {"damaged": int(damaged), "wrong": 0 if env is None else len(tasks) - solved}
        table.append(row | {"pinned": bool(tasks) and dataset.pinned(split), "solved": solved, "first": first})
    return table


def _played(env: DeepSearchEnv, task_id: str) -> tuple[bool, str]:
    """Whether the oracle wins, step by step in the real environment, and if not, why."""
    try:
        _, info = env.reset(options={"task": task_id})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(env.expert() or "")
            over = terminated or truncated
        return info["won"], f"The oracle does not win {task_id}: generate the questions again."
    except SeedbenchError as error:
        return False, str(error)


def _tasks(dataset: Dataset, split: str) -> list[Any]:
    try:
        return list(dataset.tasks(split))
    except SeedbenchError:  # a folder may hold only some splits
        return []


def _short(kinds: Mapping[str, int]) -> tuple[int, str]:
    """How many questions the sets lack of their published numbers, and that as a sentence."""
    lacking = {k: COUNTS[k][0] - n for k, n in kinds.items() if COUNTS.get(k) and n not in COUNTS[k]}
    said = ", ".join(f"{kind} has {kinds[kind]} of {COUNTS[kind][0]} published questions" for kind in lacking)
    return sum(abs(n) for n in lacking.values()), said and f"{said}."


def _held(folder: Path) -> str:
    """The digest of the import that a folder holds; "" where there is none. Raises SeedbenchError for other files."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise SeedbenchError(f"{folder / MANIFEST} is of another version ({found['schema']}): import again.")
        return str(found["digest"])
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SeedbenchError(f"{folder / MANIFEST} cannot be read ({error}): remove it and import again.") from error


def _write(path: Path, text: str) -> None:
    """There as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, path)
