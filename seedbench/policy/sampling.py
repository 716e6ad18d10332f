"""One step of sampling: from logits to the distribution that is drawn from, and from one uniform number to a token.

Every row of a batch draws from its own random stream, so a batch's composition changes nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def log_distribution(logits: Tensor, temperature: float, top_p: float = 1.0) -> tuple[Tensor, Tensor]:
    """(n, V) logits to (n, V) fp32 natural-log probabilities of what is sampled from, and (n,) whether a row is usable.

    Temperature first, then top-p, then renormalisation. Temperature 0 means greedy: the log-softmax at temperature 1,
    with top-p left out, since a point mass would make every log-probability 0. A row that holds a NaN, a +inf or
    nothing but -inf is not usable; its values mean nothing.
    """
    import torch

    logits = logits.float()
    # The peak is taken off before the division: a tiny temperature then cannot overflow.
    peak = logits.amax(-1, keepdim=True)
    logp = torch.log_softmax((logits - peak) / (temperature or 1.0), -1)
    if temperature > 0 and top_p < 1:
        logp = _nucleus(logp, top_p)
    return logp, torch.isfinite(peak.squeeze(-1))


def _nucleus(logp: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most likely tokens whose mass reaches `top_p` (the one that crosses it included); renormalise."""
    ranked, order = logp.sort(stable=True, dim=-1, descending=True)
    mass = ranked.double().exp()
    before = mass.cumsum(-1) - mass
    far = before >= top_p
    dropped = far.scatter(-1, order, far)  # from rank order back to the order of ids
    logp = logp.masked_fill(dropped, -float("inf"))
    return logp - logp.logsumexp(-1, keepdim=True)


def uniforms(streams: Sequence[int], n: int) -> np.ndarray:
    """(len(streams), n) float64 numbers in [0, 1): row i is the first n of Philox keyed by streams[i]."""
    return np.stack([np.random.Generator(np.random.Philox(key=s)).random(n) for s in streams])


def draw(logp: Tensor, u: Tensor) -> Tensor:
    """(n, V) log-probabilities and (n,) float64 uniforms to (n,) token ids, by the inverse of the cumulative sum.

    Tokens lie in the order of their ids. The sum is float64 and its own last value stands for 1, so that rounding can
    never pick a token of probability 0.
    """
    import torch

    cdf = logp.double().exp().cumsum(-1)
    total = cdf[:, -1]
    target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cdf, target[:, None], right=True).squeeze(-1).clamp_(max=logp.shape[-1] - 1)
