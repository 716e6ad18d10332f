"""The board: entries joined by agent, one table an exam, floors and ceiling beside the ranked.

An exam is an environment, a data set and everything of the protocol but the sampling, which is the agent's own choice:
figures of different exams never stand in one table. Within one, an agent's entries (several training seeds, say) are
one row.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seedbench import stats
from seedbench.core import SeedbenchError, stream
from seedbench.leaderboard.entered import ROLES, Entered, exam_of
from seedbench.leaderboard.outcomes import Outcomes
from seedbench.leaderboard.rank import Contender, Standing, ranks
from seedbench.record import canonical
from seedbench.results import KindRate, Result

SPLITS = ("seen", "unseen", "paper", "dev", "train")
SEEDS_FOR_SD = 3  # the deviation of two numbers says next to nothing


@dataclass(frozen=True)
class Cell:
    """An agent's figures on one split. `why` says why there is no rank; `sd` is over training seeds."""

    split: str
    mean: float
    ci: tuple[float, float]
    tasks: int
    attempted: int
    kinds: Mapping[str, Mapping[str, KindRate]]  # by entry, by kind
    seeds: int
    sd: float | None
    marks: tuple[str, ...] = ()
    standing: Standing | None = None
    why: str = ""


@dataclass(frozen=True)
class Row:
    """One agent in one exam. `gap` is seen - unseen with its interval, None without both."""

    name: str
    role: str
    outside: str
    cells: Mapping[str, Cell]
    gap: tuple[float, float, float] | None
    seeds: tuple[int, ...]
    selection: str
    level: str
    findings: tuple[str, ...]
    ids: tuple[str, ...]
    facts: Mapping[str, str]
    privileged: bool


@dataclass(frozen=True)
class Table:
    """One exam: ranked rows by success on the last of its splits, then those outside the ranking."""

    env: str
    data: str
    exam: Mapping[str, Any]
    splits: tuple[str, ...]
    rows: tuple[Row, ...]
    missing: tuple[str, ...]  # floors and ceiling that nobody has played


def tables(entries: Iterable[Entered], env: str | None = None) -> list[Table]:
    """Every exam's table, by environment and data set. `env` shows one environment, by its Gymnasium id; its
    ranks stay those of the whole board, whose other environments they are adjusted for."""
    exams: dict[str, tuple[Result, dict[str, Any], dict[tuple[str, ...], list[tuple[Entered, Result]]]]] = {}
    for entry in sorted(entries, key=lambda e: e.id):
        for result in entry.results.results:
            exam = exam_of(entry.results, result.env)
            name = canonical([result.env, result.data, exam])
            _, _, rows = exams.setdefault(name, (result, exam, {}))
            rows.setdefault(entry.key(), []).append((entry, result))
    standings = {split: ranks(_contenders(exams, split)) for split in SPLITS}
    found = []
    for name, (first, exam, rows) in sorted(exams.items()):
        if env not in (None, first.env):
            continue
        made = [_row(parts, lambda split, n=name: standings[split].get(n, {})) for parts in rows.values()]
        splits = tuple(s for s in SPLITS if any(s in row.cells for row in made))
        main = [s for s in splits if s in ("seen", "unseen")] or list(splits)

        def order(row: Row, splits: Sequence[str] = main[::-1]) -> tuple[Any, ...]:
            place = {"agent": 1 if row.outside else 0, "ceiling": 2, "floor": 3}[row.role]
            return place, [-row.cells[s].mean if s in row.cells else 1 for s in splits], row.name

        kinds = {row.name for row in made} | {str(r.facts.get("kind")) for r in made}
        missing = tuple(k for k in ROLES if k not in kinds)
        found.append(Table(first.env, first.data, exam, splits, tuple(sorted(made, key=order)), missing))
    return found


def _contenders(exams: Mapping[str, Any], split: str) -> dict[str, dict[str, Contender]]:
    """Who is ranked on a split, by exam and row. Outcomes of other tasks than most played stay out."""
    found: dict[str, dict[str, Contender]] = {}
    for name, (_, _, rows) in exams.items():
        fits = {key: _pooled(parts, split) for key, parts in rows.items() if not _why(parts, split)}
        pools = {key: pool for key, pool in fits.items() if pool is not None}
        if pools:
            tasks = _majority(pool[0] for pool in pools.values())
            found[name] = {
                canonical(list(key)): Contender(list(wins), trials)
                for key, (digest, wins, trials) in pools.items()
                if digest == tasks
            }
    return found


def _majority(digests: Iterable[str]) -> str:
    return min(Counter(digests).items(), key=lambda item: (-item[1], item[0]))[0]


