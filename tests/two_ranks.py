"""What tests/test_ranks.py runs in two processes: `torchrun tests/two_ranks.py MODEL OUT`, several short trainings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from seedbench.train.args import Args
from seedbench.train.hints import SspoArgs

RUNS: dict[str, dict[str, Any]] = {
    "ddp-lora": {"lora_rank": 4, "kl": 0.1, "resample": 1},
    "fsdp": {"shard": True, "kl": 0.1, "activation_checkpointing": True, "mini_batches": 2, "token_budget": 3000},
    "fsdp-lora": {"shard": True, "lora_rank": 4, "kl": 0.1},
    "fsdp-sspo": {"shard": True, "privileged": "answer", "teacher_updates": 3},
}
RESUMED = ("fsdp", "fsdp-sspo")  # runs whose last update is made again from their checkpoint


def settings(model: str, out: Path, **more: Any) -> Args:
    """Three groups over two ranks, so that one has more rows, and more passes, than the other."""
    given: dict[str, Any] = {"updates": 2, "tasks": 3, "group": 2, "max_new_tokens": 8, "max_steps": 3, "save_every": 1}
    kind = SspoArgs if "privileged" in more else Args
    return kind(model=model, out=str(out), threads=1, **(given | more))


def train(args: Args, resume: bool = False) -> Path:
    """By the page whose settings these are."""
    from seedbench.baselines import grpo, sspo

    return sspo.run(args, resume) if isinstance(args, SspoArgs) else grpo.run(args, resume)


if __name__ == "__main__":
    from seedbench.train.ranks import Ranks

    for name, options in RUNS.items():
        if name == "fsdp-lora":  # asked for by accelerate's environment instead
            os.environ |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
            options = options | {"shard": False}
        train(settings(sys.argv[1], Path(sys.argv[2]) / name, **options))
    for name in RESUMED:  # a checkpoint of two processes goes on in two
        os.environ["ACCELERATE_USE_FSDP"] = "false"
        out = Path(sys.argv[2]) / name
        if os.environ["RANK"] == "0":
            (out / "model.safetensors").rename(out / "before.safetensors")  # with it the run would be a finished one
        Ranks().wait()
        train(settings(sys.argv[1], out, **RUNS[name]), resume=True)
