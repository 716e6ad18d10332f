"""Checkpoints that a killed run goes on from: weights and AdamW's moments as safetensors, the rest as JSON.

    OUT/checkpoints/000010/   model folder, optimizer.safetensors, state.json

A checkpoint is written beside its place and moved there, so one that is there is whole; one that cannot be written
leaves the one before it as it was. The two newest are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.policy.hf import HFPolicy
from seedbench.policy.weights import why

KEPT = 2


def save(out: Path, policy: HFPolicy, optimizer: Any, state: Mapping[str, int]) -> Path:
    """Write checkpoint state["update"] and drop those before the last one."""
    folder = out / "checkpoints" / f"{state['update']:06d}"
    with whole(folder) as part:
        policy.save(part)
        save_moments(part, policy.model, optimizer)
        (part / "state.json").write_text(json.dumps(dict(state)) + "\n", encoding="utf-8")
    for old in _all(out)[:-KEPT]:
        (old / "state.json").unlink(missing_ok=True)  # first: a kill on the way leaves nothing that looks whole
        shutil.rmtree(old, ignore_errors=True)
    return folder


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes the place of `folder` when all is written, and vanishes when that fails.

    Raises SeedbenchError for whatever keeps it from being written, a full disk first of all.
    """
    part = folder.with_name(folder.name + ".part")
    for left in folder.parent.glob("*.part"):  # of a killed process
        shutil.rmtree(left, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        yield part
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(part, folder)
    except Exception as error:  # safetensors and tokenizers raise their own, the latter plain Exception
        shutil.rmtree(part, ignore_errors=True)
        raise SeedbenchError(
            f"{folder} cannot be written ({why(error)}): what was there before stands; free some disk space, then go "
            "on with --resume."
        ) from error


def latest(out: Path) -> Path | None:
    """The newest checkpoint of a run; None where there is none yet."""
    return next(reversed(_all(out)), None)


def restore(folder: Path, model: Any, optimizer: Any) -> dict[str, int]:
    """Give the optimizer its moments back and return the state. Raises SeedbenchError for a damaged checkpoint."""
    with readable(folder):
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        restore_moments(folder, model, optimizer)
        return {k: int(state[k]) for k in ("update", "cursor")}
    raise AssertionError("readable() lets no error through")


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Around the reading of a checkpoint. Raises SeedbenchError for a damaged one."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise SeedbenchError(
            f"{folder} is damaged ({why(error)}): remove it, and --resume takes the one before."
        ) from error


def save_moments(folder: Path, model: Any, optimizer: Any) -> None:
    """Write optimizer.safetensors: AdamW's moments and step of each weight, by the weight's name."""
    from safetensors.torch import save_file

    save_file(_moments(model, optimizer), folder / "optimizer.safetensors")


def restore_moments(folder: Path, model: Any, optimizer: Any) -> None:
    """Give the optimizer what `save_moments` wrote. Raises whatever reading does: see `readable`."""
    from safetensors.torch import load_file

    moments = load_file(folder / "optimizer.safetensors", device=str(model.device))
    for name, weight in _named(model).items():
        own = {k: moments[f"{name}.{k}"] for k in ("exp_avg", "exp_avg_sq", "step") if f"{name}.{k}" in moments}
        if own:
            optimizer.state[weight] = own


def _all(out: Path) -> list[Path]:
    return sorted(p for p in (out / "checkpoints").glob("[0-9]" * 6) if (p / "state.json").is_file())


def _named(model: Any) -> dict[str, Any]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _moments(model: Any, optimizer: Any) -> dict[str, Any]:
    return {
        f"{name}.{key}": value.contiguous()
        for name, weight in _named(model).items()
        for key, value in optimizer.state.get(weight, {}).items()
    }
