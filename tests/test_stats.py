"""Intervals and tests against published values, hand-computed ones and scipy."""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap, norm, permutation_test

from seedbench import stats

counts = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("x", "n", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_published(x, n, low, high):
    assert stats.wilson(x, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_at_the_ends():
    low, high = stats.wilson(134, 134)
    assert low == pytest.approx(134 / (134 + 1.959963984540054**2), abs=1e-12) and round(low, 3) == 0.972
    assert high == 1.0
    assert stats.wilson(0, 134) == pytest.approx((0.0, 1 - low), abs=1e-12)


@given(counts, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(count, level):
    x, n = count
    theirs = binomtest(x, n).proportion_ci(confidence_level=level, method="wilson")
    assert stats.wilson(x, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@given(counts)
def test_wilson_properties(count):
    x, n = count
    low, high = stats.wilson(x, n)
    assert 0 <= low <= x / n <= high <= 1 and low < high
    assert stats.wilson(n - x, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    wide = stats.wilson(x, n, 0.99)
    assert wide[0] <= low and high <= wide[1]
    if x < n:
        more = stats.wilson(x + 1, n)
        assert more[0] > low and more[1] > high
    twice = stats.wilson(2 * x, 2 * n)
    assert twice[1] - twice[0] < high - low


def test_resolution_of_the_splits():
    """Half-widths at 80 % that the protocol states: 6.9, 6.7, 6.6 and 3.5 points."""
    for n, half in ((128, 6.9), (134, 6.7), (140, 6.6), (500, 3.5)):
        low, high = stats.wilson(round(0.8 * n), n)
        assert 100 * (high - low) / 2 == pytest.approx(half, abs=0.1)


@pytest.mark.parametrize(
    ("args", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:873, table II, method 10.
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_published(args, low, high):
    assert stats.newcombe(*args) == pytest.approx((low, high), abs=5.1e-5)


@given(counts, counts)
def test_newcombe_is_antisymmetric_and_holds_the_difference(one, two):
    low, high = stats.newcombe(*one, *two)
    assert low <= one[0] / one[1] - two[0] / two[1] <= high
    assert stats.newcombe(*two, *one) == pytest.approx((-high, -low), abs=1e-12)


@given(counts, counts)
def test_newcombe_equals_the_rule_over_scipys_wilson(one, two):
    """The square-and-add rule, from scipy's own Wilson bounds."""
    (x1, n1), (x2, n2) = one, two
    a, b = (binomtest(x, n).proportion_ci(method="wilson") for x, n in (one, two))
    d = x1 / n1 - x2 / n2
    low = d - math.sqrt((x1 / n1 - a.low) ** 2 + (b.high - x2 / n2) ** 2)
    high = d + math.sqrt((a.high - x1 / n1) ** 2 + (x2 / n2 - b.low) ** 2)
    assert stats.newcombe(*one, *two) == pytest.approx((low, high), abs=1e-9)


def test_difference_takes_any_intervals_and_refuses_impossible_ones():
    low, high = 0.25 - math.hypot(0.3, 0.3), 0.25 + math.hypot(0.1, 0.12)
    assert stats.difference(0.5, (0.2, 0.6), 0.25, (0.13, 0.55)) == pytest.approx((low, high), abs=1e-12)
    for bad in ((0.5, (0.6, 0.7), 0.1, (0.0, 0.2)), (0.5, (0.4, 0.6), math.nan, (0.0, 0.2))):
        with pytest.raises(ValueError, match="hold their means"):
            stats.difference(*bad)


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17:2635, table III, method 10: both, first alone, second alone, neither.
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((20, 12, 2, 16), 0.0562, 0.3292),
        ((18, 12, 2, 18), 0.0562, 0.3290),
        ((36, 14, 0, 0), 0.1528, 0.4167),
        ((35, 14, 0, 1), 0.1461, 0.4175),
        ((18, 14, 0, 18), 0.1441, 0.3963),
        ((2, 97, 1, 0), 0.8721, 0.9854),
        ((1, 97, 1, 1), 0.8736, 0.9850),
        ((0, 30, 0, 0), 0.8395, 1.0),
        ((54, 0, 0, 0), -0.0664, 0.0664),
        ((30, 0, 0, 24), -0.0358, 0.0358),
    ],
)
def test_newcombe_paired_published(cells, low, high):
    assert stats.newcombe_paired(*cells) == pytest.approx((low, high), abs=8e-5)  # .87367 is printed as .8736


@given(st.tuples(*[st.integers(0, 60)] * 4).filter(any))
def test_newcombe_paired_is_antisymmetric_and_holds_the_difference(cells):
    both, first, second, neither = cells
    low, high = stats.newcombe_paired(*cells)
    gap = (first - second) / sum(cells)
    assert -1 <= low < high <= 1 and low - 1e-12 <= gap <= high + 1e-12
    assert stats.newcombe_paired(both, second, first, neither) == pytest.approx((-high, -low), abs=1e-12)
    assert stats.newcombe_paired(neither, second, first, both) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize("bad", [(0, 0), (5, 4), (-1, 4), (math.nan, 4), (0.5, 4), (True, 4)])
def test_proportions_refuse_nonsense(bad):
    with pytest.raises(ValueError, match="proportion"):
        stats.wilson(*bad)
    with pytest.raises(ValueError, match="proportion"):
        stats.newcombe(1, 2, *bad)


@pytest.mark.parametrize("level", [0, 1, -0.1, math.nan])
def test_levels_are_checked(level):
    with pytest.raises(ValueError, match="level"):
        stats.wilson(1, 2, level)
    with pytest.raises(ValueError, match="level"):
        stats.cluster_bootstrap([[1.0], [0.0]], 0, level=level)


def test_bootstrap_equals_scipy_within_monte_carlo_error():
    scores = np.random.default_rng(7).beta(0.5, 0.8, size=134)
    theirs = bootstrap(
        (scores,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    ours = stats.cluster_bootstrap(scores[:, None], seed=3, draws=20_000)
    # The standard error of a 2.5 % quantile of N(m, s²) from 20,000 draws is 0.019 s, of the gap of two 0.027 s.
    tolerance = 4 * 0.027 * scores.std() / math.sqrt(len(scores))
    assert ours == pytest.approx((theirs.low, theirs.high), abs=tolerance)


def test_bootstrap_of_clusters_of_equal_trials_is_wider_than_of_trials_taken_for_tasks():
    clusters = [[float(i % 2)] * 8 for i in range(50)]  # trials of a task always agree
    flat = [[x] for cluster in clusters for x in cluster]
    wide, narrow = (b[1] - b[0] for b in (stats.cluster_bootstrap(c, 1) for c in (clusters, flat)))
    assert wide / narrow == pytest.approx(math.sqrt(8), rel=0.1)


def test_bootstrap_is_a_ratio_of_sums():
    """Two clusters, sizes 1 and 3: the four draws give 1, 1/4, 1/4 and 0, never the mean of means."""
    clusters = [[1.0], [0.0, 0.0, 0.0]]
    assert stats.cluster_mean(clusters) == 0.25
    assert stats.cluster_bootstrap(clusters, 5, level=0.4) == (0.25, 0.25)
    assert stats.cluster_bootstrap(clusters, 5) == (0.0, 1.0)


def test_bootstrap_against_full_enumeration():
    """Three tasks: all 27 resamples listed; 10 % and 90 % quantiles lie on atoms well inside their steps."""
    values = [0.0, 0.3, 0.9]
    means = sorted((a + b + c) / 3 for a in values for b in values for c in values)
    low, high = stats.cluster_bootstrap([[v] for v in values], 11, draws=40_000, level=0.8)
    assert low == pytest.approx(means[2], abs=1e-12) and high == pytest.approx(means[23], abs=1e-12)


def test_resamples_are_uniform_and_independent_of_blocks(monkeypatch):
    whole = np.concatenate(list(stats._resamples(7, 42, 30_000)))
    monkeypatch.setattr(stats, "_CHUNK", 100)
    assert (np.concatenate(list(stats._resamples(7, 42, 30_000))) == whole).all()
    seen = np.bincount(whole.ravel(), minlength=7)
    assert seen.size == 7 and ((seen - 30_000) ** 2 / 30_000).sum() < 27.9  # chi², 6 df, p = 1e-4
    assert (np.concatenate(list(stats._resamples(7, 43, 30_000))) != whole).any()


def test_bootstrap_is_pinned():
    """A change of these figures changes every published interval."""
    low, high = stats.cluster_bootstrap([[i / 10] for i in range(11)], seed=2024)
    assert (low, high) == pytest.approx((0.3181818181818182, 0.6909090909090909), abs=1e-12)


def test_bootstrap_of_many_tasks_stays_small():
    values = np.random.default_rng(0).random((100_000, 1))
    tracemalloc.start()
    began = time.process_time()
    low, high = stats.cluster_bootstrap(values, seed=1, draws=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert low < values.mean() < high
    assert peak < 120e6, f"{peak / 1e6:.0f} MB"
    assert time.process_time() - began < 20


clusters_of_any_size = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(clusters_of_any_size, st.integers(0, 2**53 - 1), st.randoms(use_true_random=False))
def test_bootstrap_properties(clusters, seed, shuffler):
    low, high = stats.cluster_bootstrap(clusters, seed, draws=500)
    mean = stats.cluster_mean(clusters)
    assert low - 1e-12 <= mean <= high + 1e-12 and low >= 0 and high <= 1
    assert stats.cluster_bootstrap(clusters, seed, draws=500) == (low, high)
    mixed = [shuffler.sample(c, len(c)) for c in shuffler.sample(clusters, len(clusters))]
    assert stats.cluster_bootstrap(mixed, seed, draws=500) == (low, high)


@pytest.mark.parametrize("bad", [[], [[]], [[1.0], []], [[math.nan]], [[math.inf, 0.0]]])
def test_bootstrap_refuses(bad):
    with pytest.raises(ValueError, match="mean over tasks"):
        stats.cluster_bootstrap(bad, 0)


def test_paired_bootstrap_by_hand():
    same = stats.paired_bootstrap([0.5, 1.0, 0.0], [0.5, 1.0, 0.0], 0)
    assert same == (0.0, 0.0, 0.0, 1.0)
    apart = stats.paired_bootstrap([1.0] * 20, [0.0] * 20, 0, draws=999)
    assert apart == (1.0, 1.0, 1.0, 0.002)
    # Two tasks, gaps +1 and -1: draws give -1, 0, 0, 1, so both tails hold 3/4 and p is 1.
    level = stats.paired_bootstrap([1.0, 0.0], [0.0, 1.0], 0)
    assert level == (0.0, -1.0, 1.0, 1.0)


def test_paired_bootstrap_swaps_sign_and_agrees_with_the_normal_test():
    rng = np.random.default_rng(5)
    a, b = rng.random(400), rng.random(400) - 0.04
    one, two = stats.paired_bootstrap(a, b, 9, draws=20_000), stats.paired_bootstrap(b, a, 10, draws=20_000)
    assert one.difference == pytest.approx(np.mean(a - b), abs=1e-12)
    se = np.std(a - b, ddof=1) / 20
    assert one.low < one.difference < one.high
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low), abs=0.1 * se)
    assert one.p == pytest.approx(2 * norm.sf(abs(one.difference) / se), abs=0.02)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [0.0])])
def test_paired_bootstrap_refuses(a, b):
    with pytest.raises(ValueError, match="paired bootstrap"):
        stats.paired_bootstrap(a, b, 0)


def test_pass_k_by_hand():
    c = [4, 2, 1, 0]  # of 4 trials
    # C(c,k)/C(4,k): k=1 1, 1/2, 1/4, 0 · k=2 1, 1/6, 0, 0 · k=3 1, 0, 0, 0 · k=4 1, 0, 0, 0
    assert [stats.pass_hat_k(c, 4, k) for k in (1, 2, 3, 4)] == pytest.approx([7 / 16, 7 / 24, 1 / 4, 1 / 4])
    # 1 - C(4-c,k)/C(4,k): k=2 1, 5/6, 1/2, 0 · k=3 1, 1, 3/4, 0 · k=4 1, 1, 1, 0
    assert [stats.pass_at_k(c, 4, k) for k in (1, 2, 3, 4)] == pytest.approx([7 / 16, 7 / 12, 11 / 16, 3 / 4])
    assert stats.pass_hat_k([2, 3], [2, 5], 2) == pytest.approx((1 + 3 / 10) / 2)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_pass_k_is_monotone(c):
    hats = [stats.pass_hat_k(c, 6, k) for k in range(1, 7)]
    ats = [stats.pass_at_k(c, 6, k) for k in range(1, 7)]
    assert hats == sorted(hats, reverse=True) and ats == sorted(ats)
    assert hats[0] == pytest.approx(ats[0], abs=1e-12) and hats[0] == pytest.approx(sum(c) / 6 / len(c), abs=1e-12)


def test_pass_k_refuses():
    for function in (stats.pass_hat_k, stats.pass_at_k):
        with pytest.raises(ValueError, match="3 trials of every task, and one has 2"):
            function([1, 1], [3, 2], 3)
        for bad in (([], 4, 1), ([1], 4, 0), ([5], 4, 1), ([1, 1], [4], 1)):
            with pytest.raises(ValueError):
                function(*bad)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_equals_scipy(b, c):
    theirs = binomtest(b, b + c).pvalue if b + c else 1.0
    assert stats.mcnemar_exact(b, c) == pytest.approx(theirs, rel=1e-9)


def test_mcnemar_by_hand():
    assert stats.mcnemar_exact(0, 5) == 2 / 32
    assert stats.mcnemar_exact(1, 6) == 2 * 8 / 128
    assert stats.mcnemar_exact(3, 3) == stats.mcnemar_exact(0, 0) == 1.0
    assert 0 <= stats.mcnemar_exact(20_000, 21_000) < 1e-5  # Search-QA's size, still exact
    with pytest.raises(ValueError, match="counts"):
        stats.mcnemar_exact(-1, 2)


def test_holm_by_hand():
    # sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04; the running maximum lifts the last to .06
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.6]) == [1.0, 1.0] and stats.holm([]) == [] and stats.holm([0.2]) == [0.2]
    for bad in ([1.1], [math.nan], [-0.1]):
        with pytest.raises(ValueError, match="p-values"):
            stats.holm(bad)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_only_raises_and_keeps_the_order(pvalues):
    adjusted = stats.holm(pvalues)
    assert all(p <= q <= 1 for p, q in zip(pvalues, adjusted, strict=True))
    order = sorted(range(len(pvalues)), key=lambda i: pvalues[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 20))
def test_sign_flips_of_ones_are_mcnemar(b, c, ties):
    assert stats.sign_flip([1] * b + [-1] * c + [0] * ties) == pytest.approx(stats.mcnemar_exact(b, c), abs=1e-11)
    assert stats.sign_flip([35] * b + [-35] * c) == pytest.approx(stats.mcnemar_exact(b, c), abs=1e-11)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_sign_flips_equal_counting_every_toss(gaps):
    tosses = list(itertools.product((-1, 1), repeat=len(gaps)))
    far = sum(abs(sum(s * g for s, g in zip(t, gaps, strict=True))) >= abs(sum(gaps)) for t in tosses)
    assert stats.sign_flip(gaps) == pytest.approx(far / len(tosses), abs=1e-11)


def test_sign_flips_equal_scipy_and_stay_fast():
    gaps = np.random.default_rng(3).integers(-3, 5, size=12)
    theirs = permutation_test((gaps,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert stats.sign_flip(gaps) == pytest.approx(theirs, abs=1e-11)
    many = np.random.default_rng(4).integers(-9, 10, size=50_000)
    began = time.process_time()
    z = abs(many.sum()) / math.sqrt((many.astype(float) ** 2).sum())
    assert stats.sign_flip(many) == pytest.approx(2 * norm.sf(z), abs=0.01)
    assert time.process_time() - began < 5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_holm_equals_closed_testing_by_bonferroni(pvalues):
    """Holm's is the closed test: a hypothesis' p is the largest over all sets that hold it of size times least p."""
    m = len(pvalues)
    for i, adjusted in enumerate(stats.holm(pvalues)):
        sets = [[j for j in range(m) if mask >> j & 1] for mask in range(1 << m) if mask >> i & 1]
        assert adjusted == pytest.approx(max(min(1.0, len(s) * min(pvalues[j] for j in s)) for s in sets), abs=1e-12)


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
def test_pass_k_equals_counting_every_choice_of_trials(case):
    c, n, k = case
    choices = list(itertools.combinations([1] * c + [0] * (n - c), k))
    assert stats.pass_hat_k([c], n, k) == pytest.approx(sum(map(all, choices)) / len(choices), abs=1e-12)
    assert stats.pass_at_k([c], n, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_paired_bootstrap_against_full_enumeration():
    """Three tasks: all 27 resamples of the gaps listed; quantiles lie on atoms well inside their steps."""
    gaps = [0.0, 0.3, 0.9]
    means = sorted((a + b + c) / 3 for a in gaps for b in gaps for c in gaps)
    found = stats.paired_bootstrap(gaps, [0.0] * 3, 11, draws=40_000, level=0.8)
    assert (found.low, found.high) == pytest.approx((means[2], means[23]), abs=1e-9)
    assert found.p == pytest.approx(2 / 27, abs=0.01), "one of 27 draws has a mean of 0"
