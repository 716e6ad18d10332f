"""What was made fast gives what the plain way gives: prompts read together, and ids put together from lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import one_torch_thread, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")

from seedbench.policy.decoding import Net  # noqa: E402
from seedbench.policy.fresh import shipped  # noqa: E402
from seedbench.policy.pieces import _WORDS, Pieces, cuts_at_lines  # noqa: E402
from seedbench.policy.prefill import prefill  # noqa: E402

one_thread = pytest.fixture(autouse=True)(one_torch_thread)


class Counted(Net):
    """A Net that counts the tokens it reads, padding included."""

    read = 0

    def logits(self, ids: Any, mask: Any, cache: Any = None, keep: Any = 1) -> Any:
        self.read += ids.numel()
        return super().logits(ids, mask, cache, keep)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("budget", [16384, 64])
def test_prompts_read_together_are_those_read_whole(kind: str, budget: int) -> None:
    extra = {"sliding_window": 8, "head_dim": 12} if kind == "gemma2" else {}
    net = Counted(tiny_model(320, kind=kind, **extra))
    rng = np.random.default_rng(1)
    start = tuple(int(x) for x in rng.integers(3, 300, 30))
    tails = [tuple(int(x) for x in rng.integers(3, 300, n)) for n in (12, 9, 9, 5, 1)]
    prompts = [start + tails[i] for i in (0, 1, 2, 2, 1, 3, 4, 4)]
    with torch.inference_mode():
        shared, at_once = prefill(net, prompts, 0, budget), net.read
        whole = prefill(net, prompts, 0, budget, share=False)
        assert at_once < (net.read - at_once) * (0.4 if kind != "gemma2" else 0.8)
        assert sorted(row for f in shared for row in f.rows) == list(range(8))
        rows = [(row, f.logits[k]) for f in whole for k, row in enumerate(f.rows)]
        expected = torch.stack([logits for _, logits in sorted(rows, key=lambda x: x[0])])
        for f in shared:  # and the caches, which the next token reads
            np.testing.assert_allclose(f.logits, expected[f.rows], atol=2e-5)
            mask = torch.cat([f.mask, f.mask.new_ones(len(f.rows), 1)], -1)
            after = net.logits(torch.full((len(f.rows), 1), 7), mask, f.cache)[:, -1]
            for k, row in enumerate(f.rows):
                ids = torch.tensor([[*prompts[row], 7]])
                plain = net.logits(ids, torch.ones_like(ids))[0, -1]
                np.testing.assert_allclose(after[k], plain, atol=2e-5)


def qwen_like() -> Any:
    """A byte-level BPE with the pre-tokenizer of Qwen2 and Qwen3."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS[1]), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )  # fmt: skip
    return tokenizer


def shipped_tokenizer() -> Any:
    from seedbench.policy.chat import load_tokenizer

    return load_tokenizer(shipped("tokenizer"), None)


ALPHABET = ["\n", " ", "\r", "\t", "a", "apple", "B", "1", ".", "'s", ":", "-", "é", "e\u0301", "\u0301", "\u3000",
            "\u2028", "\x1c", "<|im_end|>", "<|im_start|>", "user", "日本", "<action>", "\n\n", "\n "]  # fmt: skip


@pytest.mark.parametrize("make", [qwen_like, shipped_tokenizer])
def test_ids_by_line_are_those_of_the_text(make: Any) -> None:
    tokenizer = make()
    pieces = Pieces(tokenizer)
    assert pieces.by_line

    @settings(max_examples=400, deadline=None)
    @given(st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join))
    def same(text: str) -> None:
        assert list(pieces.ids(text)) == tokenizer(text, add_special_tokens=False)["input_ids"]

    same()


def test_tokenizers_that_are_not_known_encode_the_whole() -> None:
    assert not cuts_at_lines(tiny_tokenizer())  # GPT-2's words: nobody has looked whether lines cut them
    eats = qwen_like()
    from tokenizers import AddedToken

    eats.add_tokens([AddedToken("<eats>", rstrip=True)])
    assert not cuts_at_lines(eats)
    text = "go\n\nopen <|im_end|>\n<eats>  \nx"
    assert list(Pieces(eats).ids(text)) == eats(text, add_special_tokens=False)["input_ids"]
