"""What measurements before an experiment have in common: their options, and how their result reaches its file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from seedbench.core import SeedbenchError
from seedbench.train import folder
from seedbench.train.args import Args

Page = Literal["seed", "sspo"]
Settings = TypeVar("Settings", bound=Args)
SHARED = ("model", "env", "data", "tasks", "seed", "max_new_tokens", "max_steps", "slots", "device", "threads")


@dataclass(frozen=True)
class Options:
    """Of a policy, what it plays and how; a measurement adds its own."""

    model: str
    """fresh, tiny, a folder or a hub id."""
    out: Path
    """JSON file to write."""
    env: str = "alfworld"
    """Which environment, by its short name."""
    data: str = "mini"
    """mini, or the folder of published files."""
    tasks: int = 150
    """How many tasks, drawn by the seed."""
    seed: int = 0
    """Seed of tasks, sampled tokens and whatever is shuffled."""
    max_new_tokens: int = 64
    """Longest reply."""
    max_steps: int | None = None
    """Step limit of an episode; by default the environment's."""
    slots: int = 64
    """Episodes under way at a time."""
    device: str = "auto"
    """auto, cpu or cuda."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses."""

    def settings(self, of: type[Settings], **more: Any) -> Settings:
        """A page's settings with these options."""
        return of(**{name: getattr(self, name) for name in SHARED} | more)

    def writable(self) -> None:
        """Before the play, whose figures would be lost. Raises SeedbenchError where `out` cannot be written."""
        folder.make(self.out.parent)
        if self.out.is_dir() or not os.access(self.out.parent, os.W_OK):
            raise SeedbenchError(f"--out {self.out} cannot be written: name a file in a folder that can be.")

    def write(self, result: dict[str, Any], indent: int | None = None) -> None:
        """Into `out`."""
        self.out.write_text(json.dumps(result, indent=indent) + "\n", encoding="utf-8")
