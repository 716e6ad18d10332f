"""TRL's GRPOTrainer with a rollout_func on the tasks of benchmarks/train.py, beside our loop: the same model, the same
environment through play(), the same number of episodes, one optimizer step.

What differs. TRL takes exactly one row a prompt, so an episode is one growing conversation: every observation is
appended, `env_mask` leaves it out of the loss, and each turn's model.generate reads the conversation anew. Ours is a
row a turn whose prompt holds the last steps only. TRL's rollout_func writes prompts and parses replies as ours does;
it returns no log-probabilities of use (model.generate gave none), so TRL takes those of its own forward pass.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.train import spread, transformers_generate
from seedbench.core import Agent, Reply, TextEnv, View
from seedbench.exam import Exam
from seedbench.policy.fresh import load_policy
from seedbench.policy.hf import HFPolicy
from seedbench.rollout import Episode, play

Key = tuple[str, int]


class Conversations(Agent):
    """Appends each observation to the episode's conversation and has transformers generate the next reply."""

    needs_env = True

    def __init__(self, policy: HFPolicy, new: int):
        self.policy, self.new = policy, new
        self.prompt: dict[Key, list[int]] = {}
        self.said: dict[Key, list[int]] = {}  # everything behind the first prompt
        self.own: dict[Key, list[int]] = {}  # 1 where the policy said it

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        assert envs is not None
        keys = [(env.playing[0].id, env.playing[1]) for env in envs if env.playing]
        for key, view in zip(keys, views, strict=True):
            if key not in self.prompt:
                self.prompt[key] = list(self.policy.encode(view.messages))
                self.said[key], self.own[key] = [], []
            else:
                now = f"Now:\n{view.observation}\n\nActions:\n" + "\n".join(view.admissible)
                ids = [*self.policy.tokenizer.encode("\n", add_special_tokens=False),
                       *self.policy.encode([{"role": "user", "content": now}])]  # fmt: skip
                self._add(key, ids, 0)
        texts = [self.prompt[key] + self.said[key] for key in keys]
        replies: list[Reply | Exception] = []
        for key, ids in zip(keys, transformers_generate(self.policy, texts, self.new), strict=True):
            self._add(key, ids, 1)
            replies.append(Reply(self.policy.decode(ids)))
        return replies

    def _add(self, key: Key, ids: list[int], own: int) -> None:
        self.said[key] += ids
        self.own[key] += [own] * len(ids)


def compare(exam: Exam, options: argparse.Namespace) -> None:
    """Print rollout, update and sum of both sides."""
    ours, theirs = _ours(options), _trl(exam, options)
    print(
        f"\nTRL: one update of {options.tasks} x {options.group} episodes of at most {options.trl_steps} turns, CPU-s"
    )
    print(f"  {'':30} {'rollout':>9} {'update':>9} {'both':>9} {'rows':>6} {'tokens in rows':>15} {'sampled':>8}")
    for name, (rolled, updated, rows, tokens, sampled) in (("ours", ours), ("GRPOTrainer, rollout_func", theirs)):
        both = rolled + updated
        print(f"  {name:30} {rolled:9.2f} {updated:9.2f} {both:9.2f} {rows:6} {tokens:15,} {sampled:8,}")
    print(f"  ours is {(theirs[0] + theirs[1]) / (ours[0] + ours[1]):.2f} times as fast "
          f"(rollout {theirs[0] / ours[0]:.2f}, update {theirs[1] / ours[1]:.2f})")  # fmt: skip


Side = tuple[float, float, int, int, int]  # CPU-s of rollout and of the rest, rows, tokens in rows, sampled tokens


