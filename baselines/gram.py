"""Signal and direction of gradients of independent batches, from their dot products alone.

With g_b the gradient of batch b, b = 1..N, and m its expectation:

    |m|^2        by the mean of g_b . g_c over pairs b != c: noise of different batches has no common part, so unbiased
    signal share |m|^2 / E|g|^2, the denominator by the mean of g_b . g_b
    cosine       of two terms' expectations f and m, by the means of f_b . g_c, b != c, over the roots of both |m|^2

A mean over pairs b != c is the mean over all ways to split the batches in disjoint halves, so noise that two terms
share within a batch (they are computed on the same tokens) is no alignment. Errors are those of a bootstrap over
batches in which a pair of copies of the same batch is left out; where there is little or no signal it is too wide
rather than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedbench.core import stream

DRAWS = 2000
UNDEFINED = 0.05  # share of draws without an answer (a root of a negative estimate) above which there is no interval


class Figure(NamedTuple):
    """An estimate with the standard deviation and the 95 % percentile interval of its bootstrap; None: not determined.

    `undefined` is the share of draws that had no answer.
    """

    value: float | None
    error: float | None
    low: float | None
    high: float | None
    undefined: float

    def __str__(self) -> str:
        if self.value is None:
            return "not determined"
        if self.low is None:
            return f"{self.value:+.3f} [not determined]"
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def gram(gradients: Sequence[np.ndarray]) -> np.ndarray:
    """(N, K, P) float32 gradients of K terms to all (K, N, K, N) dot products, in float64."""
    table = np.stack(gradients).swapaxes(0, 1)
    K, N, P = table.shape
    flat = table.reshape(K * N, P)
    result = np.zeros((K * N, K * N))
    for start in range(0, P, 4096):  # in float64 a piece at a time
        piece = flat[:, start : start + 4096].astype(np.float64)
        result += piece @ piece.T
    return result.reshape(K, N, K, N)


def extended(dots: np.ndarray, terms: Sequence[str], differences: Mapping[str, tuple[str, str]]) -> np.ndarray:
    """(K, N, K, N) dot products, and those of the differences of two terms each after them: (K + D, N, K + D, N)."""
    ways = np.eye(len(terms))
    more = [ways[terms.index(a)] - ways[terms.index(b)] for a, b in differences.values()]
    whole = np.concatenate([ways, np.reshape(more, (len(more), len(terms)))])
    return np.asarray(np.einsum("ia,anbm,jb->injm", whole, dots, whole, optimize=True))


def resamples(n: int, seed: int, draws: int = DRAWS) -> np.ndarray:
    """(1 + draws, n) how often each batch counts: once each, then drawn with replacement."""
    rng = np.random.default_rng(stream("gram", seed))
    return np.concatenate([np.ones((1, n)), rng.multinomial(n, [1 / n] * n, size=draws)])


def apart(dots: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean of (N, N) dot products over pairs of different batches, for each row of (D, N) weights: (D,)."""
    squares = weights**2
    pairs = weights.sum(1) ** 2 - squares.sum(1)
    total = ((weights @ dots) * weights).sum(1) - squares @ np.diag(dots)
    with np.errstate(divide="ignore", invalid="ignore"):
        return total / pairs


def figure(values: np.ndarray) -> Figure:
    """From (1 + draws,) values, the first of which is the estimate."""
    known = values[1:][np.isfinite(values[1:])]
    undefined = 1 - len(known) / max(1, len(values) - 1)
    value = float(values[0]) if np.isfinite(values[0]) else None
    if undefined > UNDEFINED or not len(known):
        return Figure(value, None, None, None, undefined)
    low, high = np.quantile(known, [0.025, 0.975])
    return Figure(value, float(known.std()), float(low), float(high), undefined)


