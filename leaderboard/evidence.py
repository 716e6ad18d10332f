"""What one teacher-forced forward pass says about stored tokens: could this model, sampled as declared, have said them?

Everything here is a fact about one token, or a sum of such facts; which of them are findings is leaderboard.audit's
business. Rounding is bounded by one number: `noise`, the most by which a logit computed here may differ from the logit
computed where the run was played. A change of all logits by at most e moves the log-odds of any cumulative
probability by at most 2e / temperature, so every test below has a tolerance in log-odds, exact at any size of
vocabulary and at both tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.core import Sampling

if TYPE_CHECKING:
    from torch import Tensor

# The most that a logit may differ between a decode with a cache and a forward pass elsewhere, by number format.
# float32: 1e-5 was seen with tiny models on CPUs; half precision keeps 11 (float16) or 8 (bfloat16) bits of a logit.
NOISE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 0.25}
TILTS = tuple(s * 2.0**-k for k in range(6) for s in (1.0, -1.0) if s * 2.0**-k != -1)  # the exponents of `Surprise`
_CELLS = 1 << 24  # entries of a (tokens, V) float64 table in memory at a time: 128 MiB each, a handful at once
_NEVER = 25.0  # natural log: a token less likely than e^-25 / V is drawn in no run (once in 7e10 tokens at most)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about the m tokens of one completion: (m,) float64 arrays, and (m,) int64 ids in `expected`."""

    usable: np.ndarray  # bool: the logits are finite numbers
    gap: np.ndarray  # how far the token's logit lies below the highest one
    unlikely: np.ndarray  # how far the token's logit lies below the lowest one ever drawn; at most 0 is fine
    outside: np.ndarray  # log-odds by which the mass of likelier tokens exceeds top-p; at most 0 is fine
    miss: np.ndarray  # log-odds between the declared uniform number and the token's interval; 0 where it lies inside
    drift: np.ndarray  # |recorded - recomputed log-probability|
    surprise: np.ndarray  # log p + entropy: 0 on average, whatever the model
    variance: np.ndarray  # Var[log p] of the declared distribution
    cumulants: np.ndarray  # (m, len(TILTS)): log E[exp(tilt * surprise)]
    expected: np.ndarray  # the token that the stream draws (greedy: the most likely one)


def tolerance(noise: float, temperature: float) -> float:
    """Log-odds that rounding may explain."""
    return 2 * noise / (temperature or 1.0)


