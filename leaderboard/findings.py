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

    `workers` processes replay (0 chooses). `model`, `device` and `beacon` serve the levels that load the model itself:
    a folder or hub id in the place of the one that the run names, where it runs, and what seeds the drawn tasks.
    """

    workers: int = 0
    quiet: bool = False  # no progress bars
    model: str | None = None
    device: str = "auto"
    beacon: str | None = None
