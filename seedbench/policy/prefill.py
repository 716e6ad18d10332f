"""Reading prompts into the key-value cache: every token once where prompts are alike.

Prompts of one environment begin with the same system message, and those of one task are often equal (the eight first
prompts of a group always are). So equal prompts are read once and their cache rows copied, and what all prompts of a
call begin with is read as one row. Results are those of reading each prompt whole, up to the rounding of sums: on 896
ALFWorld prompts of a tiny policy log-probabilities of the next token differed by 7e-6 at most over the whole
vocabulary, and one of 6,053 sampled tokens was another (of probability 2e-6, where the draw fell on the boundary).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.policy.decoding import Net

SHARED = 8  # a shorter common beginning is not worth a pass of its own
# On a CPU activations of more tokens leave its caches: attention over 64 rows of 250 took 1.8 times that over 4 x 16.
CPU_TOKENS = 4096


class Filled(NamedTuple):
    """Prompts that are read: `rows` are their places in what was asked for."""

    rows: list[int]
    cache: Any
    mask: Tensor  # (n, t), 1 where the cache holds a real token
    logits: Tensor  # (n, V) of the next token


def prefill(net: Net, prompts: Sequence[Sequence[int]], pad: int, budget: int, share: bool = True) -> list[Filled]:
    """Read `prompts` (longest first), at most `budget` tokens with padding in one pass.

    One batch where the model's cache can be joined, else one a pass. `share=False` reads every prompt whole, as the
    reference that tests compare with.
    """
    import torch

    if net.model.device.type == "cpu":
        budget = min(budget, CPU_TOKENS)
    places: dict[tuple[int, ...], list[int]] = {}
    for i, prompt in enumerate(prompts):
        places.setdefault(tuple(prompt) if share else (i,), []).append(i)
    distinct = [prompts[rows[0]] for rows in places.values()]
    common = _common(distinct) if share and len(distinct) > 1 and net.mergeable() else 0
    start = _read(net, [distinct[0][:common]], pad)[0] if common else None
    parts = list(by_budget([len(p) - common for p in distinct], budget))
    filled = [_read(net, [p[common:] for p in distinct[part]], pad, start) for part in parts]
    if len(parts) > 1 and net.mergeable():
        parts, filled = [slice(0, len(distinct))], [_merge(filled)]
    result = []
    for part in parts:
        cache, mask, logits = filled.pop(0)
        copies = [(k, row) for k, rows in enumerate(list(places.values())[part]) for row in rows]
        rows = [row for _, row in copies]
        if len(copies) > len(mask):
            index = torch.tensor([k for k, _ in copies], device=mask.device)
            cache.batch_select_indices(index)
            mask, logits = mask[index], logits[index]
        result.append(Filled(rows, cache, mask, logits))
    return result


def _common(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all of them begin with; each keeps one at least, whose logits are wanted. 0 if too few."""
    ordered = [tuple(p) for p in prompts]
    first, last = min(ordered), max(ordered)  # what the extremes of the order share, all between them share
    n = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    n = min(n, min(map(len, prompts)) - 1)
    return n if n >= SHARED else 0


def _read(net: Net, rows: Sequence[Sequence[int]], pad: int, start: Any = None) -> tuple[Any, Tensor, Tensor]:
    """The cache, mask (n, t) and next-token logits (n, V) after reading `rows` behind the one row in cache `start`."""
    import torch

    ids, mask = pad_left(rows, pad, net.model.device)
    cache = net.new_cache()
    if start is not None:
        for k, layer in enumerate(start.layers):
            cache.update(layer.keys.expand(len(rows), -1, -1, -1), layer.values.expand(len(rows), -1, -1, -1), k)
        mask = torch.cat([mask.new_ones(len(rows), start.get_seq_length()), mask], -1)
    return cache, mask, net.logits(ids, mask, cache)[:, -1]


def _merge(filled: list[tuple[Any, Tensor, Tensor]]) -> tuple[Any, Tensor, Tensor]:
    """Join prefills into one batch: shorter ones get more padding on the left, which the mask hides."""
    import torch
    from torch.nn.functional import pad

    width = max(mask.shape[1] for _, mask, _ in filled)
    short = [width - mask.shape[1] for _, mask, _ in filled]
    whole = filled[0][0]
    for k, layer in enumerate(whole.layers):
        # (n, heads, t, head size) of each part; taken out of the part at once, so that memory is held only once
        for name in ("keys", "values"):
            tensors = [
                pad(getattr(c.layers[k], name), (0, 0, s, 0)) for (c, _, _), s in zip(filled, short, strict=True)
            ]
            setattr(layer, name, torch.cat(tensors))
        for cache, _, _ in filled[1:]:
            cache.layers[k].keys = cache.layers[k].values = None
    masks = [pad(mask, (s, 0)) for (_, mask, _), s in zip(filled, short, strict=True)]
    return whole, torch.cat(masks), torch.cat([logits for _, _, logits in filled])


def pad_left(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Tensor, Tensor]:
    """Rows of ids to (n, longest) ids and a 0/1 mask of the same shape, real tokens at the right."""
    import torch

    width = max(len(row) for row in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, width - len(row) :] = row
        mask[i, width - len(row) :] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def by_budget(lengths: Sequence[int], budget: int) -> Iterator[slice]:
    """Cut rows, sorted longest first, into slices of at most `budget` tokens, padding counted; one row at least."""
    start = 0
    while start < len(lengths):
        size = max(1, budget // max(1, lengths[start]))
        yield slice(start, min(start + size, len(lengths)))
        start += size
