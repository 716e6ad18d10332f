"""The folder of a training run: train.json (settings), metrics.jsonl, checkpoints/, and at its end a model folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from seedbench.core import SeedbenchError
from seedbench.policy.adapter import merged
from seedbench.policy.hf import HFPolicy
from seedbench.train.checkpoint import whole
from seedbench.train.shard import distinct, gathered

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def make(out: Path) -> None:
    """Create it. Raises SeedbenchError where that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SeedbenchError(f"--out {out} is, or lies under, a file: name a folder.") from error
    except OSError as error:
        raise SeedbenchError(f"--out {out} cannot be made ({error.strerror or error}): name another folder.") from error


def finished(out: Path) -> bool:
    """Whether the run came to its end: its weights are there, which are put in place last."""
    return any((out / name).is_file() for name in WEIGHTS)


def finish(out: Path, policy: HFPolicy, main: bool = True) -> None:
    """Put the trained model into the folder, its weights last, an adapter added in. Raises SeedbenchError.

    All processes call it, `main` writes.
    """
    state = gathered(distinct(policy.model), main)
    if not main:
        return
    final = out / "checkpoints" / "final"
    with whole(final) as part:
        policy.save(part, merged(policy.model, state))
    for file in sorted(final.iterdir(), key=lambda f: (f.name in WEIGHTS, f.name)):
        os.replace(file, out / file.name)
    shutil.rmtree(final)