def weigh(
    logits: Tensor, ids: Tensor, recorded: np.ndarray, uniform: np.ndarray | None, sampling: Sampling, noise: float
) -> Evidence:
    """Facts about N tokens from the (N, V) logits that predict them.

    `recorded` (N,) are the stored log-probabilities, `uniform` (N,) the numbers that the declared streams drew with,
    or None where the engine's are not known.
    """
    size = max(1, _CELLS // logits.shape[-1])
    parts = []
    for start in range(0, len(ids), size):
        part = slice(start, start + size)
        u = None if uniform is None else uniform[part]
        parts.append(_weigh(logits[part], ids[part], recorded[part], u, sampling, noise))
    return Evidence(**{name: np.concatenate([p[name] for p in parts]) for name in Evidence.__dataclass_fields__})


def split(whole: Evidence, sizes: list[int]) -> list[Evidence]:
    """One Evidence a row, of `sizes` tokens each."""
    cuts = np.cumsum(sizes)[:-1]
    fields = {name: np.split(getattr(whole, name), cuts) for name in Evidence.__dataclass_fields__}
    return [Evidence(**{name: fields[name][i] for name in fields}) for i in range(len(sizes))]


def _weigh(
    logits: Tensor, ids: Tensor, recorded: np.ndarray, uniform: np.ndarray | None, sampling: Sampling, noise: float
) -> dict[str, Any]:
    import torch

    from seedbench.policy.sampling import draw, log_distribution

    heat, slack = sampling.temperature, tolerance(noise, sampling.temperature)
    logits = logits.float()
    logp, usable = log_distribution(logits, heat, sampling.top_p)
    chosen = _at(logp, ids)
    gap = (logits.amax(-1) - _at(logits, ids)).double()
    never = 2 * noise + heat * (math.log(logits.shape[-1]) + _NEVER)
    p, zero = logp.double().exp(), torch.zeros_like(gap)
    entropy = -_weighted(p, logp)
    out: dict[str, Any] = {"usable": usable, "gap": gap, "unlikely": gap - never if heat else zero}
    out["variance"] = (_weighted(p, logp * logp) - entropy**2).clamp(min=0)
    # A token that only rounding put outside the support says nothing about the average.
    out["surprise"] = torch.where(torch.isfinite(chosen), chosen.double() + entropy, zero)
    out["cumulants"] = torch.stack(
        [torch.logsumexp((1 + tilt) * logp, -1).double() + tilt * entropy for tilt in TILTS], -1
    )
    full = logp if sampling.top_p == 1 or not heat else log_distribution(logits, heat)[0]
    mass = _Masses(full.double(), ids, sampling.top_p if heat else 1.0, slack)
    out["outside"] = mass.outside
    out["drift"] = mass.drift(torch.from_numpy(recorded).to(ids.device))
    out["miss"], out["expected"] = zero, logp.argmax(-1)
    if uniform is not None and heat:
        u = torch.from_numpy(uniform).to(ids.device)
        out["miss"], out["expected"] = mass.miss(u), draw(logp, u)
    return {name: value.cpu().numpy() for name, value in out.items()}


def _at(table: Tensor, ids: Tensor) -> Tensor:
    return table.gather(-1, ids[:, None]).squeeze(-1)


def _weighted(p: Tensor, values: Tensor) -> Tensor:
    """Expectation of `values` under `p`, where a token of probability 0 counts nothing."""
    return (p * values.double()).masked_fill(p == 0, 0.0).sum(-1)


class _Masses:
    """The probability below (smaller ids), at and above each token, of tokens that are surely, or perhaps, in top-p.

    Rounding may have moved the cut, and the rank of tokens that are nearly alike; both are bounded, not guessed.
    """

    def __init__(self, full: Tensor, ids: Tensor, top_p: float, slack: float):
        """`full` (N, V) float64 log-probabilities before top-p."""
        import torch

        p = full.exp()
        sure, maybe, self.outside = torch.ones_like(p), torch.zeros_like(p), torch.full_like(p[:, 0], -math.inf)
        if top_p < 1:
            sure, maybe, outside = _nucleus(full, top_p, slack)
            self.outside = _at(outside, ids)
        self.own_logp, self.own = _at(full, ids), _at(p, ids)
        self.below, self.above = _around(p * sure, ids)
        self.perhaps_below, self.perhaps_above = _around(p * maybe, ids)

    def drift(self, recorded: Tensor) -> Tensor:
        """Distance from the recorded log-probability to those that are possible."""
        import torch

        least = self.own + self.below + self.above
        most = least + self.perhaps_below + self.perhaps_above
        low, high = self.own_logp - most.log(), self.own_logp - least.log()
        return torch.maximum(low - recorded, recorded - high).clamp(min=0.0).nan_to_num(nan=math.inf)

    def miss(self, u: Tensor) -> Tensor:
        """Distance in log-odds from `u` to the token's widest interval of the cumulative distribution."""
        import torch

        low = self.below / (self.below + self.own + self.above + self.perhaps_above)
        upto = self.below + self.perhaps_below + self.own
        high = upto / (upto + self.above)
        tiny = 1e-12  # float64 sums over a vocabulary are no better
        under = torch.logit((low - tiny).clamp(min=0.0)) - torch.logit((u + tiny).clamp(max=1.0))
        over = torch.logit((u - tiny).clamp(min=0.0)) - torch.logit((high + tiny).clamp(max=1.0))
        miss = torch.maximum(under.nan_to_num(nan=0.0), over.nan_to_num(nan=0.0)).clamp(min=0.0)
        return miss.masked_fill(self.own == 0, math.inf)


def _around(p: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of (N, V) `p` over ids below and above `ids`."""
    import torch

    upto = p.cumsum(-1)
    below = torch.where(ids > 0, _at(upto, (ids - 1).clamp(min=0)), torch.zeros_like(upto[:, 0]))
    return below, (upto[:, -1] - _at(upto, ids)).clamp(min=0.0)


def _nucleus(full: Tensor, top_p: float, slack: float) -> tuple[Tensor, Tensor, Tensor]:
    """(N, V) 0/1: in top-p whatever rounding did; in it or not; and by how much in log-odds a token is outside of it.

    The mass of all likelier tokens decides. It is least if those that are nearly as likely count as less likely.
    """
    import torch

    ranked, order = full.sort(stable=True, dim=-1, descending=True)
    p = ranked.exp()
    first = torch.cat([torch.zeros_like(p[:, :1]), p.cumsum(-1)], -1)  # mass of the first k tokens, k from 0
    least = first.gather(-1, torch.searchsorted(-ranked, -ranked - slack))
    most = first.gather(-1, torch.searchsorted(-ranked, -ranked + slack, right=True)) - p
    cut = math.log(top_p / (1 - top_p))
    outside = torch.logit(least.clamp(0.0, 1.0)) - cut
    sure = torch.logit(most.clamp(0.0, 1.0)) - cut < -slack
    maybe = (outside < slack) & ~sure
    back = torch.empty_like(order).scatter(
        -1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order)
    )
    return tuple(values.gather(-1, back) for values in (sure.double(), maybe.double(), outside))  # type: ignore[return-value]


@dataclass
class Surprise:
    """Are the tokens as likely as samples of this model are? Sums over a run or an episode.

    `z` = sum(log p + H) / sqrt(sum Var) is about standard normal for honest samples, but not where a model is nearly
    certain: there one rare token can be many deviations. `evidence` holds at any sample size: for every tilt t,
    exp(sum(t (log p + H) - log E exp(t (log p + H)))) is a non-negative martingale of mean 1, and so is their average;
    by Ville's inequality an honest run exceeds log(1/a) with probability at most a.
    """

    tokens: int = 0
    total: float = 0.0
    variance: float = 0.0
    exponents: np.ndarray = field(default_factory=lambda: np.zeros(len(TILTS)))

    def add(self, row: Evidence, rounding: float) -> None:
        """Add the tokens of one reply; `rounding` is the standard deviation of one log-probability's error."""
        self.tokens += len(row.surprise)
        self.total += math.fsum(row.surprise)
        self.variance += math.fsum(row.variance) + len(row.surprise) * rounding**2
        self.exponents += np.outer(TILTS, row.surprise).sum(1) - row.cumulants.sum(0)

    @property
    def z(self) -> float:
        return self.total / math.sqrt(self.variance) if self.variance else 0.0

    @property
    def evidence(self) -> float:
        """Natural log of the average martingale."""
        top = float(self.exponents.max())
        return top + math.log(math.fsum(np.exp(self.exponents - top)) / len(TILTS))
