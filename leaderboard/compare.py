"""Two runs of one exam, task by task: paired tests, and the tasks that one won and the other lost.

The figures of two agents that played the same tasks are not independent: what tells them apart are the tasks on which
they differ. Success is tested by exact McNemar (with several trials a task by the sign-flip test), score by
a paired bootstrap; p-values are adjusted by Holm over all environments and splits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbench import record, stats
from seedbench.core import SeedbenchError, stream
from seedbench.leaderboard.entered import exam_of
from seedbench.leaderboard.outcomes import Paired, paired
from seedbench.record import Record
from seedbench.results import Result, Results
from seedbench.results import load as load_results
from seedbench.view import clipped, short

Kinds = Mapping[str, str]


@dataclass(frozen=True)
class Side:
    """One of the two: its name, folder and results."""

    name: str
    folder: Path
    results: Results

    def lines(self) -> Iterator[Record]:
        return record.read_lines(self.folder / "trajectories.jsonl.gz")


@dataclass(frozen=True)
class Played:
    """Tasks of one environment and split as one side played them: trials won and scores, by task in file order."""

    wins: dict[str, int]
    scores: dict[str, float]  # means over trials
    trials: int


@dataclass(frozen=True)
class Part:
    """One environment and split, or one kind of its tasks. `p` is Holm-adjusted over whole splits, raw for a kind."""

    env: str
    split: str
    kind: str  # "" for the whole split
    tasks: int
    means: tuple[float, float]
    difference: tuple[float, float, float]  # of the means, with its interval
    test: Paired
    p: float
    score: tuple[float, float, float] | None
    score_p: float | None  # None where no score lies between 0 and 1


@dataclass(frozen=True)
class Flip:
    """A task that one side won more often; `better` is 0 or 1."""

    env: str
    split: str
    task: str
    kind: str
    better: int
    trial: int  # the first whose outcomes differ, or else the first


@dataclass(frozen=True)
class Comparison:
    sides: tuple[Side, Side]
    parts: list[Part]
    flips: list[Flip]
    kinds_known: bool

    def transcripts(self, most: int | None = None) -> Iterator[tuple[Flip, Record, Record]]:
        """Flipped tasks with the lines of both sides, long texts cut; only the first `most`, taken in file order."""
        wanted = {(f.env, f.split, f.task, f.trial): f for f in self.flips[:most]}
        if wanted:
            found = [dict(_lines_of(side, wanted)) for side in self.sides]
            for key, flip in wanted.items():
                yield flip, found[0][key], found[1][key]


def compare(first: Path, second: Path) -> Comparison:
    """Pair two finished runs (run folders or entry folders).

    Raises SeedbenchError where a folder is neither, or the two did not play the same tasks of the same exam.
    """
    sides = _open(first), _open(second)
    names = [side.name for side in sides]
    if names[0] == names[1]:
        sides = tuple(Side(str(side.folder), side.folder, side.results) for side in sides)  # type: ignore[assignment]
    pairs = _pairs(*sides)
    played = [_played(side) for side in sides]
    kinds = _kinds(sides, pairs)
    parts, flips = [], []
    for result, _ in pairs:
        where = result.env, result.split
        one, two = (_of(p, where, side) for p, side in zip(played, sides, strict=True))
        if list(one.wins) != list(two.wins):
            lacking = sorted(set(one.wins) ^ set(two.wins))
            raise SeedbenchError(
                f"{sides[0].folder} and {sides[1].folder} did not play the same tasks of {short(where[0])} {where[1]}"
                f"{f' ({lacking[0]} is in one of them only)' if lacking else ' in the same order'}: "
                "play both with the same --split and --limit."
            )
        of = kinds.get(where, {})
        if not of.keys() >= one.wins.keys():
            kinds = {}  # these data hold other tasks
        of = {task: of[task] for task in one.wins} if kinds else {}
        parts.append(_part(where, "", list(one.wins), one, two))
        for kind in sorted(set(of.values())):
            parts.append(_part(where, kind, [task for task in one.wins if of[task] == kind], one, two))
        flips += _flips(where, one, two, of)
    whole = [i for i, part in enumerate(parts) if not part.kind]
    for i, p in zip(whole, stats.holm([parts[i].test.p for i in whole]), strict=True):
        parts[i] = Part(**{**vars(parts[i]), "p": p})
    flips = _with_trials(flips, sides) if any(p.trials > 1 for side in played for p in side.values()) else flips
    return Comparison(sides, parts, flips, bool(kinds))


def _open(folder: Path) -> Side:
    if (folder / "entry.json").is_file() and not (folder / "results.json").is_file():
        from seedbench.leaderboard.entry import Entry

        entry = Entry.loads((folder / "entry.json").read_bytes(), str(folder / "entry.json"))
        return Side(entry.agent.name, folder, entry.results)
    results = load_results(folder)
    return Side(str(results.agent.get("spec", folder.name)), folder, results)


def _pairs(a: Side, b: Side) -> list[tuple[Result, Result]]:
    """The environments and splits of both. Raises SeedbenchError where they are not those of one exam."""
    theirs = {(r.env, r.split): r for r in b.results.results}
    mine = {(r.env, r.split): r for r in a.results.results}
    if only := sorted(set(mine) ^ set(theirs)):
        env, split = only[0]
        raise SeedbenchError(
            f"{a.folder} and {b.folder} did not play the same: {short(env)} {split} is in one of them only; "
            "play both with the same --env and --split."
        )
    for (env, split), result in mine.items():
        one, two = exam_of(a.results, env), exam_of(b.results, env)
        one, two = {**one, "data": result.data}, {**two, "data": theirs[env, split].data}
        if changed := [k for k in {**one, **two} if one.get(k) != two.get(k)]:
            raise SeedbenchError(
                f"{a.folder} and {b.folder} took different exams in {short(env)}: {', '.join(changed)} differ, so that "
                "their figures cannot be compared; play one of them again as the other was."
            )
    return [(mine[key], theirs[key]) for key in mine]


def _played(side: Side) -> dict[tuple[str, str], Played]:
    """What trajectories.jsonl.gz says, an error being a loss with score 0."""
    won: dict[tuple[str, str], dict[str, list[tuple[bool, float]]]] = {}
    for line in side.lines():
        fine = line["ended"] != "error"
        outcome = bool(line["success"] and fine), line["score"] if fine else 0.0
        won.setdefault((line["env"], line["split"]), {}).setdefault(line["task"], []).append(outcome)
    found = {}
    for key, tasks in won.items():
        trials = {len(played) for played in tasks.values()}
        if len(trials) > 1:
            raise SeedbenchError(f"{side.folder} has tasks with fewer trials than others: finish it with --resume.")
        wins = {task: sum(win for win, _ in played) for task, played in tasks.items()}
        scores = {task: math.fsum(score for _, score in played) / len(played) for task, played in tasks.items()}
        found[key] = Played(wins, scores, trials.pop())
    return found


def _of(played: Mapping[tuple[str, str], Played], where: tuple[str, str], side: Side) -> Played:
    if where not in played:
        raise SeedbenchError(
            f"{side.folder}/trajectories.jsonl.gz holds no episode of {' '.join(where)}: copy it again."
        )
    return played[where]


def _part(where: tuple[str, str], kind: str, tasks: list[str], one: Played, two: Played) -> Part:
    seed = ("compare", *where, kind)
    counts = [one.wins[t] for t in tasks], [two.wins[t] for t in tasks]
    test = paired(counts[0], one.trials, counts[1], two.trials)
    shares = [x / one.trials for x in counts[0]], [x / two.trials for x in counts[1]]
    scores = [one.scores[t] for t in tasks], [two.scores[t] for t in tasks]
    graded = any(0 < x < 1 for side in scores for x in side) and scores != shares
    score = stats.paired_bootstrap(*scores, stream(*seed, "score")) if graded else None
    return Part(
        env=where[0],
        split=where[1],
        kind=kind,
        tasks=len(tasks),
        means=(math.fsum(shares[0]) / len(tasks), math.fsum(shares[1]) / len(tasks)),
        difference=_difference(counts, shares, one.trials == two.trials == 1, stream(*seed, "success")),
        test=test,
        p=test.p,
        score=score[:3] if score else None,
        score_p=score.p if score else None,
    )


def _difference(
    counts: tuple[list[int], list[int]], shares: tuple[list[float], list[float]], once: bool, seed: int
) -> tuple[float, float, float]:
    """mean(A) - mean(B) and its interval: Newcombe's for pairs with one trial a task, else a paired bootstrap."""
    if not once:
        return stats.paired_bootstrap(*shares, seed)[:3]
    both, first = (sum(a == 1 and b == won for a, b in zip(*counts, strict=True)) for won in (1, 0))
    second = sum(counts[1]) - both
    n = len(counts[0])
    low, high = stats.newcombe_paired(both, first, second, n - both - first - second)
    return (first - second) / n, low, high


