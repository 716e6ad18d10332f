"""A tiny random model folder, made in the test itself: own tokenizer, chat template, weights of a fixed seed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = ["go to fridge 1", "open drawer 2", "take the apple from the shelf", "<action>look</action>", "You see nothing."]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tiny_tokenizer(template: str | None = TEMPLATE) -> Any:
    """Byte-level BPE of about 320 tokens, so that any text can be encoded; eos is <|endoftext|>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(TEXT, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=SPECIAL[0], pad_token=SPECIAL[0])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(vocabulary: int, *, kind: str = "qwen2", seed: int = 0, **config: Any) -> Any:
    """A random causal LM of about 70k parameters. Weights are spread wide, so that its choices are not near-ties."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape: dict[str, Any] = {"vocab_size": vocabulary, "hidden_size": 48, "intermediate_size": 96}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.15}
    shape |= {"max_position_embeddings": 512, "tie_word_embeddings": True}
    shape |= {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(shape | config))).eval()


def tiny_folder(folder: Path, template: str | None = TEMPLATE, **model: Any) -> Path:
    """Save a tiny model and its tokenizer under `folder` (made if need be) and return it."""
    tokenizer = tiny_tokenizer(template)
    tiny_model(len(tokenizer), **model).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def forbid_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connect raise, to this machine too."""

    def refuse(self: Any, address: Any) -> None:
        raise OSError(f"a test tried to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


def one_torch_thread() -> Iterator[None]:
    """Body of a fixture: matrices this small lose time to more threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def one_sentence(error: pytest.ExceptionInfo[SeedbenchError], *words: str) -> None:
    """The message is one line that ends in a full stop and holds every word."""
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text, text
    for word in words:
        assert word in text, (word, text)
