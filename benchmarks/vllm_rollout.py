"""How many tokens does each engine sample in a second of CPU? transformers (ours) and vLLM, in one run, by turns.

    .venv-vllm/bin/python benchmarks/vllm_rollout.py [--episodes 64] [--new 8,32] [--rounds 3] [--dtype float32]

The first turns of as many ALFWorld tasks, rendered and encoded as in training, continued by a random policy of 0.8
million parameters. Seconds are of the process, all threads together (one each). vLLM's prefix cache is emptied between
rounds, as it is between updates. Start-up and the push of weights, which only vLLM has, are printed too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from seedbench.core import View, stream
from seedbench.exam import Config, plan
from seedbench.policy.fresh import fresh_policy, shipped
from seedbench.policy.vllm import VLLMPolicy, weights_of

# 32 a head: the CPU build of vLLM knows no smaller ones
SHAPE = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4}


def prompts(policy: Any, count: int) -> list[tuple[int, ...]]:
    """The encoded first prompts of `count` train tasks."""
    (exam,) = plan(Config("benchmark", env="alfworld", split="train"))
    found = []
    for task in exam.tasks["train"][:count]:
        env = exam.make()
        observation, info = env.reset(seed=0, options={"task": task.id})
        view = View(info["goal"], observation, tuple(info["admissible"]), ())
        found.append(policy.encode(exam.prompt.render(view)))
    return found


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU-seconds, and what came of them."""
    before = time.process_time()
    result = work()
    return time.process_time() - before, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--new", default="8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = parser.parse_args()
    policy = fresh_policy(shipped("tokenizer"), 0, num_key_value_heads=4, **SHAPE)
    policy.model.to(dtype=getattr(__import__("torch"), args.dtype))
    policy.max_rows = args.episodes
    seconds, engine = spent(lambda: VLLMPolicy.beside(policy, batch=args.episodes))
    print(f"vLLM starts in {seconds:.1f} CPU-s, import included")
    seconds, _ = spent(lambda: engine.push(weights_of(policy.model)))
    print(f"a push of {policy.model.num_parameters() / 1e6:.2f} M parameters takes {seconds * 1000:.0f} CPU-ms")
    asked = prompts(policy, args.episodes)
    mean = statistics.mean(map(len, asked))
    print(f"{len(asked)} prompts of {min(map(len, asked))} to {max(map(len, asked))} tokens, {mean:.0f} on average")
    streams = [stream("benchmark", i) for i in range(len(asked))]
    for new in map(int, args.new.split(",")):
        rates: dict[str, list[float]] = {"hf": [], "vllm": []}
        for turn in range(args.rounds + 1):
            for name, player in (("hf", policy), ("vllm", engine)):
                engine.llm.reset_prefix_cache()
                seconds, said = spent(lambda p=player, n=new: p.generate(asked, streams=streams, max_new_tokens=n))
                if turn:  # the first one warms up
                    rates[name].append(sum(len(g.completion_ids) for g in said) / seconds)
        hf, vllm = (statistics.median(rates[name]) for name in ("hf", "vllm"))
        each = "; ".join(f"{n} {min(r):,.0f} to {max(r):,.0f}" for n, r in rates.items())
        print(f"{new} new tokens at most, {args.dtype}: hf {hf:,.0f}, vLLM {vllm:,.0f} tokens a CPU-second, "
              f"ratio {vllm / hf:.2f} ({each})")  # fmt: skip
    engine.close()


if __name__ == "__main__":
    main()
