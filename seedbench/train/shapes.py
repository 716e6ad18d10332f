"""Shapes of the models that recipes name, as their published config.json states them: --dry-run needs no download."""

from __future__ import annotations

from typing import Any

_25: dict[str, Any] = {"model_type": "qwen2", "max_position_embeddings": 32768}
_3: dict[str, Any] = {"model_type": "qwen3", "max_position_embeddings": 40960, "head_dim": 128, "vocab_size": 151936,
                      "num_key_value_heads": 8}  # fmt: skip

SHAPES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-3B-Instruct": _25 | {
        "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct": _25 | {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-1.7B": _3 | {
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-8B": _3 | {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
