"""--dry-run: what a recipe will do and the memory that it needs, before anything is loaded for good."""

from __future__ import annotations

from seedbench.exam import Config, plan
from seedbench.train.args import Args


def describe(args: Args, page: str) -> str:
    """A few lines of text. The model's size comes from its config; nothing is trained or written."""
    exam = plan(Config("train", env=args.env, split="train", data=args.data, max_steps=args.max_steps))[0]
    episodes = args.tasks * args.group
    size = parameters(args.model)
    wide = 2 if args.dtype == "bfloat16" else 4
    copies = {"weights": size * wide, "gradients": size * wide, "AdamW": 8 * size}
    if args.lora:
        copies |= {"gradients": 0, "AdamW": 0}
    if args.kl and not args.lora:
        copies["reference model"] = size * wide
    memory = ", ".join(f"{name} {n / 2**30:.2f} GiB" for name, n in copies.items() if n)
    return "\n".join(
        [
            f"{page} on {exam.env_id} ({args.data}): {len(exam.tasks['train'])} train tasks",
            f"{args.updates} updates x {args.tasks} tasks x {args.group} episodes = {args.updates * episodes} episodes"
            f" of at most {exam.protocol['max_steps']} steps",
            f"{args.model}: {size / 1e6:.2f} M parameters; {memory}; activations and the KV cache come on top",
            f"into {args.out or '(no --out given)'}",
        ]
    )


def parameters(model: str) -> int:
    """Parameters of a model folder or hub id, counted without making its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from seedbench.policy.loading import find_folder

    with torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(find_folder(model))).num_parameters())
