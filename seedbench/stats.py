"""The statistics that are printed beside a result: intervals, pass^k, paired tests.

Pure Python and numpy. Every function is a function of its arguments alone: a bootstrap takes an integer seed, draws
from Philox words (whose stream numpy promises to keep) and looks at its clusters in sorted order, so that a file gives
one figure wherever and in whatever order it is read. Nothing is rounded. Input that has no answer (n = 0, x > n, NaN)
raises ValueError with one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

Interval = tuple[float, float]

_CHUNK = 2**20  # resampled clusters held in memory at a time: about 20 MB whatever the number of draws


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion, without continuity correction.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = successes/n (Wilson 1927; method 3 of Newcombe 1998,
    Statistics in Medicine 17:857). Unlike Wald's it has a width at 0 and at n.
    """
    _check_count(successes, n)
    z = _z(level)
    p, zz = successes / n, z * z
    middle = p + zz / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    scale = 1 + zz / n
    # At the ends the bound is exact, and rounding must not put it beside the proportion.
    low = 0.0 if successes == 0 else (middle - half) / scale
    high = 1.0 if successes == n else (middle + half) / scale
    return low, high


def newcombe(x1: int, n1: int, x2: int, n2: int, level: float = 0.95) -> Interval:
    """Interval for p1 - p2 of two independent samples: Newcombe's hybrid score, method 10, no continuity correction.

    With Wilson bounds (l, u) of each: (d - √((p1-l1)² + (u2-p2)²), d + √((u1-p1)² + (p2-l2)²)), d = p1 - p2
    (Newcombe 1998, Statistics in Medicine 17:873).
    """
    one, two = wilson(x1, n1, level), wilson(x2, n2, level)
    return difference(x1 / n1, one, x2 / n2, two)


def difference(mean1: float, ci1: Interval, mean2: float, ci2: Interval) -> Interval:
    """Newcombe's square-and-add rule for any two independent estimates with their intervals, of one level.

    Of two proportions with Wilson intervals this is `newcombe`; in general it is MOVER (Zou & Donner 2008, Statistics
    in Medicine 27:1693), which needs neither symmetric intervals nor equal methods.
    """
    for mean, (low, high) in ((mean1, ci1), (mean2, ci2)):
        if not low <= mean <= high:
            raise ValueError(f"a difference needs intervals that hold their means, and [{low}, {high}] lacks {mean}")
    gap = mean1 - mean2
    return gap - math.hypot(mean1 - ci1[0], ci2[1] - mean2), gap + math.hypot(ci1[1] - mean1, mean2 - ci2[0])


def newcombe_paired(both: int, first: int, second: int, neither: int, level: float = 0.95) -> Interval:
    """Interval for p1 - p2 of paired proportions: Newcombe's hybrid score, method 10 of the paired case.

    Of n tasks `both` were won by both agents, `first` by the first alone, and so on. Wilson bounds of each share are
    added as in `newcombe`, less twice their product times the correlation phi of the table, whose numerator
    ad - bc is lowered by n/2, not below 0, where it is positive (Newcombe 1998, Statistics in Medicine 17:2635).
    Unlike a bootstrap it has a width where one agent won everything and the other nothing.
    """
    n = both + first + second + neither
    won1, won2 = both + first, both + second
    (low1, high1), (low2, high2) = wilson(won1, n, level), wilson(won2, n, level)
    p1, p2 = won1 / n, won2 / n
    cross = both * neither - first * second
    margins = won1 * (n - won1) * won2 * (n - won2)
    phi = (max(cross - n / 2, 0) if cross > 0 else cross) / math.sqrt(margins) if margins else 0.0

    def half(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))

    gap = p1 - p2
    return max(-1.0, gap - half(p1 - low1, high2 - p2)), min(1.0, gap + half(high1 - p1, p2 - low2))


def cluster_mean(clusters: Sequence[Sequence[float]] | np.ndarray) -> float:
    """The mean over all trials, sum of sums / sum of sizes: what `cluster_bootstrap` puts an interval around."""
    table = _cluster_table(clusters)
    return math.fsum(table[:, 0]) / math.fsum(table[:, 1])


