"""Rows that go on where another one ended, read once: for prompts that only ever grow, as in a chat.

The row of step 3 begins with all of step 2's prompt and reply, and so does step 2's with step 1's. Packed they are one
sequence in which several spans are scored; attention is causal, so every token has the log-probability that it has in
a row of its own, up to rounding. A prompt that forgets past steps begins otherwise and stays a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from seedbench.policy.prefill import pad_left

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.policy.decoding import Net

Ids = Sequence[int]


class Packed(NamedTuple):
    """A sequence, and for each row in it (row, where its completion starts and where it stops)."""

    ids: tuple[int, ...]
    spans: list[tuple[int, int, int]]


def pack(prompts: Sequence[Ids], completions: Sequence[Ids]) -> list[Packed]:
    """As few sequences as hold all rows; a row joins the longest one whose end its prompt goes on from."""
    packs: list[Packed] = []
    for row in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        prompt = tuple(prompts[row])
        ends = [k for k, p in enumerate(packs) if prompt[: len(p.ids)] == p.ids]
        at = max(ends, key=lambda k: len(packs[k].ids), default=len(packs))
        before = packs[at].spans if at < len(packs) else []
        whole = (*prompt, *completions[row])
        packs[at : at + 1] = [Packed(whole, [*before, (row, len(prompt), len(whole))])]
    return packs


def packed_logits(net: Net, prompts: Sequence[Ids], completions: Sequence[Ids], pad: int) -> tuple[Tensor, Tensor]:
    """What `completion_logits` gives for these rows: (N, V) logits and (N,) ids of the completions, row after row."""
    import torch

    packs = pack(prompts, completions)
    ids, mask = pad_left([p.ids for p in packs], pad, net.model.device)
    wanted = torch.zeros_like(mask, dtype=torch.bool)
    owner = torch.full_like(ids, -1)
    for k, p in enumerate(packs):
        left = ids.shape[1] - len(p.ids)
        for row, start, stop in p.spans:  # the logits that predict a token stand at the position before it
            wanted[k, left + start - 1 : left + stop - 1] = True
            owner[k, left + start - 1 : left + stop - 1] = row
    if net.selects_positions():
        logits = net.logits(ids, mask, keep=wanted)
    else:
        logits = net.logits(ids, mask, keep=ids.shape[1])[wanted]
    order = torch.argsort(owner[wanted], stable=True)
    return logits[order], ids.roll(-1, 1)[wanted][order]
