"""A Trainer of transformers that goes on after a kill, bit for bit and without pickles.

By itself Trainer resumes from optimizer.pt, scheduler.pt and rng_state.pth, which are pickles. Here it saves the model
alone (`save_only_model`), and a callback adds the rest as safetensors and JSON through seedbench.train.checkpoint:

    OUT/checkpoints/checkpoint-200/   model folder and trainer_state.json (Trainer), optimizer.safetensors, state.json

state.json comes last and makes it whole. The order of rows needs no state: it is drawn beforehand, by the seed, as one
long epoch that Trainer reads in sequence and skips into; the global random stream is set at each step.

    trainer = SFTTrainer(model, SFTConfig(**resuming.SETTINGS, ...), callbacks=[resuming.Checkpoints(out, seed)], ...)
    trainer.train_dataset = trainer.train_dataset.select(resuming.order(...))
    resuming.train(trainer, out, resume)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from transformers import TrainerCallback

from seedbench import record
from seedbench.core import SeedbenchError, stream
from seedbench.policy.weights import why
from seedbench.train import checkpoint
from seedbench.train.optimizer import MOMENTS
from seedbench.train.shard import like

# What the Trainer must be told: it writes no pickles, and takes the rows as they come.
SETTINGS: dict[str, Any] = {
    "save_strategy": "steps",
    "save_only_model": True,
    "save_total_limit": checkpoint.KEPT,
    "train_sampling_strategy": "sequential",
}
MEGA = 50  # batches whose rows are sorted by length together, as Trainer's own group_by_length does


def order(lengths: Sequence[int], batch: int, batches: int, seed: int) -> list[int]:
    """`batch * batches` row numbers: every row comes once before any comes twice, and rows of a batch are alike in
    length (where MEGA batches lie beside each other), so that little is padding."""
    rng = np.random.default_rng(stream("sft-order", seed))
    needed = batch * batches
    rounds = [rng.permutation(len(lengths)) for _ in range(-(-needed // len(lengths)))]
    rows = np.concatenate(rounds)[:needed]
    size = np.asarray(lengths)
    chosen: list[int] = []
    for start in range(0, needed, batch * MEGA):
        some = rows[start : start + batch * MEGA]
        some = some[np.argsort(-size[some], kind="stable")].reshape(-1, batch)
        chosen += some[rng.permutation(len(some))].ravel().tolist()
    return chosen


def logging_steps(updates: int, save_every: int) -> int:
    """About a hundred lines a run, none of which stretches over a checkpoint: a resumed run would average the rest."""
    return next(n for n in range(max(1, updates // 100), 0, -1) if save_every % n == 0)


class Checkpoints(TrainerCallback):
    """Adds optimizer and scheduler to each checkpoint of Trainer and gives them back when it resumes from one."""

    def __init__(self, out: Path, seed: int):
        self.out, self.seed = out, seed

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == 0:
            return
        folder = _folder(self.out, state.global_step)
        with checkpoint.readable(folder):
            restore_moments(folder, given["model"], given["optimizer"])
            scheduler = json.loads((folder / "state.json").read_text(encoding="utf-8"))["scheduler"]
            given["lr_scheduler"].load_state_dict(scheduler)
            for group, rate in zip(given["optimizer"].param_groups, scheduler["_last_lr"], strict=True):
                group["lr"] = rate

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        import torch

        torch.manual_seed(stream("sft-step", self.seed, state.global_step) % 2**63)

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Called when Trainer has written its part."""
        if not state.is_world_process_zero:
            return
        folder = _folder(self.out, state.global_step)
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle, which nothing here reads
        save_moments(folder, given["model"], given["optimizer"])
        told = {"update": state.global_step, "scheduler": given["lr_scheduler"].state_dict()}
        record.write_json(folder / "state.json", told)


def save_moments(folder: Path, model: Any, optimizer: Any) -> None:
    """Write optimizer.safetensors: AdamW's moments and step of each weight, by the weight's name."""
    moments = {
        f"{name}.{key}": value
        for name, weight in _named(model).items()
        for key, value in optimizer.state.get(weight, {}).items()
    }
    checkpoint.write(folder / checkpoint.MOMENTS, moments)


def restore_moments(folder: Path, model: Any, optimizer: Any) -> None:
    """Give the optimizer what `save_moments` wrote. Raises whatever reading does: see `checkpoint.readable`."""
    from safetensors.torch import load_file

    moments = load_file(folder / checkpoint.MOMENTS)
    for name, weight in _named(model).items():
        own = {k: moments[f"{name}.{k}"] for k in MOMENTS if f"{name}.{k}" in moments}
        if own:
            optimizer.state[weight] = {k: like(v, weight) for k, v in own.items()}


def latest(out: Path) -> Path | None:
    """The newest whole checkpoint; None where there is none yet."""
    found = [p for p in (out / "checkpoints").glob("checkpoint-*") if (p / "state.json").is_file()]
    return max(found, key=lambda p: int(p.name.rpartition("-")[2]), default=None)


def train(trainer: Any, out: Path, resume: bool) -> None:
    """Train, from the newest whole checkpoint where `resume` says so. Raises SeedbenchError when one cannot be written
    or read."""
    last = latest(out) if resume else None
    for folder in (out / "checkpoints").glob("checkpoint-*"):  # torn ones; and all of an earlier run that begins anew
        if folder != last and not (last is not None and (folder / "state.json").is_file()):
            shutil.rmtree(folder)
    try:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except (OSError, SafetensorError) as error:  # those of reading have become SeedbenchError
        raise SeedbenchError(
            f"{out / 'checkpoints'} cannot be written ({why(error)}): what was there before stands; free some disk "
            "space, then go on with --resume."
        ) from error


def _named(model: Any) -> dict[str, Any]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _folder(out: Path, step: int) -> Path:
    return out / "checkpoints" / f"checkpoint-{step}"