def report(
    dots: np.ndarray, terms: Sequence[str], seed: int, lambdas: Sequence[float], first: str = "pg"
) -> dict[str, dict[str, Figure]]:
    """By term: `signal` share, `norm` (root of the mean square), `cosine` with each other term, and beside `first`
    its size: `size@LAMBDA` of single batches' norms, `mean_size@LAMBDA` of the expectations'."""
    weights = resamples(dots.shape[1], seed)
    n = weights.sum(1)
    mean_square = {a: weights @ np.diag(dots[i, :, i]) / n for i, a in enumerate(terms)}
    between = {(a, b): apart(dots[i, :, j], weights) for i, a in enumerate(terms) for j, b in enumerate(terms)}
    with np.errstate(divide="ignore", invalid="ignore"):
        root = {a: np.sqrt(np.where(between[a, a] > 0, between[a, a], np.nan)) for a in terms}
        found: dict[str, dict[str, Figure]] = {}
        for a in terms:
            values = {"signal": between[a, a] / mean_square[a], "norm": np.sqrt(mean_square[a])}
            values |= {f"cosine:{b}": between[a, b] / (root[a] * root[b]) for b in terms if b != a}
            if a != first and first in terms:
                for weight in lambdas:
                    values[f"size@{weight:g}"] = weight * np.sqrt(mean_square[a] / mean_square[first])
                    values[f"mean_size@{weight:g}"] = weight * root[a] / root[first]
            found[a] = {name: figure(some) for name, some in values.items()}
    return found


def packed(dots: np.ndarray) -> list[float]:
    """The lower triangle of the (K N, K N) matrix, row by row, to eight digits."""
    size = math.prod(dots.shape[:2])
    return [float(f"{x:.8g}") for x in dots.reshape(size, size)[np.tril_indices(size)]]


def unpacked(values: Sequence[float], terms: int) -> np.ndarray:
    """What `packed` was given, (K, N, K, N)."""
    size = (math.isqrt(8 * len(values) + 1) - 1) // 2
    lower = np.zeros((size, size))
    lower[np.tril_indices(size)] = values
    whole = lower + np.tril(lower, -1).T
    return whole.reshape(terms, size // terms, terms, size // terms)


def plain(found: Mapping[str, Mapping[str, Figure]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """`report`'s figures as JSON holds them."""
    return {a: {name: f._asdict() for name, f in some.items()} for a, some in found.items()}


def lines(one: Mapping[str, Any], beside: Sequence[str]) -> Iterator[str]:
    """Text of the figures of one checkpoint of signal.py's file, with the cosines with the terms `beside`."""
    mean = {k: float(np.mean([b[k] for b in one["batches"]])) for k in one["batches"][0]}
    wide = max(map(len, one["figures"]))
    read = f"parse rate {mean['parse_rate']:.3f}, " if "parse_rate" in mean else ""
    yield (f"{one['model']}: {len(one['batches'])} batches, success {mean['success']:.3f}, {read}"
           f"rows with an advantage {mean['with_advantage']:.3f}")  # fmt: skip
    sizes = [f"|{w:g} term|/|pg|" for w in one["lambdas"]]
    yield " ".join([f"{'term':{wide}} {'signal share':26}", *(f"{f'cosine with {b}':26}" for b in beside), "coverage",
                    *(f"{s:>15}" for s in sizes)])  # fmt: skip
    for term, figures in one["figures"].items():
        known = {name: Figure(**f) for name, f in figures.items()}
        cells = [str(known[n]) if n in known else "-" for n in ("signal", *(f"cosine:{b}" for b in beside))]
        large = [known[f"size@{w:g}"].value for w in one["lambdas"] if f"size@{w:g}" in known]
        covered = f"{mean[f'coverage:{term}']:.3f}" if f"coverage:{term}" in mean else "-"
        yield " ".join([f"{term:{wide}}", *(f"{c:26}" for c in cells), f"{covered:8}",
                        *(f"{'-' if s is None else format(s, '.4f'):>15}" for s in large)])  # fmt: skip
    for name in ("weight_mean", "weight_capped", "teacher_agrees"):
        if told := {key.split(":")[1]: value for key, value in mean.items() if key.startswith(f"{name}:")}:
            yield f"{name}: " + ", ".join(f"{term} {value:.3f}" for term, value in told.items())