def cluster_bootstrap(
    clusters: Sequence[Sequence[float]] | np.ndarray, seed: int, draws: int = 10_000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap over tasks of the mean over trials (Efron 1979; clusters: Field & Welsh 2007).

    A cluster is all trials of one task. Each draw takes as many clusters as there are, with replacement, and divides
    the sum of their sums by the sum of their sizes, so that unequal trials weigh right. One cluster, or equal
    ones, give an interval without width: it says that the sample shows no variance, not that there is none.

    Args:
        clusters: one sequence of trials a task, or an array [tasks, trials].
        seed: of this figure's own stream, 0 <= seed < 2**128.
    """
    table = _cluster_table(clusters)
    _check_draws(draws, level)
    if (table == table[0]).all():
        return (mean := table[0, 0] / table[0, 1]), mean
    equal = bool((table[:, 1] == table[0, 1]).all())
    means = np.empty(draws)
    at = 0
    for index in _resamples(len(table), seed, draws):
        size = index.shape[1] * table[0, 1] if equal else table[index, 1].sum(axis=1)
        means[at : at + len(index)] = table[index, 0].sum(axis=1) / size
        at += len(index)
    return _percentiles(means, level)


class Paired(NamedTuple):
    """mean(a) - mean(b) over the same tasks, its interval, and a two-sided p-value of "no difference"."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    seed: int,
    draws: int = 10_000,
    level: float = 0.95,
) -> Paired:
    """Percentile bootstrap over tasks of mean(a - b), where a[i] and b[i] are two agents' (mean) scores on task i.

    p = 2 min(#{d* <= 0} + 1, #{d* >= 0} + 1) / (draws + 1), at most 1: the level at which the percentile interval
    begins to hold 0 (Efron & Tibshirani 1993, ch. 15-16; the +1 keeps it above 0, Davison & Hinkley 1997, 4.2).
    """
    if len(a) != len(b):
        raise ValueError(f"a paired bootstrap needs the same tasks on both sides, not {len(a)} and {len(b)} of them")
    _check_draws(draws, level)
    gaps = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    if gaps.ndim != 1 or not gaps.size or not np.isfinite(gaps).all():
        raise ValueError("a paired bootstrap needs one finite number a task and at least one task")
    gaps = np.sort(gaps)
    difference = math.fsum(gaps) / len(gaps)
    if gaps[0] == gaps[-1]:
        return Paired(gaps[0].item(), gaps[0].item(), gaps[0].item(), 1.0 if gaps[0] == 0 else 2 / (draws + 1))
    means = np.concatenate([gaps[index].mean(axis=1) for index in _resamples(len(gaps), seed, draws)])
    fewer = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return Paired(difference, *_percentiles(means, level), min(1.0, 2 * (fewer + 1) / (draws + 1)))


def pass_hat_k(c: Sequence[int], n: Sequence[int] | int, k: int) -> float:
    """pass^k: the chance that k trials of a task all succeed, mean over tasks of C(c, k) / C(n, k).

    c[i] successes in n[i] trials of task i; unbiased (Yao et al. 2024, tau-bench). Refuses tasks with n < k.
    """
    return _mean([math.comb(x, k) / math.comb(m, k) for x, m in _trials(c, n, k)])


def pass_at_k(c: Sequence[int], n: Sequence[int] | int, k: int) -> float:
    """pass@k: the chance that at least one of k trials succeeds, mean over tasks of 1 - C(n-c, k) / C(n, k).

    Unbiased (Chen et al. 2021, arXiv:2107.03374, eq. 1). Refuses tasks with n < k.
    """
    return _mean([1 - math.comb(m - x, k) / math.comb(m, k) for x, m in _trials(c, n, k)])


def mcnemar_exact(b: int, c: int) -> float:
    """Exact two-sided McNemar test: p of b tasks won by the first agent alone and c by the second alone.

    min(1, 2 Σ_{i <= min(b, c)} C(b+c, i) / 2^(b+c)), the binomial test of b in b + c at one half (McNemar 1947).
    Tasks that both win or both lose say nothing; without discordant tasks p = 1.
    """
    if b < 0 or c < 0:
        raise ValueError(f"McNemar's test needs two counts of discordant tasks, not {b} and {c}")
    term = total = 1
    for i in range(min(b, c)):
        term = term * (b + c - i) // (i + 1)  # C(b+c, i+1), exact in integers
        total += term
    return min(1.0, 2 * total / 2 ** (b + c))


