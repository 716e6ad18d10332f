"""One step of sampling: from logits to the distribution that is drawn from, and from one uniform number to a token.

Every row of a batch draws from its own random stream, so a batch's composition changes nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


COLDEST, HOTTEST = 2.0**-126, 2.0**126  # beyond these a temperature or its reciprocal is no normal fp32 number


def tempered(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(n, V) logits to fp32 ones with the temperature taken out and their peak at 0, and (n,) whether a row is usable.

    Temperature 0 leaves them at temperature 1. One outside [COLDEST, HOTTEST] counts as the nearer bound: at COLDEST
    all mass is on the most likely token (shared where several are exactly equal), at HOTTEST all tokens that are not
    masked are alike.
    """
    import torch

    logits = logits.float()
    # The peak is taken off before the division: a tiny temperature then cannot overflow.
    peak = logits.detach().amax(-1, keepdim=True)
    scale = min(max(temperature, COLDEST), HOTTEST) if temperature else 1.0
    return (logits - peak) / scale, torch.isfinite(peak.squeeze(-1))


def log_distribution(logits: Tensor, temperature: float, top_p: float = 1.0) -> tuple[Tensor, Tensor]:
    """(n, V) logits to (n, V) fp32 natural-log probabilities of what is sampled from, and (n,) whether a row is usable.

    Temperature first, then top-p, then renormalisation. Temperature 0 means greedy: the log-softmax at temperature 1,
    with top-p left out, since a point mass would make every log-probability 0. (A tiny temperature that is not 0 does
    give that point mass: see `tempered`.) A row that holds a NaN, a +inf or nothing but -inf is not usable; its values
    mean nothing.
    """
    import torch

    scaled, usable = tempered(logits, temperature)
    logp = torch.log_softmax(scaled, -1)
    if temperature > 0 and top_p < 1:
        logp = _nucleus(logp, top_p)
    return logp, usable


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
