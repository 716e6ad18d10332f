"""--dry-run: what a recipe will do and the memory that it needs, before anything is loaded for good."""

from __future__ import annotations

from seedbench.exam import Config, plan
from seedbench.policy.fresh import load_policy, shipped
from seedbench.policy.loading import find_folder
from seedbench.train.args import Args, SftArgs


def describe(args: Args | SftArgs, page: str) -> str:
    """A few lines of text. The model's size comes from its config; nothing is trained or written."""
    exam = plan(Config("train", env=args.env, split="train", data=args.data))[0]
    size = parameters(args.model, args.env)
    wide = 2 if isinstance(args, Args) and args.dtype == "bfloat16" else 4
    copies = {"weights": size * wide, "gradients": size * wide, "AdamW": 2 * size * wide}
    if isinstance(args, Args) and args.kl:
        copies["reference model"] = size * wide
    memory = ", ".join(f"{name} {n / 2**30:.2f} GiB" for name, n in copies.items())
    if isinstance(args, Args):
        episodes = f"{args.tasks} tasks x {args.group} episodes = {args.updates * args.tasks * args.group} episodes"
        work = f"{episodes} of at most {args.max_steps or exam.protocol['max_steps']} steps"
    else:
        work = f"{args.rows} rows of {args.demonstrations or len(exam.tasks['train'])} demonstrations"
    return "\n".join(
        [
            f"{page} on {exam.env_id} ({args.data}): {len(exam.tasks['train'])} train tasks",
            f"{args.updates} updates x {work}",
            f"{args.model}: {size / 1e6:.2f} M parameters; {memory}; activations and the KV cache come on top",
            f"into {args.out or '(no --out given)'}",
        ]
    )


def parameters(model: str, env: str) -> int:
    """Parameters of what --model names, counted without making its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if model == "fresh":
        return int(load_policy(model, env).model.num_parameters())
    folder = shipped(env) if model == "tiny" else find_folder(model)
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        return int(AutoModelForCausalLM.from_config(config, trust_remote_code=False).num_parameters())