def sign_flip(gaps: Sequence[int]) -> float:
    """Exact two-sided sign-flip test of whole numbers: P(|S| >= |Σ gaps|), each gap's sign tossed by a fair coin.

    If two agents are alike, either could have had the other's result on any task (Fisher 1935, ch. 3; Pitman 1937).
    With gaps of -1, 0 and 1 it is the exact McNemar test; with several trials a task, a gap is the difference of trials
    won. The distribution of S comes from its characteristic function, the product of cos(t g) over gaps, by one FFT: p
    is good to about 1e-12, whatever the number of tasks.
    """
    sizes = np.abs(np.asarray(gaps, dtype=np.int64))
    most, seen = int(sizes.sum()), abs(int(np.asarray(gaps, dtype=np.int64).sum()))
    if seen == 0:
        return 1.0
    unit = int(np.gcd.reduce(sizes))  # of 3 trials each, say, gaps may all be multiples of 3
    sizes, most, seen = sizes // unit, most // unit, seen // unit
    n = 1 << (2 * most + 1).bit_length()  # points of a circle on which no two sums meet
    angle = 2 * np.pi * np.arange(n // 2 + 1) / n
    chances = np.ones(n // 2 + 1)
    for size, count in zip(*np.unique(sizes[sizes > 0], return_counts=True), strict=True):
        chances *= np.cos(angle * size) ** count
    upper = np.fft.irfft(chances, n)[seen : most + 1]  # S = seen, ..., most; symmetric, so the lower tail is as heavy
    return min(1.0, max(0.0, 2 * math.fsum(upper)))


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given: max over p no larger of (m - rank + 1) p (Holm 1979)."""
    if not all(0 <= p <= 1 for p in pvalues):
        raise ValueError("Holm's adjustment needs p-values in [0, 1]")
    adjusted, worst = [0.0] * len(pvalues), 0.0
    for rank, i in enumerate(sorted(range(len(pvalues)), key=lambda i: pvalues[i])):
        worst = max(worst, min(1.0, (len(pvalues) - rank) * pvalues[i]))
        adjusted[i] = worst
    return adjusted


def _resamples(n: int, seed: int, draws: int) -> Iterator[np.ndarray]:
    """Blocks [some draws, n] of indices in [0, n); together `draws` rows, the same ones however they are blocked.

    An index is the high half of (32 random bits x n): its bias is below n / 2**32. numpy's own bounded integers may
    change between versions, the raw words of a bit generator may not.
    """
    words = (n + 1) // 2  # 64 random bits give two indices; every draw starts at a fresh word
    source = np.random.Philox(key=seed)
    rows = max(1, _CHUNK // n)
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        raw = source.random_raw(count * words).astype("<u8").reshape(count, words).view("<u4")[:, :n]
        yield ((raw.astype(np.uint64) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def _cluster_table(clusters: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    """Rows (sum, size), one a cluster, sorted so that the order in which tasks are listed cannot matter."""
    rows = sorted((math.fsum(cluster), float(len(cluster))) for cluster in clusters)
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    if not len(table) or not table[:, 1].all():
        raise ValueError("a mean over tasks needs at least one task, and at least one trial of each")
    if not np.isfinite(table).all():
        raise ValueError("a mean over tasks needs finite numbers, and one of these is NaN or infinite")
    return table


def _percentiles(means: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _trials(c: Sequence[int], n: Sequence[int] | int, k: int) -> list[tuple[int, int]]:
    """Pairs (successes, trials), one a task, checked."""
    pairs = list(zip(c, [n] * len(c) if isinstance(n, int) else n, strict=True))
    if not pairs or k < 1:
        raise ValueError(f"pass^k and pass@k need at least one task and k >= 1, not {len(pairs)} tasks and k = {k}")
    for successes, trials in pairs:
        if trials < k:
            raise ValueError(f"k = {k} needs at least {k} trials of every task, and one has {trials}")
        _check_count(successes, trials)
    return pairs


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _check_count(successes: int, n: int) -> None:
    for value in (successes, n):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"a proportion needs whole numbers, not {value!r}")
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"a proportion needs 0 <= successes <= n and n > 0, not {successes} of {n}")


def _check_draws(draws: int, level: float) -> None:
    if draws < 1:
        raise ValueError(f"a bootstrap needs at least one draw, not {draws}")
    _z(level)


def _z(level: float) -> float:
    """The two-sided normal quantile of a confidence level."""
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies strictly between 0 and 1, unlike {level}")
    return NormalDist().inv_cdf((1 + level) / 2)
