"""What `seedbench data check|import webshop` call. `progress(done, total)` counts what the command works through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench.envs.webshop import importing
from seedbench.envs.webshop.importing import Progress


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Read a data set whole. One row a split: split, expected, found, missing, damaged, wrong, pinned, first."""
    return importing.rows_of(data, progress)


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Build one memory-mapped store in `dest` from the original's files in `source`; returns `check`'s rows."""
    return importing.import_published(source, dest, progress)
