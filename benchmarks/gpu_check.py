"""What benchmarks/gpu_check.sh runs: GRPO's objective, backward pass and AdamW step on models of random weights."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder, whose alfworld.py hides the package

from seedbench.baselines import grpo  # noqa: E402
from seedbench.core import View  # noqa: E402
from seedbench.policy import chat  # noqa: E402
from seedbench.policy.fresh import shipped  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from seedbench.train.args import Args  # noqa: E402
from seedbench.train.rows import Row, batch_of, passes  # noqa: E402

# hidden, intermediate, layers, heads, KV heads of Qwen2.5-0.5B, 1.5B and 3B
SIZES = {"0.5B": (896, 4864, 24, 14, 2), "1.5B": (1536, 8960, 28, 12, 2), "3B": (2048, 11008, 36, 16, 2)}
TINY = {"tiny": (96, 256, 3, 4, 2)}
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "4090": 165e12}  # dense bf16
VOCABULARY = 151936
ARGS = Args(kl=0.01, clip_high=0.28, entropy=0.001)


def model_of(shape: tuple[int, int, int, int, int], vocabulary: int, device: str, dtype: torch.dtype) -> Any:
    """A Qwen2 of that shape with random weights, the same on any device."""
    from transformers import AutoConfig, AutoModelForCausalLM

    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = AutoConfig.for_model(
        "qwen2", vocab_size=vocabulary, tie_word_embeddings=True, max_position_embeddings=4096, bos_token_id=None,
        eos_token_id=2, pad_token_id=0, **dict(zip(names, shape, strict=True)),
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device if dtype == torch.bfloat16 else "cpu"):  # small ones are drawn on the CPU, to be compared
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.to(device)


def rows_of(count: int, prompt: int, completion: int, vocabulary: int) -> list[Row]:
    """Random rows whose old and reference log-probabilities are near those of random weights."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        n, m = (int(x * rng.uniform(0.7, 1.0)) for x in (prompt, completion))
        p, c = (tuple(int(x) for x in rng.integers(3, vocabulary, k)) for k in (n, m))
        old, ref = (tuple(rng.normal(-np.log(vocabulary), 0.1, m)) for _ in range(2))
        rows.append(Row(p, c, old, View("g", "o", (), ()), i // 8, i, 0, 1.0, True, True, rng.normal(), old, ref))
    return rows


def gradients(policy: HFPolicy, rows: list[Row], budget: int) -> float:
    """Forward and backward over all rows, as the loop does it; returns the loss."""
    total, loss = sum(len(r.completion_ids) for r in rows), 0.0
    for some in passes(rows, budget):
        value, _ = grpo.objective(policy, batch_of(some, total, 0, policy.model.device), ARGS)
        value.backward()
        loss += float(value.detach())
    return loss


def check(device: str, words: Any) -> bool:
    """The gradient on `device` beside the CPU's in fp32: in fp32 to 1e-4 of its norm, in bf16 to a cosine of .98."""
    shape, vocabulary, rows = (128, 256, 4, 4, 2), 1536, rows_of(12, 120, 24, 1536)
    found = []
    for where, dtype in (("cpu", torch.float32), (device, torch.float32), (device, torch.bfloat16)):
        torch.backends.cuda.matmul.allow_tf32 = False
        model = model_of(shape, vocabulary, "cpu", torch.float32).to(where, dtype).train()
        model.gradient_checkpointing_enable()
        loss = gradients(HFPolicy(model, words), rows, 1024)
        found.append((loss, torch.cat([p.grad.flatten().double().cpu() for p in model.parameters()])))
    (loss, exact), (loss32, fp32), (loss16, bf16) = found
    off = float((fp32 - exact).norm() / exact.norm())
    cosine = float(torch.cosine_similarity(bf16, exact, dim=0))
    fine = off < 1e-4 and abs(loss32 - loss) < 1e-4 and cosine > 0.98
    print(f"check on {device}: {'passed' if fine else 'FAILED'}; loss {loss:.6f} on the CPU, {loss32:.6f} in fp32, "
          f"{loss16:.6f} in bf16; gradient off by {off:.1e} in fp32, cosine {cosine:.5f} in bf16")  # fmt: skip
    return fine


def speed(name: str, shape: tuple[int, int, int, int, int], device: str, words: Any, dry: bool) -> None:
    """Two updates, the second timed: forward, backward and AdamW."""
    vocabulary = 1536 if dry else VOCABULARY
    rows = rows_of(8, 60, 8, vocabulary) if dry else rows_of(64, 1024, 128, vocabulary)
    model = model_of(shape, vocabulary, device, torch.bfloat16).train()
    model.gradient_checkpointing_enable()
    policy, optimizer = HFPolicy(model, words), torch.optim.AdamW(model.parameters(), lr=1e-6)
    cuda = device == "cuda"
    for _ in range(2):
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        began = time.perf_counter()
        loss = gradients(policy, rows, 1024 if dry else 16384)
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    assert np.isfinite(loss) and np.isfinite(norm), (loss, norm)
    tokens, count = sum(len(r.prompt_ids) + len(r.completion_ids) for r in rows), model.num_parameters()
    memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if cuda else "not measured on a CPU"
    card = torch.cuda.get_device_name() if cuda else ""
    peak = next((value for key, value in PEAK.items() if key in card), None)
    # 6 operations a weight and token; what checkpointing computes again is no useful work and is not counted
    share = f"{6 * count * tokens / seconds / peak:.0%} of peak" if peak else "share of peak unknown"
    print(f"{name}: {count / 1e9:.2f} B parameters, {tokens:,} tokens in {seconds:.2f} s = {tokens / seconds:,.0f} "
          f"tokens/s, memory {memory}, {share}, gradient norm {norm:.3f}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-dry", action="store_true", help="everything at tiny size on the CPU")
    dry = parser.parse_args().cpu_dry
    if not dry and not torch.cuda.is_available():
        print("There is no GPU here, so nothing was checked: run this on a machine with CUDA, or with --cpu-dry.")
        return 1
    device = "cpu" if dry else "cuda"
    if dry:
        torch.set_num_threads(1)
    words = chat.load_tokenizer(shipped("tokenizer"), None)
    print(f"{'CPU, dry' if dry else torch.cuda.get_device_name()}, torch {torch.__version__}")
    fine = check(device, words)
    for name, shape in (TINY if dry else SIZES).items():
        speed(name, shape, device, words, dry)
        if not dry:
            torch.cuda.empty_cache()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
