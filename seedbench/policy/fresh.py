"""A new tiny policy: the shared tokenizer and a Qwen2 model small enough for two cores, with random weights."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.policy import chat, loading
from seedbench.policy.hf import HFPolicy

# 0.48 M parameters with the tokenizer's 1,536 embeddings, which are tied; d, layers and heads after spec: what a CPU
# core trains in minutes.
SHAPE: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,  # of 32: vLLM knows no smaller heads
    "num_key_value_heads": 3,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
}


def fresh_policy(tokenizer: Path, seed: int = 0, **shape: Any) -> HFPolicy:
    """Random weights drawn by `seed` alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    words = chat.load_tokenizer(tokenizer, None)
    ids = {"bos_token_id": None, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    config = AutoConfig.for_model("qwen2", vocab_size=len(words), **ids, **(SHAPE | shape))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
    torch.set_num_threads(1)  # matrices this small lose time to more
    return HFPolicy(model, words)


def load_policy(spec: str, env: str, *, seed: int = 0, **options: Any) -> HFPolicy:
    """What --model names: `fresh` (new weights), `tiny` (the shipped policy of `env`), a folder or a hub id.

    `options` are those of HFPolicy.load. Raises SeedbenchError.
    """
    if spec == "fresh":
        loading.require_train()
        policy = fresh_policy(shipped("tokenizer"), seed)
        if not options.get("thinking", True):
            chat.without_thinking(policy.tokenizer)
        return policy
    return HFPolicy.load(shipped(env) if spec == "tiny" else spec, **options)


def every() -> list[str]:
    """The environments that a tiny policy ships for."""
    return sorted(folder.name for folder in _tiny().iterdir() if (folder / "model.safetensors").is_file())


def _tiny() -> Path:
    return Path(str(resources.files("seedbench.baselines"))) / "tiny"


def shipped(name: str) -> Path:
    """The folder of a tiny policy, or of their tokenizer. Raises SeedbenchError where none ships."""
    folder = _tiny() / name
    if not (folder / "tokenizer.json").is_file():
        raise SeedbenchError(f"No tiny policy ships for {name}: train one with `seedbench train sft --model fresh`.")
    return folder
