"""results.json: its shape, and how episodes become its figures.

The shape is strict: an unknown key, a NaN or a share outside [0, 1] is refused when written and when read. The figures
are a function of the set of episodes and of `seed_text`: the order in which episodes ended changes nothing.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from seedbench import stats
from seedbench.core import SeedbenchError, stream

SCHEMA = "seedbench.results/1"
REAL_LIMIT = 30  # published ALFWorld tables stop at 30 or at 50 steps; longer runs report both

Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Amount = Annotated[float, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, populate_by_name=True)


class KindRate(_Model):
    """Success on the tasks of one kind; `n` counts tasks."""

    n: Count
    mean: Share
    ci: tuple[Share, Share]

    @model_validator(mode="after")
    def _ordered(self) -> KindRate:
        if self.ci[0] > self.ci[1]:
            raise ValueError(f"the interval {list(self.ci)} ends before it begins")
        return self


class Rate(KindRate):
    """A mean with its 95 % interval. `n` counts tasks, which are what the interval rests on, not episodes."""

    method: str


class Steps(_Model):
    mean: Amount
    median: Amount


class TokenTotals(_Model):
    prompt: Count
    completion: Count


class PassK(_Model):
    """pass^k (all k trials succeed) and pass@k (at least one does)."""

    pass_hat: Share
    pass_at: Share


class Result(_Model):
    """One environment and split. `success.mean` is the micro mean over episodes, `macro` the mean over kinds.

    `invalid_rate` is None where not one step was played, `tokens` where the agent has none, `success_at_30` where the
    step limit is 30 or less, `pass_k` (keys "1" to the number of trials) where there is one trial a task.
    """

    env: str
    split: str
    data: str
    tasks: Count
    attempted: Count
    errors: Count
    success: Rate
    score: Rate
    macro: Share
    by_kind: dict[str, KindRate]
    steps: Steps
    invalid_rate: Share | None
    tokens: TokenTotals | None
    success_at_30: Share | None
    pass_k: dict[str, PassK] | None
    metrics: dict[str, JsonValue]
    partial: Flag
    pinned: Flag

    @model_validator(mode="after")
    def _counts_agree(self) -> Result:
        if self.errors > self.attempted or self.tasks > self.attempted:
            raise ValueError(f"{self.attempted} episodes cannot hold {self.tasks} tasks and {self.errors} errors")
        if sum(kind.n for kind in self.by_kind.values()) != self.tasks:
            raise ValueError(f"the kinds do not add up to {self.tasks} tasks")
        return self


class Results(_Model):
    """results.json. `selection`: how the checkpoint was chosen, "dev" or "last"; None if there was no choice."""

    schema_: Annotated[str, Field(alias="schema", pattern=r"^seedbench\.results/[0-9]+$")] = SCHEMA
    agent: dict[str, JsonValue]
    protocol: dict[str, JsonValue]
    software: dict[str, JsonValue]
    chain_head: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    selection: str | None
    results: list[Result]

    @model_validator(mode="after")
    def _one_row_each(self) -> Results:
        rows = [(r.env, r.split, r.data) for r in self.results]
        if twice := [row for i, row in enumerate(rows) if row in rows[:i]]:
            raise ValueError(f"{' '.join(twice[0])} is there twice")
        return self

    def dumps(self) -> str:
        """The bytes of results.json: keys in the order of this file, floats as they are, one newline at the end."""
        return json.dumps(self.model_dump(by_alias=True), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def loads(cls, text: str | bytes) -> Results:
        """Read results.json. Raises SeedbenchError naming the first thing that is wrong."""
        try:
            return cls.model_validate(json.loads(text, object_pairs_hook=_no_twins))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise SeedbenchError(f"results.json is not valid at {where}: {first['msg']}; run eval again.") from error
        except ValueError as error:  # JSON and Unicode errors are ValueErrors too
            raise SeedbenchError(f"results.json is not valid JSON ({error}); run eval again.") from error


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
    seed_text: str,
) -> Result:
    """The figures of one environment and split from all its episodes.

    Success: Wilson with one trial a task, cluster bootstrap over tasks with more. Score: always the bootstrap. An
    episode that ended in an error stays in every denominator, as a failure with score 0.

    Args:
        tasks: (id, kind) of every task that had to be played, each once.
        seed_text: seeds the bootstraps, together with env, split and the figure's name. Whoever recomputes a figure
            must have it, so it comes from the file. (A chain head makes an interval depend on every word an agent
            said, even where outcomes are the same.)

    Raises:
        ValueError: a task without exactly `trials` episodes, an episode of another task, or a figure out of range.
    """
    played = _by_task(tasks, episodes, trials)
    flat = [e for group in played.values() for e in group]
    won = {task: [float(_won(e)) for e in group] for task, group in played.items()}

    def rate(ids: Sequence[str], *name: str) -> Rate:
        return _success([won[i] for i in ids], stream(seed_text, env, split, "success", *name))

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
        score=_bootstrapped(scores, stream(seed_text, env, split, "score")),
        macro=math.fsum(r.mean for r in by_kind.values()) / len(by_kind),
        by_kind={kind: KindRate(n=r.n, mean=r.mean, ci=r.ci) for kind, r in by_kind.items()},
        steps=Steps(mean=steps / len(flat), median=float(statistics.median(e.steps for e in flat))),
        invalid_rate=sum(e.invalid for e in flat) / steps if steps else None,
        tokens=_tokens(flat),
        success_at_30=(
            sum(_won(e) and e.steps <= REAL_LIMIT for e in flat) / len(flat) if max_steps > REAL_LIMIT else None
        ),
        pass_k=_pass_k(successes, trials) if trials > 1 else None,
        metrics={},
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


def _no_twins(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """A JSON object; a key that is there twice would mean one thing to us and another to the next reader."""
    if len(twice := dict(pairs)) != len(pairs):
        raise ValueError(f"a key is repeated among {sorted(twice)}")
    return twice
