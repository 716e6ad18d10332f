"""The report of an experiment, from what is kept of its runs alone.

    python -m seedbench.baselines.report baselines/results/grpo-alfworld.json

Figures are fractions. A run counts as one observation: differences between arms are paired by seed and have a
t-interval over seeds. Against the start each run has an exact McNemar test on its tasks (with several trials a task, an
exact sign-flip test of trials won), adjusted over seeds (Holm). What else the environment measured, and how training
ended, is described beside it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro

from seedbench import stats
from seedbench.baselines.arms import AREA, FINAL, LAST, LATE, Arm, check, measured
from seedbench.baselines.plan import Plan
from seedbench.core import SeedbenchError

FEWEST = 3  # runs that an interval over runs takes


class Gap(NamedTuple):
    """Mean over pairs of seeds, its 95 % t-interval and two-sided p-value; the deviation of a single pair."""

    mean: float
    low: float
    high: float
    p: float
    sd: float
    n: int

    def __str__(self) -> str:
        if not self.n:
            return "no pair of runs"
        if not math.isfinite(self.p):
            return f"{self.mean:+.3f} (runs: {self.n}, too few or too much alike for an interval)"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}], p {self.p:.3g}"


def paired(first: Sequence[float], second: Sequence[float]) -> Gap:
    """Of first[i] - second[i], one number a seed."""
    from scipy.stats import t, ttest_1samp

    gaps = np.asarray(first, float) - np.asarray(second, float)
    n, mean = len(gaps), float(np.mean(gaps)) if len(gaps) else math.nan
    sd = float(np.std(gaps, ddof=1)) if n > 1 else math.nan
    if n < FEWEST or sd < 1e-12:  # two runs that happen to agree would have an interval of no width
        return Gap(mean, math.nan, math.nan, math.nan, sd, n)
    half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Gap(mean, mean - half, mean + half, float(ttest_1samp(gaps, 0.0).pvalue), sd, n)


def power(sd: float, pairs: int, effect: float, level: float = 0.05) -> float:
    """Chance that a two-sided paired t-test of `pairs` differences with deviation `sd` finds a mean of `effect`.

    By the noncentral t-distribution (Cohen 1988, ch. 2): T = (Z + shift) / S with shift = effect / sd * sqrt(pairs),
    averaged over quantiles of S, as scipy's nct is NaN far out.
    """
    from scipy.stats import chi2, norm, t

    if pairs < 2 or not sd > 0:
        raise ValueError("power needs two pairs or more and a deviation above 0")
    shift, free = effect / sd * math.sqrt(pairs), pairs - 1
    spread = np.sqrt(chi2.ppf((np.arange(2000) + 0.5) / 2000, free) / free)
    edge = float(t.ppf(1 - level / 2, free)) * spread
    return float(np.mean(norm.sf(edge - shift) + norm.cdf(-edge - shift)))


def pairs_needed(sd: float, effect: float, wanted: float = 0.8, level: float = 0.05) -> int:
    """Fewest pairs with which `power` reaches `wanted`."""
    n = 2
    while power(sd, n, effect, level) < wanted:
        n += 1
    return n


def detectable(sd: float, pairs: int, wanted: float = 0.8, level: float = 0.05) -> float:
    """The effect for which `power` is `wanted`."""
    from scipy.optimize import brentq

    return float(brentq(lambda effect: power(sd, pairs, effect, level) - wanted, 0.0, 20 * sd))


def difference(a: Arm, b: Arm, split: str) -> Gap:
    """a - b over the seeds that both have."""
    return _gap(a.rates(split), b.rates(split))


def _gap(first: Mapping[int, float], second: Mapping[int, float]) -> Gap:
    seeds = sorted(set(first) & set(second))
    return paired([first[s] for s in seeds], [second[s] for s in seeds])


def against_start(arm: Arm, start: Arm, split: str) -> list[tuple[int, int, int, float]]:
    """(seed, tasks on which the run won more trials, on which the start did, Holm's p) of every run."""
    rows, found = [], []
    for seed in sorted(set(arm.runs) & set(start.runs)):
        mine, other = arm.runs[seed][split], start.runs[seed][split]
        k = mine.get("trials", 1)
        gaps = [mine["won"][i : i + k].count("1") - other["won"][i : i + k].count("1")
                for i in range(0, len(mine["won"]), k)]  # fmt: skip
        rows.append((seed, sum(g > 0 for g in gaps), sum(g < 0 for g in gaps)))
        found.append(stats.sign_flip(gaps))  # with one trial a task McNemar's
    return [(*row, p) for row, p in zip(rows, stats.holm(found), strict=True)]


def write(path: Path, kept: Path) -> str:
    """Write report.md and curves.png into `kept`; returns the text."""
    plan = Plan.load(path)
    arms = {name: Arm(kept / name, plan.seeds) for name in ("start", *plan.arms)}
    text = "\n".join(
        [f"# {plan.title}", "", plan.question, "", f"Plan: {path.name}. {plan.analysis}", "", *_body(plan, arms)]
    )
    (kept / "report.md").write_text(text + "\n", encoding="utf-8")
    _draw(kept / "curves.png", {name: arm.curves for name, arm in arms.items() if arm.curves})
    return text


def _body(plan: Plan, arms: dict[str, Arm]) -> list[str]:
    check(arms)
    planned = [f"{name} {seed}" for name in arms for seed in plan.seeds]
    missing = [f"{name} {seed}" for name, arm in arms.items() for seed in plan.seeds if seed not in arm.runs]
    arms = {name: arm for name, arm in arms.items() if arm.runs}
    splits = [name for name in next(iter(arms["start"].runs.values())) if "*" not in name]
    more = measured(arms)
    heads = [*splits, AREA, *(f"score, {s}" for s in splits), "steps", "invalid", *(LATE.get(n, n) for n in more)]
    lines = ["| arm | runs | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for name, arm in arms.items():
        cells = [_mean(list(arm.rates(s).values())) for s in (*splits, AREA)]
        cells += [_mean([run[s]["score"] for run in arm.runs.values()]) for s in splits]
        last = [run[splits[-1]] for run in arm.runs.values()]
        cells += [f"{np.mean([x[k] for x in last]):.3g}" for k in ("steps", "invalid_rate")]
        cells += [_mean(list(arm.described(n).values())) for n in more]
        lines.append(f"| {name} | {len(arm.runs)} | " + " | ".join(cells) + " |")
    if missing:
        lines += [
            "",
            f"**Not whole**: of {len(planned)} planned runs {len(missing)} are missing: {', '.join(missing)}.",
        ]
    late = "".join(f" {LATE[n].capitalize()}: mean over the last {LAST} updates." for n in more if n in LATE)
    lines += [
        "",
        f"mean ± standard deviation over seeds; steps and invalid replies are those of the last split.{late}",
        "",
    ]
    for name in filter(arms.get, plan.arms):
        for split in splits:
            lines.append(f"- {name} - start, {split}: {difference(arms[name], arms['start'], split)}")
            each = against_start(arms[name], arms["start"], split)
            told = "; ".join(f"seed {seed}: +{b} -{c}, p {p:.2g}" for seed, b, c, p in each)
            many = any(run[split].get("trials", 1) > 1 for run in arms[name].runs.values())
            lines.append(f"  - exact {'sign-flip test' if many else 'McNemar'} of each run, Holm over seeds: {told}")
    others = [name for name in arms if plan.control in arms and name not in ("start", plan.control)]
    if others:
        lines += ["", f"Against {plan.control}, paired by seed:", ""]
    for split in (*splits, FINAL, AREA) if others else ():
        gaps = [difference(arms[name], arms[plan.control], split) for name in others]
        known = [g.p if math.isfinite(g.p) else 1.0 for g in gaps]
        for name, gap, p in zip(others, gaps, stats.holm(known), strict=True):
            lines.append(f"- {split}, {name}: {gap}, Holm {p:.3g}; sd of a pair {gap.sd:.3f}{_power(gap)}")
    if others and more:
        lines += ["", f"Described against {plan.control}, without claims:", ""]
    for name in others:
        gaps_of = [f"{LATE.get(n, n)} {_gap(arms[name].described(n), arms[plan.control].described(n))}" for n in more]
        lines += [f"- {name}: {'; '.join(gaps_of)}"] if gaps_of else []
    for one, other in (pair for pair in plan.contrasts if all(name in arms for name in pair)):
        gaps = [difference(arms[one], arms[other], split) for split in (FINAL, AREA)]
        adjusted = stats.holm([g.p if math.isfinite(g.p) else 1.0 for g in gaps])
        told = "; ".join(
            f"{split} {gap}, Holm {p:.3g}" for split, gap, p in zip((FINAL, AREA), gaps, adjusted, strict=True)
        )
        lines += ["", f"- {one} - {other}: {told}"]
    for name in filter(arms.get, plan.again):
        for split in (f"{split}*" for split in splits):
            found = [run[split]["won"] for run in arms[name].runs.values() if split in run]
            mean = _mean([won.count("1") / len(won) for won in found])
            lines += ["", f"- {name}, {split[:-1]}, played with {' '.join(plan.again[name])}: {mean}"]
    return lines


def _power(gap: Gap) -> str:
    """What this spread lets one see at 80 % power, at the 5 % level of a single test."""
    if not math.isfinite(gap.p):
        return ""
    return (f", with which {gap.n} pairs show {detectable(gap.sd, gap.n):.3f} at 80 % power, "
            f"and 0.10 takes {pairs_needed(gap.sd, 0.10)}")  # fmt: skip


def _mean(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def _draw(path: Path, curves: dict[str, dict[int, list[float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, max(1, len(curves)), figsize=(4 * max(1, len(curves)), 3), sharey=True,
                                   squeeze=False, layout="constrained")  # fmt: skip
    for axis, (name, runs) in zip(axes.flat, curves.items(), strict=False):
        for curve in runs.values():
            axis.plot(range(1, len(curve) + 1), curve, linewidth=0.8)
        axis.set(title=name, xlabel="update", ylabel="success of the update's episodes", ylim=(0, 1))
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(plan: Annotated[Path, tyro.conf.Positional]) -> None:
    """Write report.md and curves.png from what is kept of an experiment.

    Args:
        plan: The plan's file; what is kept lies in the folder of that name.
    """
    print(write(plan, plan.with_suffix("")))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except (SeedbenchError, OSError) as error:
        sys.exit(f"error: {error}")
