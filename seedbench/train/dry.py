"""--dry-run: what a recipe will do and the memory that it needs, before anything is loaded for good."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.exam import Config, plan_one
from seedbench.policy.fresh import fresh_policy, shipped
from seedbench.policy.loading import pick_device, require_train
from seedbench.train.args import Args
from seedbench.train.hints import HindsightArgs, SkillGrpoArgs, SspoArgs
from seedbench.train.memory import TEACHER, adapter_parameters, estimate
from seedbench.train.sft import SftArgs
from seedbench.train.shapes import SHAPES


def describe(args: Args | SftArgs, page: str, parameters: float | None = None) -> str:
    """A few lines of text. The model's size comes from its config; nothing is trained, written or downloaded."""
    steps, history = (args.max_steps, args.history) if isinstance(args, Args) else (None, None)
    exam = plan_one(Config("train", env=args.env, split="train", data=args.data, preset=args.preset,
                           max_steps=steps, history=history))  # fmt: skip
    lines = [f"{page} on {exam.env_id} ({args.data}): {len(exam.tasks['train'])} train tasks"]
    if isinstance(args, Args):
        episodes = args.updates * args.tasks * args.group
        lines.append(
            f"{args.updates} updates x {args.tasks} tasks x {args.group} episodes = {episodes} episodes of at most "
            f"{args.max_steps or exam.protocol['max_steps']} steps"
        )
        lines += [*_replies(args), *_hints(args, args.max_steps or exam.protocol["max_steps"])]
        shape = args
    else:
        shown = len(exam.tasks["train"]) if args.demonstrations is None else args.demonstrations
        more = f" and of {args.examples}" if args.examples else ""
        lines.append(f"{args.updates} updates x {args.rows} rows of {shown} demonstrations{more}")
        shape = Args(dtype="float32")
    lines += _memory(args.model, args.env, shape, args.device, parameters, page == "sft")
    return "\n".join([*lines, f"into {args.out or '(no --out given)'}"])


def _replies(args: Args) -> list[str]:
    prompt = f"at most {args.max_prompt_tokens}" if args.max_prompt_tokens else "as long as the model's context allows"
    again = f"; groups without spread are drawn again, {args.resample} rounds at most" if args.resample else ""
    step = f"about {args.mini_batch_rows} rows" if args.mini_batch_rows else f"1 part in {args.mini_batches}"
    return [f"prompts {prompt}, replies at most {args.max_new_tokens} tokens; an optimizer step takes {step}{again}"]


def _hints(args: Args, steps: int) -> list[str]:
    """What the actor or the re-scoring teacher is told, and what it costs beside GRPO."""
    if isinstance(args, SkillGrpoArgs):
        told = f"the actor sees the skill {args.skill} at every step"
        again = f"once a kind of task and update, {_analysis(args, steps, args.analysis_tokens)}"
        return [f"{told}; {again}" if args.skill == "hindsight" else told]
    if isinstance(args, SspoArgs):
        who = "episode" if args.direct else "failed episode"
        heard = {"none": "nothing", "both": "evidence and the wrong answer", "anchors": "evidence"}
        return [
            f"the teacher, a copy of the weights every {args.teacher_updates} updates, scores each row of a {who} once "
            f"more, told {heard.get(args.privileged, 'the wrong answer')}; rows with an advantage of 0 it leaves out"
        ]
    if not isinstance(args, HindsightArgs) or args.skills == "none":
        return []
    which = "a failed episode" if args.failed_only else "an episode"
    last = "" if args.opd_stop is None else f" to {args.opd_stop}"
    lines = [
        f"the teacher sees {args.skills} skills from update {args.opd_start}{last}: each row of {which} that has one "
        "is scored once more, with the skill in its prompt"
    ]
    if args.skills in ("own", "shuffled"):
        lines.append(f"{args.tasks * args.group} times an update, {_analysis(args, steps, args.analysis_tokens)}")
    return lines


def _analysis(args: Args, steps: int, new: int) -> str:
    return (
        f"an analysis reads an episode (at most {steps} steps, each an observation and a reply of at most "
        f"{args.max_new_tokens} tokens) and writes at most {new} tokens"
    )


def _memory(model: str, env: str, args: Args, device: str, parameters: float | None, sft: bool) -> list[str]:
    """Size and memory. Raises SeedbenchError for a model whose size is not known here."""
    require_train()
    bf16 = args.dtype == "bfloat16" or (args.dtype == "auto" and pick_device(device).type == "cuda")
    net = _meta(model, env, parameters is not None)
    size = int(parameters) if net is None else int(net.num_parameters())  # type: ignore[arg-type]
    if args.lora_rank and net is None:
        raise SeedbenchError(f"The size of an adapter follows from {model}'s config.json: name a folder that has it.")
    trained = adapter_parameters(net, args.lora_rank) if args.lora_rank else size
    config = None if net is None or sft else net.config.get_text_config()
    found = estimate(args, size, trained, bf16, config)
    words = ", ".join(f"{name} {n / 2**30:.2f}" for name, n in found.items())
    away = 0.0 if pick_device(device).type == "cpu" else found.get(TEACHER, 0.0)
    told = (
        "" if sft or config is not None else "; KV cache and activations depend on its config.json, which is not here"
    )
    all_of_it = "at least" if told else "in all"
    kind = "bfloat16" if bf16 else "float32"
    return [
        f"{model}: {size / 1e6:.2f} M parameters, in {kind}, and {trained / 1e6:.2f} M trained",
        f"memory, estimated (seedbench/train/memory.py says how), in GiB: {words}{told}; {all_of_it} "
        f"{(sum(found.values()) - away) / 2**30:.2f}" + (" on the GPU" if away else ""),
    ]


def _meta(model: str, env: str, known: bool) -> Any:
    """The model without its weights; None where its config is not here and its size is `known` otherwise."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if model == "fresh":
        return fresh_policy(shipped("tokenizer")).model
    folder = shipped(env) if model == "tiny" else _config_folder(model)
    if folder is None and model not in SHAPES:
        if known:
            return None
        raise SeedbenchError(
            f"{model} is no folder here and not in the local cache, so its size is not known: download it first "
            f"(`hf download {model}`), or give its size, as in --parameters 3.09e9."
        )
    with torch.device("meta"):
        if folder is None:
            config = AutoConfig.for_model(**SHAPES[model])
        else:
            config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _config_folder(model: str) -> Path | None:
    """Where config.json lies: the folder itself, or the cache of a hub id. Nothing is downloaded."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if os.path.isdir(model):
        return Path(model)
    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None
