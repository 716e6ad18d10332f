"""Supervised fine-tuning on demonstrations: the warm start that every other page begins from.

    L = mean over the reply tokens of all demonstrated steps of  -log pi(token)

The environment's expert plays train tasks (demonstrations); TRL's SFTTrainer does the rest, but for the loss: it would
compute logits at every position, and all but a few belong to prompts.

    seedbench train sft --env alfworld --model fresh --out runs/sft
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench import record
from seedbench.baselines import demonstrations
from seedbench.core import SeedbenchError
from seedbench.exam import Config, Exam, plan_one
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.train import folder
from seedbench.train.log import FILE, plot
from seedbench.train.sft import SftArgs

if TYPE_CHECKING:
    from torch import Tensor


def run(args: SftArgs, resume: bool = False) -> Path:
    """Fine-tune; returns the folder."""
    if not args.out:
        raise SeedbenchError("--out is missing: name the folder to train into.")
    out = Path(args.out)
    if resume and folder.finished(out):
        return out
    if not resume and (out / "train.json").exists():
        raise SeedbenchError(f"{out} holds a run already: go on with --resume {out}, or name another --out.")
    exam = plan_one(Config("expert", env=args.env, split="train", data=args.data, preset=args.preset))
    folder.make(out)
    first = int(os.environ.get("RANK", "0")) == 0  # of a launcher's processes, one holds the folder for all
    with record.locked(out) if first else contextlib.nullcontext():
        _run(args, exam, out, resume)
    return out


def _run(args: SftArgs, exam: Exam, out: Path, resume: bool) -> None:
    from seedbench.baselines import resuming

    policy = load_policy(
        args.model,
        args.env,
        seed=args.seed,
        device=args.device,
        dtype="float32",
        threads=args.threads,
        thinking=args.thinking,
    )
    record.write_text(out / "train.json", args.dumps())
    trainer = _trainer(policy, _rows(exam, policy, args), args, out)
    resuming.train(trainer, out, resume)
    lines = [{"update": x["step"], "loss": x["loss"], "grad_norm": x["grad_norm"], "lr": x["learning_rate"]}
             for x in trainer.state.log_history if "loss" in x]  # fmt: skip
    record.write_text(out / FILE, "".join(json.dumps(line) + "\n" for line in lines))
    plot(out / FILE)
    folder.finish(out, policy, trainer.is_world_process_zero())


def _rows(exam: Exam, policy: HFPolicy, args: SftArgs) -> list[demonstrations.Row]:
    rows = list(demonstrations.rows(exam, policy, args))
    if args.examples:
        rows += demonstrations.written(Path(args.examples), policy)
    short = [row for row in rows if len(row["input_ids"]) <= args.longest]
    if not short:
        raise SeedbenchError(f"None of {len(rows)} rows has at most {args.longest} tokens: raise --longest.")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    seen = (args.updates - args.copy_first) * args.rows * world / len(short)
    print(f"{len(short)} rows; {len(rows) - len(short)} longer than {args.longest} tokens were left out; "
          f"{args.updates} updates of {args.rows * world} rows: each row comes {seen:.3g} times")  # fmt: skip
    return demonstrations.copying(policy, args.copy_first * args.rows * world, args.seed) + short


def loss(model: Any, ids: Tensor, mask: Tensor, wanted: Tensor) -> Tensor:
    """Sum of the cross entropies of the tokens of (n, t) `ids` where (n, t) `wanted` is true; logits only there."""
    import torch

    hidden = model.get_decoder()(input_ids=ids, attention_mask=mask).last_hidden_state
    wanted = wanted[:, 1:]
    logits = model.get_output_embeddings()(hidden[:, :-1][wanted])
    return torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="sum")


def _trainer(policy: HFPolicy, rows: list[demonstrations.Row], args: SftArgs, out: Path) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    from trl.models.utils import _ForwardRedirection  # through DDP's or FSDP's forward, which gradients are shared by

    from seedbench.baselines import resuming

    class Trainer(SFTTrainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            ids, mask = inputs["input_ids"], inputs["attention_mask"]
            now = self.state.global_step - args.copy_first
            wanted = mask if 0 <= now < args.whole else inputs["labels"] != -100
            inner, world = self.accelerator.unwrap_model(model), self.accelerator.num_processes
            tokens = self.accelerator.gather(wanted[:, 1:].sum()).sum().clamp(min=1)
            with self.accelerator.autocast():  # else only model.forward is
                value = _ForwardRedirection()(model, inner, loss, inner, ids, mask, wanted.bool()) * world / tokens
            return (value, None) if return_outputs else value

    settings = SFTConfig(
        output_dir=str(out / "checkpoints"), max_steps=args.updates, per_device_train_batch_size=args.rows,
        learning_rate=args.lr, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=int(args.warmup * args.updates), weight_decay=0.01, adam_beta2=0.95,
        max_length=None, seed=args.seed,
        completion_only_loss=True, packing=False, bf16=_autocast(policy, args), report_to="none",
        logging_steps=resuming.logging_steps(args.updates, args.save_every), save_steps=args.save_every,
        use_cpu=policy.model.device.type == "cpu", dataloader_pin_memory=False, optim="adamw_torch",
        **resuming.SETTINGS,
    )  # fmt: skip
    trainer = Trainer(policy.model, settings, train_dataset=Dataset.from_list(rows), processing_class=policy.tokenizer,
                      callbacks=[resuming.Checkpoints(out, args.seed)])  # fmt: skip
    prepared: Any = trainer.train_dataset
    trainer.train_dataset = prepared.select(_order(rows, args.rows * settings.world_size, args))
    return trainer


def _autocast(policy: HFPolicy, args: SftArgs) -> bool:
    """Whether to multiply in bfloat16."""
    return args.dtype == "bfloat16" or (args.dtype == "auto" and policy.model.device.type == "cuda")


def _order(rows: list[demonstrations.Row], batch: int, args: SftArgs) -> list[int]:
    """Row numbers of all batches: those of `copying`, which stand first, as they are; then the others, as they fit."""
    from seedbench.baselines import resuming

    first = min(args.copy_first, args.updates) * batch
    lengths = [len(row["input_ids"]) for row in rows[args.copy_first * batch :]]
    left = args.updates - first // batch
    rest = resuming.order(lengths, batch, left, args.seed) if left else []
    return [*range(first), *(args.copy_first * batch + i for i in rest)]
