"""What a training run keeps in memory, estimated from a model's configuration. P: parameters, T: those trained.

    weights           P w,  w = 4 bytes (float32) or 2 (bfloat16); with LoRA T w more
    gradients         4 T   (bfloat16 adds 2 T for the last pass's own)
    masters           4 T   float32 copies, for bfloat16 weights that are trained
    AdamW             8 T   two moments
    teacher           T w   where it is a copy of earlier weights (SSPO): in CPU memory, whatever the device
    reference model   P w   with KL; none with LoRA, whose reference is the same model
    KV cache          2 w layers kv_heads head_size (prompt + reply) episodes
    activations       w tokens layers (8 hidden + 2 q + 2 kv + 3 ffn); recomputed: w tokens layers hidden + one layer
    logits            12 V (reply tokens of a pass): float32 logits, their log-softmax, the gradient

With n processes that shard, weights, gradients, masters, moments and reference are 1/n each, but all weights once more
while episodes are played. The allocator's waste and the libraries' own memory (1 GiB or so on a GPU) come on top.
"""

from __future__ import annotations

from typing import Any

from seedbench.train.args import Args

TEACHER = "teacher (CPU memory)"
GUESSED_PROMPT = 2048  # tokens, where no limit is set and the model's context is longer


def estimate(args: Args, parameters: int, trained: int, bf16: bool, config: Any = None) -> dict[str, float]:
    """Bytes by name. Without the model's `config` the last three, which need its shape, are left out."""
    w = 2 if bf16 else 4
    lora = args.lora_rank > 0
    found: dict[str, float] = {"weights": (parameters + trained * lora) * w, "gradients": trained * (6 if bf16 else 4)}
    if bf16:
        found["masters"] = 4 * trained
    found["AdamW"] = 8 * trained
    if args.teacher_sync > 1:
        found[TEACHER] = trained * w
    if args.kl and not lora:
        found["reference model"] = parameters * w
    return found if config is None else found | _by_shape(args, w, config)


def _by_shape(args: Args, w: int, config: Any) -> dict[str, float]:
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv = (getattr(config, "num_key_value_heads", None) or heads) * size
    prompt = args.max_prompt_tokens or min(GUESSED_PROMPT, config.max_position_embeddings - args.max_new_tokens)
    row = prompt + args.max_new_tokens
    layer = w * (8 * config.hidden_size + 2 * heads * size + 2 * kv + 3 * config.intermediate_size)
    layers = config.num_hidden_layers
    tokens = max(args.token_budget, row)
    kept = w * layers * config.hidden_size + layer if args.activation_checkpointing else layers * layer
    return {
        "KV cache": 2 * w * layers * kv * row * min(args.slots, args.tasks * args.group),
        "activations": tokens * kept,
        "logits": 12 * config.vocab_size * tokens * args.max_new_tokens / row,
    }


def adapter_parameters(model: Any, rank: int) -> int:
    """Elements of LoRA's matrices in every linear layer but the output's: rank (in + out) each."""
    import torch

    out = model.get_output_embeddings()
    return sum(
        rank * (m.in_features + m.out_features)
        for m in model.modules()
        if isinstance(m, torch.nn.Linear) and m is not out
    )
