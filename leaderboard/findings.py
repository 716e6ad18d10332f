"""What a verifier has to say: one sentence on what is wrong and where; and what it was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MAX_FINDINGS = 50  # of one level: whoever forged more than that need not be told where


class Finding(NamedTuple):
    """One thing that is wrong with a run: found at which level, where, and what."""

    level: str
    where: str  # a file, a figure, or a line such as "line 7 (seedbench/ALFWorld-v0 seen ID, trial 0)"
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.message}"


@dataclass(frozen=True)
class Options:
    """How to verify; nothing here changes what is true of a run.

    `workers` processes replay (0 chooses). The rest serves the levels that load the model itself: a folder, hub id or
    endpoint in the place of the hub id that the run names, where it runs, a chat template in the place of its own,
    what seeds the drawn tasks, and how many are drawn of a split.
    """

    workers: int = 0
    quiet: bool = False  # no progress bars
    model: str | None = None
    device: str = "auto"
    chat_template: str | None = None
    beacon: str | None = None
    tasks: int = 40
