"""Batched decoding and scoring with any transformers causal LM: prefill, KV cache, rows that leave when they finish.

Prompts are padded on the left. Position ids count real tokens only, so a row does not depend on its neighbours.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.core import Sampling, SeedbenchError
from seedbench.policy.sampling import draw, log_distribution, tempered

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sampled for one prompt; the end-of-turn token, if one came, is the last id."""

    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # natural log of the distribution that was sampled from, one an id
    finish_reason: str  # "stop" or "length"


class Net:
    """A model behind the few calls that decoding needs, whatever its forward() calls its arguments."""

    def __init__(self, model: Any):
        accepted = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed the argument and drops the old name in 5.40.
        self.cache_name = "cache" if "cache" in accepted else "past_key_values"
        if self.cache_name not in accepted:
            raise SeedbenchError(
                f"{type(model).__name__} keeps no key-value cache; use a causal language model that has one."
            )
        self.model = model
        self.has_positions = "position_ids" in accepted
        self.keeps_logits = "logits_to_keep" in accepted
        self._selects: bool | None = None

    def new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def mergeable(self) -> bool:
        """Whether caches of several prefills can be joined: every layer stores all positions."""
        from transformers.cache_utils import DynamicLayer

        return all(type(layer) is DynamicLayer for layer in self.new_cache().layers)

    def logits(self, ids: Tensor, mask: Tensor, cache: Any = None, keep: Any = 1) -> Tensor:
        """Logits at the last `keep` positions of (n, t) ids, or where a boolean (n, t) `keep` is true."""
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": cache is not None}
        if cache is not None:
            given[self.cache_name] = cache
        if self.has_positions:
            given["position_ids"] = (mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        if self.keeps_logits:
            return self.model(**given, logits_to_keep=keep).logits
        logits = self.model(**given).logits
        return logits[:, -keep:] if isinstance(keep, int) else logits[keep]

    def selects_positions(self) -> bool:
        """Whether forward() computes logits at single positions of each row (tried once on four tokens)."""
        if self._selects is None:
            import torch

            ids = torch.zeros((2, 2), dtype=torch.long, device=self.model.device)
            keep = torch.tensor([[True, True], [False, True]], device=ids.device)
            try:
                with torch.no_grad():
                    self._selects = self.logits(ids, torch.ones_like(ids), keep=keep).shape[:-1] == (3,)
            except (IndexError, TypeError, RuntimeError):  # how an architecture without it fails is not specified
                self._selects = False
        return self._selects


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


def decode(
    net: Net,
    prompts: Sequence[Sequence[int]],
    u: np.ndarray | None,
    sampling: Sampling,
    stops: frozenset[int],
    pad: int,
    budget: int,
) -> list[Generation | SeedbenchError]:
    """Continue every prompt (longest first); `u` is (n, max_new_tokens) uniforms, None is greedy.

    At most `budget` prompt tokens, padding counted, are read in one forward pass; the parts then decode as one batch
    where the cache can be joined.
    """
    parts = list(by_budget([len(p) for p in prompts], budget))
    filled = [_prefill(net, prompts[part], pad) for part in parts]
    if len(parts) > 1 and net.mergeable():
        parts, filled = [slice(0, len(prompts))], [_merge(filled)]
    done: list[Generation | SeedbenchError] = []
    for part in parts:
        draws = None if u is None else u[part]
        done += _continue(net, *filled.pop(0), draws, sampling, stops)
    return done


def _prefill(net: Net, prompts: Sequence[Sequence[int]], pad: int) -> tuple[Any, Tensor, Tensor]:
    """The cache, mask (n, t) and next-token logits (n, V) after reading `prompts`."""
    ids, mask = pad_left(prompts, pad, net.model.device)
    cache = net.new_cache()
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


def _continue(
    net: Net,
    cache: Any,
    mask: Tensor,
    logits: Tensor,
    u: np.ndarray | None,
    sampling: Sampling,
    stops: frozenset[int],
) -> list[Generation | SeedbenchError]:
    """The decode loop over one batch whose prompts are in the cache. A finished row's cache is dropped at once."""
    import torch

    n, limit = len(mask), sampling.max_new_tokens
    ids: list[list[int]] = [[] for _ in range(n)]
    logps: list[list[float]] = [[] for _ in range(n)]
    done: list[Generation | SeedbenchError | None] = [None] * n
    alive = list(range(n))
    uniform = None if u is None else torch.from_numpy(u).to(mask.device)
    for t in range(limit):
        logp, usable = log_distribution(logits, sampling.temperature, sampling.top_p)
        token = logp.argmax(-1) if uniform is None else draw(logp, uniform[:, t])
        chosen = logp.gather(-1, token[:, None]).squeeze(-1)
        keep = []
        for i, (row, tok, lp, ok) in enumerate(
            zip(alive, token.tolist(), chosen.tolist(), usable.tolist(), strict=True)
        ):
            if not ok:
                done[row] = _not_finite(t)
                continue
            ids[row].append(tok)
            logps[row].append(lp)
            if tok in stops or t + 1 == limit:
                reason = "stop" if tok in stops else "length"
                done[row] = Generation(tuple(ids[row]), tuple(logps[row]), reason)
            else:
                keep.append(i)
        if not keep:
            break
        if len(keep) < len(alive):
            index = torch.tensor(keep, device=mask.device)
            cache.batch_select_indices(index)
            mask, token = mask[index], token[index]
            uniform = None if uniform is None else uniform[index]
            alive = [alive[i] for i in keep]
        mask = torch.cat([mask, mask.new_ones(len(keep), 1)], -1)
        logits = net.logits(token[:, None], mask, cache)[:, -1]
    return [g for g in done if g is not None]


def _not_finite(t: int) -> SeedbenchError:
    return SeedbenchError(
        f"The model gave logits that are not finite numbers at new token {t + 1}; "
        "load it with --dtype float32, or check its weights for NaN."
    )


def completion_logits(
    net: Net, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], pad: int
) -> tuple[Tensor, Tensor]:
    """(N, V) logits that predict the N tokens of all completions, row after row, and (N,) the ids of those tokens.

    One forward pass. Logits are computed at completion positions only; where the architecture cannot pick positions,
    at the last max(len(completion)) + 1 positions of every row.
    """
    import torch

    rows = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
    sizes = [len(c) for c in completions]
    ids, mask = pad_left(rows, pad, net.model.device)
    width, longest = ids.shape[1], max(sizes)
    # The logits that predict a completion of m tokens stand at the m positions before the last one.
    column = torch.arange(width, device=ids.device)
    wanted = (column >= width - 1 - torch.tensor(sizes, device=ids.device)[:, None]) & (column < width - 1)
    if net.selects_positions():
        logits = net.logits(ids, mask, keep=wanted)
    else:
        logits = net.logits(ids, mask, keep=longest + 1)[wanted[:, -longest - 1 :]]
    return logits, ids.roll(-1, 1)[wanted]


def token_logprobs(
    net: Net, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float, pad: int
) -> list[Tensor]:
    """Log-probabilities of given completions in one forward pass: one (len(completion),) fp32 tensor a row.

    Differentiable, so that a trainer can use it too. Temperature as in `log_distribution` (0 scores at 1). A row
    without a usable distribution has NaN there.
    """
    logits, targets = completion_logits(net, prompts, completions, pad)
    logits, _ = tempered(logits, temperature)
    chosen = logits.gather(-1, targets[:, None]).squeeze(-1) - logits.logsumexp(-1)
    return list(chosen.split([len(c) for c in completions]))