def _pooled(parts: Sequence[tuple[Entered, Result]], split: str) -> tuple[str, tuple[int, ...], int] | None:
    """Task digest, wins a task and trials over all entries of a row; None where tasks differ among them."""
    mine = [_outcomes(entry, result) for entry, result in parts if result.split == split]
    held = [o for o in mine if o is not None]
    if not held or len(held) < len(mine) or len({o.tasks for o in held}) > 1:
        return None
    wins = tuple(sum(column) for column in zip(*(o.counts for o in held), strict=True))
    return held[0].tasks, wins, sum(o.trials for o in held)


def _outcomes(entry: Entered, result: Result) -> Outcomes | None:
    """An entry's outcomes on one split; None where it has none, or they do not give the success rate it states."""
    for o in entry.outcomes:
        if (o.env, o.split) == (result.env, result.split):
            won = sum(o.counts) / (o.trials * len(o.wins))
            agrees = len(o.wins) == result.tasks and o.trials * len(o.wins) == result.attempted
            return o if agrees and abs(won - result.success.mean) < 1e-12 else None
    return None


def _why(parts: Sequence[tuple[Entered, Result]], split: str) -> str:
    """Why a row has no rank on a split: the first reason of its entries, "" if it may have one."""
    mine = [(entry, result) for entry, result in parts if result.split == split]
    for entry, result in mine:
        if why := entry.outside():
            return why
        if result.partial:
            return "partial: only the first tasks of the split were played"
    return "" if _pooled(parts, split) else "no outcomes that agree with its figures"


def _row(parts: Sequence[tuple[Entered, Result]], standings: Any) -> Row:
    entries = list({entry.id: entry for entry, _ in parts}.values())
    first = entries[0]
    cells = {}
    for split in dict.fromkeys(result.split for _, result in parts):
        standing = standings(split).get(canonical(list(first.key())))
        if standing is not None:
            standing = standing._replace(leader=json.loads(standing.leader)[0])
        why = "" if standing else _why(parts, split) or "other tasks than the rest of the table"
        cells[split] = _cell([(e, r) for e, r in parts if r.split == split], split, standing, why)
    gap = None
    if "seen" in cells and "unseen" in cells:
        seen, unseen = cells["seen"], cells["unseen"]
        gap = (seen.mean - unseen.mean, *stats.difference(seen.mean, seen.ci, unseen.mean, unseen.ci))
    levels = {entry.level for entry in entries}
    return Row(
        name=first.name,
        role=first.role,
        outside=next((why for e in entries if (why := e.outside())), ""),
        cells=cells,
        gap=gap,
        seeds=tuple(sorted({seed for entry in entries for seed in entry.seeds})),
        selection=first.results.selection or "",
        level=levels.pop() if len(levels) == 1 else "mixed",
        findings=tuple(finding for entry in entries for finding in entry.findings),
        ids=tuple(entry.id for entry in entries),
        facts={"kind": str(first.results.agent.get("kind", "")), **first.facts},
        privileged=any(bool(entry.results.agent.get("needs_env")) for entry in entries),
    )


def _cell(parts: Sequence[tuple[Entered, Result]], split: str, standing: Standing | None, why: str) -> Cell:
    """One entry's figures as it states them; of several, the mean over all, bootstrapped over tasks."""
    results = [result for _, result in parts]
    first = results[0]
    marks = [mark for mark, on in (("partial", first.partial), ("unpinned", not first.pinned)) if on]
    by_seed: dict[tuple[int, ...], list[float]] = {}
    for entry, result in parts:
        by_seed.setdefault(entry.seeds or (-1,), []).append(result.success.mean)
    means = [statistics.fmean(values) for values in by_seed.values()]
    mean, ci = first.success.mean, first.success.ci
    if len(results) > 1:
        pool = _pooled(parts, split)
        if pool is None:
            raise SeedbenchError(
                f"{parts[0][0].name} has {len(parts)} entries on {first.env} {split} whose outcomes cannot be joined: "
                f"give them different names, or verify {', '.join(entry.id for entry, _ in parts)} again."
            )
        _, wins, trials = pool
        mean = sum(wins) / (trials * len(wins))
        clusters = [[1.0] * won + [0.0] * (trials - won) for won in wins]
        ci = stats.cluster_bootstrap(clusters, stream("board", first.env, split, *(e.id for e, _ in parts)))
        if ci[0] == ci[1]:  # all alike: a bootstrap has no width there
            ci = stats.wilson(round(mean * len(wins)), len(wins))
    return Cell(
        split=split,
        mean=mean,
        ci=ci,
        tasks=first.tasks,
        attempted=sum(result.attempted for result in results),
        kinds={entry.id: result.by_kind for entry, result in parts},
        seeds=len(means),
        sd=statistics.stdev(means) if len(means) >= SEEDS_FOR_SD else None,
        marks=tuple(marks),
        standing=standing,
        why=why,
    )
