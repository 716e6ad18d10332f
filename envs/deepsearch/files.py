"""What `seedbench data check|generate|import deepsearch` call. `progress(done, total)` counts questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.deepsearch import mini
from seedbench.envs.deepsearch.data import Dataset, open_dataset
from seedbench.envs.deepsearch.env import DeepSearchEnv
from seedbench.envs.deepsearch.published import MANIFEST, QUESTIONS, Published, row_of
from seedbench.envs.searchqa import folders
from seedbench.envs.searchqa.folders import Progress

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
    if folders.held(dest / MANIFEST, SCHEMA) not in ("", found.digest()):
        raise SeedbenchError(f"{dest} holds other questions already; name another folder, or remove it first.")
    with folders.writing(dest):
        folders.write_lines(dest / QUESTIONS, map(row_of, found.items.values()))
        counts = Counter(item.kind for item in found.items.values())
        about = {"schema": SCHEMA, "digest": found.digest(), "questions": dict(sorted(counts.items()))}
        folders.write_lines(dest / MANIFEST, [about])
    return _rows(Published(dest), str(dest), progress)


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate an encyclopedia and questions about it into the folder `dest`: see mini.generate_folder."""
    if folders.held(dest / MANIFEST, SCHEMA):
        raise SeedbenchError(f"{dest} holds questions already; name another folder, or remove it first.")
    return mini.generate_folder(dest, progress, seed=seed, level=level, sizes=sizes)


def _rows(dataset: Dataset, data: str, progress: Progress) -> list[dict[str, Any]]:
    published = isinstance(dataset, Published)
    damaged = published and folders.held(Path(data) / MANIFEST, SCHEMA) not in ("", dataset.digest())
    env, needs = None if published else DeepSearchEnv(data), "Without pages: needs an index (--retriever)."
    return folders.table(dataset, env, _short if published else None, needs, damaged, progress)


def _short(split: str, kinds: Mapping[str, int]) -> tuple[int, str]:
    return folders.lacking(COUNTS, kinds)