def _ours(options: argparse.Namespace) -> Side:
    """One update of our loop, every row with an advantage, as in TRL."""
    from seedbench.baselines import grpo
    from seedbench.train import loop
    from seedbench.train.args import Args

    spent: dict[str, float] = {}
    seen: list[Any] = []

    def all_rows(rows: Any, args: Args) -> list[float]:
        spent["rolled"] = time.process_time()
        seen.extend(rows)
        return [value or 1.0 for value in spread(rows, args)]

    opened = loop._open

    def open_then_start(*given: Any) -> Any:
        run = opened(*given)
        spent["began"] = time.process_time()
        return run

    saved = HFPolicy.save

    def stop_then_save(policy: HFPolicy, *given: Any) -> None:
        spent["ended"] = time.process_time()
        saved(policy, *given)

    loop._open, HFPolicy.save = open_then_start, stop_then_save  # type: ignore[assignment,method-assign]
    try:
        with tempfile.TemporaryDirectory() as out:
            args = Args(
                env=options.env,
                model=options.model,
                out=out,
                updates=1,
                tasks=options.tasks,
                lr=1e-4,
                group=options.group,
                max_new_tokens=options.new,
                max_steps=options.trl_steps,
                threads=1,
            )
            loop.train(args, advantages=all_rows, objective=grpo.objective)
    finally:
        loop._open, HFPolicy.save = opened, saved  # type: ignore[method-assign]
    sampled = sum(len(r.completion_ids) for r in seen)
    return (spent["rolled"] - spent["began"], spent["ended"] - spent["rolled"], len(seen),
            sampled + sum(len(r.prompt_ids) for r in seen), sampled)  # fmt: skip


def _trl(exam: Exam, options: argparse.Namespace) -> Side:
    """One step of TRL's trainer; rewards are drawn per episode, so that every row has an advantage."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    policy = load_policy(options.model, options.env, threads=1)
    tasks = exam.tasks["train"][: options.tasks]
    figures: dict[str, Any] = {}

    def make() -> TextEnv:
        env = exam.make()
        env.max_steps = options.trl_steps
        return env

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        began = time.process_time()
        trainer.model.eval()
        agent, keys, seen = Conversations(policy, options.new), [], dict.fromkeys(prompts, 0)
        for prompt in prompts:
            keys.append((prompt, seen[prompt]))
            seen[prompt] += 1
        by_id = {task.id: task for task in tasks}
        episodes = [Episode(by_id[task], 0, trial) for task, trial in keys]
        list(play(make, episodes, agent, slots=64, prompt=exam.prompt))
        trainer.model.train()
        while_last = [agent.said[key] for key in keys]
        figures["rollout"] = time.process_time() - began
        figures["rows"] = len(keys)
        figures["tokens"] = sum(len(agent.prompt[key]) + len(agent.said[key]) for key in keys)
        figures["sampled"] = sum(sum(agent.own[key]) for key in keys)
        return {"prompt_ids": [agent.prompt[key] for key in keys], "completion_ids": while_last, "logprobs": None,
                "env_mask": [agent.own[key] for key in keys]}  # fmt: skip

    class Timed(TrainerCallback):
        def on_step_begin(self, *given: Any, **more: Any) -> None:
            figures["began"] = time.process_time()

        def on_step_end(self, *given: Any, **more: Any) -> None:
            figures["ended"] = time.process_time()

    count = options.tasks * options.group
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            out, use_cpu=True, bf16=False, report_to="none", num_generations=options.group, max_steps=1,
            per_device_train_batch_size=8, gradient_accumulation_steps=count // 8, temperature=1.0, top_k=0,
            max_completion_length=4096, gradient_checkpointing=False, disable_tqdm=True, save_strategy="no",
            learning_rate=1e-4, beta=0.0, logging_strategy="no",
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=lambda completions, **_: [float(i % 2) for i in range(len(completions))],
            args=config,
            train_dataset=Dataset.from_list([{"prompt": task.id} for task in tasks]),
            rollout_func=rollout,
            callbacks=[Timed()],
        )
        torch.set_num_threads(1)
        trainer.train()
    whole = figures["ended"] - figures["began"]
    return figures["rollout"], whole - figures["rollout"], figures["rows"], figures["tokens"], figures["sampled"]
