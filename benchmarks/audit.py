"""How often does the audit catch a forged run, and how often does it accuse an honest one?

    python benchmarks/audit.py [--steps 0,50,200,600] [--tasks 8] [--honest 4] [--forged 2] [--folder DIR]

Trains a tiny policy (0.4 million parameters, its own tokenizer) on demonstrations of our oracle on ALFWorld mini,
keeps checkpoints of growing quality, lets each play honestly and lets forgers who have everything (checkpoint,
tokenizer, this code) pass off other texts as its own; audits every run and prints one table. Some ten minutes of one
core; with --folder, checkpoints that are there are used again.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from seedbench.agents import load_agent
from seedbench.core import stream
from seedbench.exam import Config, plan
from seedbench.leaderboard.audit import Report, audit
from seedbench.leaderboard.run import Run
from seedbench.policy.hf import HFPolicy
from seedbench.rollout import play
from tests import impostor
from tests.tiny import SPECIAL, TEMPLATE, tiny_model

SHAPE = {"hidden_size": 96, "intermediate_size": 288, "num_hidden_layers": 3, "initializer_range": 0.02}
BATCH, RATE, NEW, CONTEXT = 16, 1e-3, 24, 1024
TESTS = ("stream", "argmax", "support", "typical", "logprob")


def demonstrations() -> list[tuple[Any, str]]:
    """(messages, reply) of every step of the oracle on the train split."""
    (exam,) = plan(Config(agent="expert", env="alfworld", split="train"))
    episodes = exam.episodes(Config(agent="expert"))
    return [
        (step.view.messages, step.reply.text)
        for t in play(exam.make, episodes, load_agent("expert"), prompt=exam.prompt)
        for step in t.steps
    ]


def tokenizer_of(rows: list[tuple[Any, str]]) -> Any:
    """Byte-level BPE of at most 768 tokens, trained on the prompts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=768, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator((m["content"] + " " + reply for messages, reply in rows for m in messages), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=SPECIAL[0], pad_token=SPECIAL[0])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def train(steps: list[int], folder: Path) -> dict[int, HFPolicy]:
    """Checkpoints after so many steps of plain cross-entropy on the replies."""
    import torch

    from seedbench.policy.decoding import Net, token_logprobs

    if all((folder / str(step) / "config.json").exists() for step in steps):
        return {step: HFPolicy.load(folder / str(step), device="cpu") for step in steps}
    rows = demonstrations()
    tokenizer = tokenizer_of(rows)
    model = tiny_model(len(tokenizer), **SHAPE, max_position_embeddings=CONTEXT)
    policy = HFPolicy(model, tokenizer)
    end = max(policy.stop_ids)
    ids = [(policy.encode(m), [*tokenizer.encode(reply, add_special_tokens=False), end]) for m, reply in rows]
    length = np.mean([len(p) for p, _ in ids])
    print(f"{model.num_parameters():,} parameters, {len(ids)} replies, {length:.0f} tokens a prompt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
    rng, net, began = np.random.default_rng(stream("benchmark", "audit")), Net(model), time.process_time()
    kept, loss = {}, torch.tensor(math.nan)
    for step in range(max(steps) + 1):
        if step in steps:
            policy.save(folder / str(step))
            kept[step] = HFPolicy.load(folder / str(step), device="cpu")
            print(f"step {step}: loss {loss.item():.3f}, {time.process_time() - began:.0f} CPU-s", flush=True)
        some = [ids[i] for i in rng.integers(len(ids), size=BATCH)]
        loss = -torch.cat(token_logprobs(net, [p for p, _ in some], [c for _, c in some], 1.0, 0)).mean()
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return kept


def forgeries(temperature: float, other: HFPolicy, tasks: int) -> dict[str, impostor.Play]:
    """What is passed off as the checkpoint's own at a declared temperature."""
    found: dict[str, impostor.Play] = {
        "expert, every episode": impostor.expert,
        f"expert, 1 episode of {tasks}": impostor.expert_in_one_of(tasks),
        "another checkpoint": impostor.other_model(other),
    }
    if temperature:
        found["best of 4 own samples"] = impostor.best_of(4)
        found[f"T={1.4 - temperature:g} as T={temperature:g}"] = impostor.at(1.4 - temperature)
    return found


def exam_of(tasks: int, seed: int, temperature: float) -> Config:
    """Half of the tasks from each split."""
    played = {"env": "alfworld", "split": "seen,unseen", "limit": tasks // 2, "seed": seed}
    return Config(agent="model", temperature=temperature, max_new_tokens=NEW, **played)  # type: ignore[arg-type]


class Line:
    """One row of the table."""

    def __init__(self) -> None:
        self.runs = self.caught = self.won = self.played = self.same = 0
        self.by: dict[str, int] = dict.fromkeys(TESTS, 0)
        self.z: list[float] = []
        self.share: list[float] = []

    def add(self, run: Run, report: Report) -> None:
        self.runs += 1
        self.caught += bool(report.findings)
        for test in TESTS:
            self.by[test] += report.counts[test] > 0
        assert not set(report.counts) - set(TESTS), report.findings
        self.z.append(report.surprise.z)
        self.share.append((report.counts["stream"] + report.counts["argmax"]) / report.tokens)
        self.won += sum(line["success"] for line in run.lines())
        self.played += sum(1 for _ in run.lines())

    def __str__(self) -> str:
        tests = "".join(f"{self.by[test] or '-':>8}" for test in TESTS)
        if not self.runs:
            return f"{self.same} runs came out as the honest ones, byte for byte"
        z = f"{min(self.z):+7.1f} {max(self.z):+7.1f}"
        return (
            f"{self.won / self.played:5.0%} {self.caught:>4}/{self.runs:<3}{tests} {np.mean(self.share):8.2%} {z}"
            + f"   {self.same} same" * (self.same > 0)
        )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", default="0,50,200,600")
    p.add_argument("--tasks", type=int, default=8)
    p.add_argument("--honest", type=int, default=4)
    p.add_argument("--forged", type=int, default=2)
    p.add_argument("--folder", type=Path)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        steps = [int(s) for s in args.steps.split(",")]
        policies = train(steps, folder / "model")
        print(
            f"\n{args.tasks} episodes a run; columns of tests: runs that failed; off: tokens that fail stream or argmax"
        )
        heads = "".join(f"{test:>8}" for test in TESTS)
        print(f"{'step':>5} {'T':>4} {'what was recorded':26} {'won':>5} {'caught':>8}{heads}      off  z from      to")
        for k, step in enumerate(steps):
            other = policies[steps[k + 1] if k + 1 < len(steps) else steps[k - 1]]
            for temperature in (0.0, 0.4, 1.0):
                plays = {"the truth": impostor.honest, **forgeries(temperature, other, args.tasks)}
                truth: set[str] = set()
                for name, how in plays.items():
                    line = Line()
                    for seed in range(args.honest if how is impostor.honest else args.forged):
                        config = exam_of(args.tasks, seed, temperature)
                        out = folder / "runs" / f"{step}-{temperature}-{name.replace(' ', '-')}-{seed}"
                        run = Run(impostor.run(policies[step], how, config, out))
                        if how is impostor.honest:
                            truth.add(run.results.chain_head)
                        elif run.results.chain_head in truth:  # nothing was forged: no try was better, say
                            line.same += 1
                            continue
                        line.add(run, audit(run, dict.fromkeys([r.env for r in run.results.results], policies[step])))
                    print(f"{step:>5} {temperature:>4} {name:26} {line}", flush=True)
    print(f"{time.process_time():.0f} CPU-s in all")


if __name__ == "__main__":
    main()
