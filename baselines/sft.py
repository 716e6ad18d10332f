"""Supervised fine-tuning on demonstrations: the warm start that every other page begins from.

The environment's expert plays train tasks through the same play() and the same prompts as a policy does; each step is
a row, its prompt encoded by the policy, its loss on the reply alone. TRL's SFTTrainer does the rest.

    seedbench train sft --env alfworld --model fresh --out runs/sft
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.agents import load_agent
from seedbench.core import SeedbenchError, stream
from seedbench.exam import Config, Exam, plan
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.rollout import Episode, play
from seedbench.train.args import SftArgs
from seedbench.train.log import FILE, plot


def demonstrations(exam: Exam, policy: HFPolicy, args: SftArgs) -> Iterator[dict[str, list[int]]]:
    """One row a step of the expert's won episodes: all ids, and a mask that is 1 on the reply and its end of turn."""
    pool = exam.tasks["train"]
    chosen = np.random.default_rng(stream("demonstrations", args.seed)).permutation(len(pool))[: args.demonstrations]
    games = (Episode(pool[int(i)], args.seed) for i in sorted(chosen))
    end = policy.tokenizer.eos_token_id
    for trajectory in play(exam.make, games, load_agent("expert"), slots=8, prompt=exam.prompt):
        if not trajectory.success:
            continue
        for step in trajectory.steps:
            prompt = list(policy.encode(step.view.messages))
            reply = [*policy.tokenizer.encode(step.reply.text, add_special_tokens=False), end]
            yield {"input_ids": prompt + reply, "completion_mask": [0] * len(prompt) + [1] * len(reply)}


def run(args: SftArgs, resume: bool = False) -> Path:
    """Fine-tune; returns the folder."""
    if not args.out:
        raise SeedbenchError("--out is missing: name the folder to train into.")
    out = Path(args.out)
    exam = plan(Config("expert", env=args.env, split="train", data=args.data))[0]
    policy = load_policy(args.model, args.env, seed=args.seed, device=args.device, threads=args.threads)
    out.mkdir(parents=True, exist_ok=True)
    (out / "train.json").write_text(args.dumps(), encoding="utf-8")
    trainer = _trainer(policy, list(demonstrations(exam, policy, args)), args, out)
    trainer.train(resume_from_checkpoint=resume)
    policy.save(out)
    lines = [{"update": x["step"], "loss": x["loss"], "grad_norm": x["grad_norm"], "lr": x["learning_rate"]}
             for x in trainer.state.log_history if "loss" in x]  # fmt: skip
    (out / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    plot(out / FILE)
    return out


def _trainer(policy: HFPolicy, rows: list[dict[str, list[int]]], args: SftArgs, out: Path) -> Any:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    settings = SFTConfig(
        output_dir=str(out / "checkpoints"), max_steps=args.updates, per_device_train_batch_size=args.rows,
        learning_rate=args.lr, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1},
        warmup_steps=int(args.warmup * args.updates), weight_decay=0.01, max_length=None, seed=args.seed,
        completion_only_loss=True, packing=False, bf16=False, report_to="none",
        logging_steps=max(1, args.updates // 100),
        save_steps=args.save_every, save_total_limit=2, use_cpu=policy.model.device.type == "cpu",
        dataloader_pin_memory=False, optim="adamw_torch",
    )  # fmt: skip
    return SFTTrainer(policy.model, settings, train_dataset=Dataset.from_list(rows),
                      processing_class=policy.tokenizer)  # fmt: skip
