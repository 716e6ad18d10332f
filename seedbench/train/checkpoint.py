"""Checkpoints that a killed run goes on from: weights and the optimizer's state as safetensors, the rest as JSON.

    OUT/checkpoints/000010/   model folder, or adapter.safetensors (LoRA); optimizer.safetensors; state.json; and
                              teacher.safetensors where the teacher is a copy of earlier weights

No random state is in them: every draw comes from a stream of (seed, update, task, trial, turn), and the learning rate
from the update's number. Tensors are whole, whatever processes held parts of them, so a run may go on with another
number of processes. A checkpoint is written beside its place and moved there, so one that is there is whole; one that
cannot be written leaves the one before it as it was. The two newest are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from seedbench.core import SeedbenchError
from seedbench.policy.adapter import has_adapter
from seedbench.policy.hf import HFPolicy
from seedbench.policy.weights import why
from seedbench.train import teacher as teaching
from seedbench.train.optimizer import Optimizer
from seedbench.train.shard import distinct, gathered, like
from seedbench.train.teacher import Teacher

Memory = dict[str, tuple[bool, str]]  # a page's own, between updates: by key, a flag and a text
KEPT = 2
ADAPTER = "adapter.safetensors"
MOMENTS = "optimizer.safetensors"


def save(
    out: Path, policy: HFPolicy, optimizer: Optimizer, state: Mapping[str, Any], main: bool, teacher: Teacher
) -> None:
    """Write checkpoint state["update"] and drop those before the last one. All processes call it, `main` writes."""
    adapter = has_adapter(policy.model)
    own = gathered(optimizer.named if adapter else distinct(policy.model), main)
    moments, held = gathered(optimizer.state(), main), teacher.state(main)
    if not main:
        return
    with whole(out / "checkpoints" / f"{state['update']:06d}") as part:
        if adapter:
            write(part / ADAPTER, own)
        else:
            policy.save(part, own)
        write(part / MOMENTS, moments)
        if held:
            write(part / teaching.FILE, held)
        (part / "state.json").write_text(json.dumps(dict(state)) + "\n", encoding="utf-8")
    for old in _all(out)[:-KEPT]:
        (old / "state.json").unlink(missing_ok=True)  # first: a kill on the way leaves nothing that looks whole
        shutil.rmtree(old, ignore_errors=True)


def write(file: Path, tensors: Mapping[str, Any]) -> None:
    """A safetensors file, wherever in memory the tensors lie."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


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


def restore(folder: Path, policy: HFPolicy, optimizer: Optimizer, teacher: Teacher) -> dict[str, Any]:
    """Give adapter, optimizer and teacher their tensors back and return the state. Raises SeedbenchError for a damaged
    one.

    The weights of a run without an adapter are loaded before, from the folder itself.
    """
    from safetensors.torch import load_file

    with readable(folder):
        state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if has_adapter(policy.model):
            _fill(optimizer.named, load_file(folder / ADAPTER))
        moments = load_file(folder / MOMENTS)
        weights = optimizer.masters
        optimizer.load({k: like(v, weights[k.rpartition(".")[0]]) for k, v in moments.items()})
        if teacher.sync > 1:
            teacher.load(load_file(folder / teaching.FILE))
        numbers = {"update": int(state["update"]), "cursor": int(state["cursor"])}
        if numbers["update"] != int(folder.name) or numbers["cursor"] < 0:
            raise ValueError(f"its state.json says {numbers}")
        memory = TypeAdapter(Memory).validate_python(state["memory"])
        files = TypeAdapter(dict[str, str]).validate_python(state.get("files", {}))
        return {**numbers, "base": state.get("base"), "files": files, "memory": memory}
    raise AssertionError("readable() lets no error through")


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Around the reading of a checkpoint. Raises SeedbenchError for a damaged one."""
    from safetensors import SafetensorError

    try:
        yield
    except (
        OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError, SafetensorError, SeedbenchError
    ) as error:  # fmt: skip
        raise SeedbenchError(
            f"{folder} is damaged ({why(error)}): remove it, and --resume takes the one before."
        ) from error


def _fill(weights: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    import torch

    if set(weights) != set(tensors):
        raise ValueError("its tensors are not those of the adapter")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(like(tensors[name], weight))


def _all(out: Path) -> list[Path]:
    return sorted(p for p in (out / "checkpoints").glob("[0-9]" * 6) if (p / "state.json").is_file())
