"""What reading a trajectory once saves: tokens and CPU time of rows and of packed sequences, on a growing chat.

    python benchmarks/packed.py                        # under a minute of one core

Deep search's expert, half of the time astray, plays training questions under the preset `sspo`, whose prompts are one
growing chat, and under `seedbench`, which leaves the oldest observations out, so that every step stays a row.
Both layouts score the same replies (they must agree to 1e-4) and go backward through them; CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder, whose alfworld.py hides the package

import torch  # noqa: E402

from seedbench.baselines.demonstrations import Stumbling  # noqa: E402
from seedbench.exam import Config, plan_one  # noqa: E402
from seedbench.policy.fresh import load_policy  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from seedbench.policy.packing import pack  # noqa: E402
from seedbench.rollout import Episode, play  # noqa: E402

Ids = tuple[int, ...]


def played(policy: HFPolicy, preset: str, options: argparse.Namespace) -> list[list[tuple[Ids, Ids]]]:
    """Prompt and reply of every step, episode by episode."""
    exam = plan_one(Config("train", env="deepsearch", split="train", preset=preset, max_steps=options.max_steps))
    episodes = [Episode(task, 0, 0) for task in exam.tasks["train"][: options.tasks]]
    end = policy.tokenizer.eos_token_id
    return [
        [(policy.encode(step.view.messages), (*policy.tokenizer.encode(step.reply.text, add_special_tokens=False), end))
         for step in trajectory.steps]
        for trajectory in play(exam.make, episodes, Stumbling(0.5), slots=8, prompt=exam.prompt)
    ]  # fmt: skip


def measure(policy: HFPolicy, chats: list[list[tuple[Ids, Ids]]], packed: bool) -> tuple[float, list[float]]:
    """CPU seconds forward and backward, an episode at a time, and the log-probabilities."""
    policy.packed = packed
    started, values = time.process_time(), list[float]()
    for chat in chats:
        logp, _ = policy.score([p for p, _ in chat], [c for _, c in chat])
        logp.sum().backward()
        values += logp.tolist()
    policy.model.zero_grad()
    return time.process_time() - started, values


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", type=int, default=48)
    p.add_argument("--max-steps", type=int, default=16)
    options = p.parse_args()
    torch.set_num_threads(1)
    policy = load_policy("tiny", "deepsearch", threads=1)
    for preset in ("seedbench", "sspo"):
        chats = played(policy, preset, options)
        measure(policy, chats[:2], True)
        rows, one = measure(policy, chats, False)
        once, other = measure(policy, chats, True)
        if max(abs(a - b) for a, b in zip(one, other, strict=True)) > 1e-4:
            sys.exit("error: the layouts disagree")
        tokens = sum(len(p) + len(c) for chat in chats for p, c in chat)
        read = sum(len(p.ids) for chat in chats for p in pack([p for p, _ in chat], [c for _, c in chat]))
        print(f"{preset}: {sum(map(len, chats))} steps of {len(chats)} episodes")
        print(f"  {tokens:,} tokens in rows, {read:,} packed: {tokens / read:.2f} times fewer")
        print(f"  {rows:.1f} CPU-s in rows, {once:.1f} packed: {rows / once:.2f} times as fast")


if __name__ == "__main__":
    main()
