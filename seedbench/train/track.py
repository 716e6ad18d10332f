"""Curves in TensorBoard or Weights & Biases, through accelerate's trackers. metrics.jsonl stays the truth.

OUT/tensorboard/       event files; a resumed run hides what it plays again
OUT/wandb.json         the id under which a resumed run goes on
"""

from __future__ import annotations

import importlib.util
import json
import secrets
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError

PROJECT = "seedbench"


def open_tracker(kind: str, out: Path, done: int, settings: dict[str, Any]) -> Any:
    """accelerate's tracker of that kind, started after `done` updates; None for none.

    Raises SeedbenchError where its package is missing. Called on the main process, after accelerate's state is there.
    """
    if kind == "none":
        return None
    if importlib.util.find_spec(kind) is None:
        raise SeedbenchError(f"--track {kind} needs a package that is not here: install it with `pip install {kind}`.")
    from accelerate import tracking

    if kind == "tensorboard":
        tracker: Any = tracking.TensorBoardTracker("tensorboard", str(out), purge_step=done + 1)
    else:
        tracker = tracking.WandBTracker(PROJECT, id=_wandb_id(out), resume="allow", dir=str(out), config=settings)
    tracker.start()
    return tracker


def _wandb_id(out: Path) -> str:
    """The run's id, made when it begins: nothing that is measured depends on it."""
    file = out / "wandb.json"
    if not file.exists():
        file.write_text(json.dumps({"id": secrets.token_hex(8)}) + "\n", encoding="utf-8")
    return str(json.loads(file.read_text(encoding="utf-8"))["id"])