def _flips(where: tuple[str, str], one: Played, two: Played, kinds: Kinds) -> list[Flip]:
    return [
        Flip(*where, task, kinds.get(task, ""), 0 if gap > 0 else 1, 0)
        for task in one.wins
        if (gap := one.wins[task] * two.trials - two.wins[task] * one.trials)
    ]


def _with_trials(flips: list[Flip], sides: tuple[Side, Side]) -> list[Flip]:
    """Flips at their first trial that both sides played with different outcomes."""
    wanted = {(f.env, f.split, f.task) for f in flips}
    won: list[dict[record.Key, bool]] = [
        {record.key(x): bool(x["success"]) for x in side.lines() if record.key(x)[:3] in wanted} for side in sides
    ]
    first: dict[tuple[str, str, str], int] = {}
    for key in won[0]:
        if key in won[1] and won[0][key] != won[1][key]:
            first.setdefault(key[:3], key[3])
    return [Flip(**{**vars(f), "trial": first.get((f.env, f.split, f.task), 0)}) for f in flips]


def _kinds(sides: tuple[Side, Side], pairs: list[tuple[Result, Result]]) -> dict[tuple[str, str], Kinds]:
    """The kind of every task, from the environments; {} where published files are not at hand, and no kind is shown."""
    from seedbench.exam import make_env

    found: dict[tuple[str, str], Kinds] = {}
    for result, _ in pairs:
        data = "mini" if result.data == "mini" else next(filter(None, map(_data_folder, sides)), None)
        if data is None:
            return {}
        env = make_env(result.env, data=data)
        found[result.env, result.split] = {task.id: task.kind for task in env.tasks(result.split)}
        env.close()
    return found


def _data_folder(side: Side) -> str | None:
    """The folder with the published files that a run was played on, if it is still there."""
    try:
        data = json.loads((side.folder / "run.json").read_bytes())["config"]["data"]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # an entry, or a run.json that eval did not write
        return None
    return data if isinstance(data, str) and Path(data).is_dir() else None


def _lines_of(side: Side, wanted: Mapping[record.Key, Flip]) -> Iterator[tuple[record.Key, Any]]:
    left = len(wanted)
    for line in side.lines():
        if (key := record.key(line)) in wanted:
            yield key, clipped(line)
            if not (left := left - 1):
                return
