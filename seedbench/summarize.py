"""From episodes to the figures of results.json: a function of the set of episodes, whatever order they ended in."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from seedbench import stats
from seedbench.core import stream
from seedbench.results import KindRate, PassK, Rate, Result, Steps, TokenTotals

REAL_LIMIT = 30  # published ALFWorld tables stop at 30 or at 50 steps; longer runs report both


class EpisodeSummary(NamedTuple):
    """What a figure needs of one episode. `invalid` counts the steps with `format_valid` false.

    Tokens are None for an agent that has none.
    """

    task: str
    kind: str
    trial: int
    score: float
    success: bool
    ended: str
    steps: int
    invalid: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    measures: Mapping[str, float] = {}


def summarize(
    env: str,
    split: str,
    data: str,
    tasks: Sequence[tuple[str, str]],
    episodes: Iterable[EpisodeSummary],
    *,
    trials: int,
    max_steps: int,
    partial: bool,
    pinned: bool,
) -> Result:
    """The figures of one environment and split from all its episodes.

    Success: Wilson with one trial a task, cluster bootstrap over tasks with more. Score: always the bootstrap. An
    episode that ended in an error stays in every denominator, as a failure with score 0. The bootstraps are seeded
    from env, split and the figure's name: equal outcomes give equal intervals, whatever was said on the way.

    Args:
        tasks: (id, kind) of every task that had to be played, each once.

    Raises:
        ValueError: a task without exactly `trials` episodes, an episode of another task, or a figure out of range.
    """
    played = _by_task(tasks, episodes, trials)
    flat = [e for group in played.values() for e in group]
    won = {task: [float(_won(e)) for e in group] for task, group in played.items()}

    def rate(ids: Sequence[str], *name: str) -> Rate:
        return _success([won[i] for i in ids], stream(env, split, "success", *name))

    kinds: dict[str, list[str]] = {}
    for task, kind in sorted(tasks):
        kinds.setdefault(kind, []).append(task)
    by_kind = {kind: rate(kinds[kind], kind) for kind in sorted(kinds)}
    scores = [[e.score if e.ended != "error" else 0.0 for e in group] for group in played.values()]
    steps = sum(e.steps for e in flat)
    successes = [round(sum(group)) for group in won.values()]
    return Result(
        env=env,
        split=split,
        data=data,
        tasks=len(played),
        attempted=len(flat),
        errors=sum(e.ended == "error" for e in flat),
        success=rate(list(won)),
        score=_bootstrapped(scores, stream(env, split, "score")),
        macro=math.fsum(r.mean for r in by_kind.values()) / len(by_kind),
        by_kind={kind: KindRate(n=r.n, mean=r.mean, ci=r.ci) for kind, r in by_kind.items()},
        steps=Steps(mean=steps / len(flat), median=float(statistics.median(e.steps for e in flat))),
        invalid_rate=sum(e.invalid for e in flat) / steps if steps else None,
        tokens=_tokens(flat),
        success_at_30=(
            sum(_won(e) and e.steps <= REAL_LIMIT for e in flat) / len(flat) if max_steps > REAL_LIMIT else None
        ),
        pass_k=_pass_k(successes, trials) if trials > 1 else None,
        metrics=_graded(kinds, played) | _measured(played),
        partial=partial,
        pinned=pinned,
    )


def _by_task(
    tasks: Sequence[tuple[str, str]], episodes: Iterable[EpisodeSummary], trials: int
) -> dict[str, list[EpisodeSummary]]:
    """Episodes under their task, tasks by id and trials by number. Checks that all are there and nothing else is."""
    kinds = dict(tasks)
    if not tasks or trials < 1 or len(kinds) != len(tasks):
        raise ValueError(f"a result needs tasks, each once, and trials >= 1, not {len(tasks)} tasks, {trials} trials")
    played: dict[str, list[EpisodeSummary]] = {task: [] for task in sorted(kinds)}
    for e in episodes:
        if kinds.get(e.task) != e.kind:
            raise ValueError(f"no task {e.task!r} of kind {e.kind!r} was to be played")
        if not 0 <= e.score <= 1 or not 0 <= e.invalid <= e.steps:
            raise ValueError(f"an episode of task {e.task!r} is impossible: {e}")
        played[e.task].append(e)
    for task, group in played.items():
        if len({e.trial for e in group}) != trials or len(group) != trials:
            raise ValueError(f"task {task!r} has {len(group)} episodes and needs exactly {trials}, one a trial")
        group.sort(key=lambda e: e.trial)
    return played


def _won(e: EpisodeSummary) -> bool:
    return e.success and e.ended != "error"


def _success(won: Sequence[Sequence[float]], seed: int) -> Rate:
    """Wilson for one trial a task; also where all trials of all tasks agree, because there a bootstrap has no width."""
    outcomes = {outcome for group in won for outcome in group}
    if len(won[0]) > 1 and len(outcomes) > 1:
        return _bootstrapped(won, seed)
    wins = round(sum(group[0] for group in won))
    return Rate(mean=wins / len(won), ci=stats.wilson(wins, len(won)), n=len(won), method="wilson")


def _graded(kinds: Mapping[str, Sequence[str]], played: Mapping[str, Sequence[EpisodeSummary]]) -> dict[str, JsonValue]:
    """The mean score by kind, where scores say more than success: {} if none lies between 0 and 1."""
    earned = {task: [e.score if e.ended != "error" else 0.0 for e in group] for task, group in played.items()}
    if all(score in (0, 1) for group in earned.values() for score in group):
        return {}
    return {"score_by_kind": {kind: stats.cluster_mean([earned[i] for i in kinds[kind]]) for kind in sorted(kinds)}}


def _measured(played: Mapping[str, Sequence[EpisodeSummary]]) -> dict[str, JsonValue]:
    """The mean over tasks of each number that the environment measured beside the score; an error counts as 0."""
    names = sorted({name for group in played.values() for e in group for name in e.measures})
    values = {name: [[e.measures.get(name, 0.0) for e in group] for group in played.values()] for name in names}
    return {name: stats.cluster_mean(groups) for name, groups in values.items()}


def _bootstrapped(clusters: Sequence[Sequence[float]], seed: int) -> Rate:
    ci = stats.cluster_bootstrap(clusters, seed)
    return Rate(mean=stats.cluster_mean(clusters), ci=ci, n=len(clusters), method="cluster bootstrap")


def _tokens(episodes: Sequence[EpisodeSummary]) -> TokenTotals | None:
    """Totals, or None where no episode has any. (An episode that failed before its first reply has none either.)"""
    prompt = [e.prompt_tokens for e in episodes if e.prompt_tokens is not None]
    completion = [e.completion_tokens for e in episodes if e.completion_tokens is not None]
    return TokenTotals(prompt=sum(prompt), completion=sum(completion)) if prompt or completion else None


def _pass_k(successes: Sequence[int], trials: int) -> dict[str, PassK]:
    return {
        str(k): PassK(pass_hat=stats.pass_hat_k(successes, trials, k), pass_at=stats.pass_at_k(successes, trials, k))
        for k in range(1, trials + 1)
    }
