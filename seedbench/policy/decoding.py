"""Batched decoding and scoring with any transformers causal LM: KV cache, rows that leave when they finish.

Prompts are padded on the left. Position ids count real tokens only, so a row does not depend on its neighbours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.core import Sampling, SeedbenchError
from seedbench.policy.prefill import pad_left, prefill
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
    done: dict[int, Generation | SeedbenchError] = {}
    filled = prefill(net, prompts, pad, budget)
    while filled:
        rows, cache, mask, logits = filled.pop(0)  # so that a part's cache is freed when it is done
        draws = None if u is None else u[rows]
        done.update(zip(rows, _continue(net, cache, mask, logits, draws, sampling, stops), strict=True))
    return [done[i] for i in range(len(prompts))]


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
    net: Net, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float, pad: int,
    read: Callable[..., tuple[Tensor, Tensor]] = completion_logits,
) -> list[Tensor]:  # fmt: skip
    """Log-probabilities of given completions in one forward pass: one (len(completion),) fp32 tensor a row.

    Differentiable, so that a trainer can use it too. Temperature as in `log_distribution` (0 scores at 1). A row
    without a usable distribution has NaN there.
    """
    logits, targets = read(net, prompts, completions, pad)
    logits, _ = tempered(logits, temperature)
    chosen = logits.gather(-1, targets[:, None]).squeeze(-1) - logits.logsumexp(-1)
    return list(chosen.split([len(c) for c in completions]))
