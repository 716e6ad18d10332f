"""Checkpoints that a killed run goes on from: weights and AdamW's moments as safetensors, the rest as JSON.

    OUT/checkpoints/000010/   model folder, optimizer.safetensors, state.json

A checkpoint is written beside its place and moved there, so one that is there is whole. The two newest are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.policy.hf import HFPolicy

KEPT = 2


def save(out: Path, policy: HFPolicy, optimizer: Any, state: Mapping[str, Any]) -> Path:
    """Write checkpoint state["update"] and drop those before the last one."""
    from safetensors.torch import save_file

    folder = out / "checkpoints" / f"{state['update']:06d}"
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    policy.save(part)
    save_file(_moments(policy.model, optimizer), part / "optimizer.safetensors")
    (part / "state.json").write_text(json.dumps(dict(state)) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(part, folder)
    for old in _all(out)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def latest(out: Path) -> Path | None:
    """The newest checkpoint of a run; None where there is none yet."""
    return next(reversed(_all(out)), None)


def restore(folder: Path, model: Any, optimizer: Any) -> dict[str, Any]:
    """Give the optimizer its moments back and return the state. Raises SeedbenchError for a damaged checkpoint."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        moments = load_file(folder / "optimizer.safetensors", device=str(model.device))
        named = _named(model)
        for name, weight in named.items():
            own = {k: moments[f"{name}.{k}"] for k in ("exp_avg", "exp_avg_sq", "step") if f"{name}.{k}" in moments}
            if own:
                optimizer.state[weight] = own
        return {"update": int(state["update"]), "cursor": int(state["cursor"]), "memory": dict(state["memory"])}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise SeedbenchError(
            f"{folder} is damaged ({type(error).__name__}: {error}): remove it, and --resume takes the one before."
        ) from error


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
