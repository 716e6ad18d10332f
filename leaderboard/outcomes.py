"""How each task of a split ended: what a paired test needs, small enough to stand in an entry.

A split's outcomes are one character a task, in manifest order: the number of trials won, in base 36. Two agents may be
paired when they played the same tasks, and the digest of the list of ids says whether they did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbench import stats
from seedbench.core import SeedbenchError
from seedbench.record import canonical

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_VALUES = bytes.maketrans(DIGITS.encode(), bytes(range(36)))


class Outcomes(BaseModel):
    """The outcomes of one environment and split: `wins[i]` is how often task i was won in `trials` trials."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    env: str
    split: str
    tasks: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # sha256 of the canonical JSON list of task ids
    trials: Annotated[int, Field(ge=1, le=35, strict=True)]
    wins: Annotated[str, Field(min_length=1, pattern="^[0-9a-z]+$")]

    @model_validator(mode="after")
    def _possible(self) -> Outcomes:
        if max(self.counts) > self.trials:
            raise ValueError(f"a task was won {max(self.counts)} times in {self.trials} trials")
        return self

    @property
    def counts(self) -> list[int]:
        """Trials won, one number a task."""
        return list(self.wins.encode().translate(_VALUES))


def of_lines(lines: Iterable[Mapping[str, Any]]) -> list[Outcomes]:
    """The outcomes of every split, from the lines of trajectories.jsonl.gz; an error is a loss.

    Raises SeedbenchError for a split whose tasks were not all played equally often, or more than 35 times.
    """
    won: dict[tuple[str, str], dict[str, list[bool]]] = {}
    for line in lines:
        group = won.setdefault((line["env"], line["split"]), {})
        group.setdefault(line["task"], []).append(bool(line["success"] and line["ended"] != "error"))
    found = []
    for (env, split), tasks in won.items():
        trials = {len(played) for played in tasks.values()}
        if len(trials) > 1:
            raise SeedbenchError(
                f"{env} {split} has {min(trials)} to {max(trials)} episodes a task and needs the same number of each: "
                "finish the run with --resume."
            )
        if max(trials) > 35:
            raise SeedbenchError(f"{env} {split} has {max(trials)} episodes a task: play it with --trials 35 at most.")
        wins = "".join(DIGITS[sum(played)] for played in tasks.values())
        found.append(Outcomes(env=env, split=split, tasks=task_digest(list(tasks)), trials=trials.pop(), wins=wins))
    return found


def task_digest(ids: Sequence[str]) -> str:
    """One digest for a list of task ids in their order."""
    return hashlib.sha256(canonical(list(ids)).encode()).hexdigest()


class Paired(NamedTuple):
    """A paired comparison of two agents on the same tasks: how many each alone won, and a two-sided p."""

    first: int  # tasks won more often by the first
    second: int
    p: float
    method: str


def paired(a: Sequence[int], trials_a: int, b: Sequence[int], trials_b: int) -> Paired:
    """Test "no difference in success" on the same tasks: exact McNemar where each was played once on both sides, else
    the sign-flip test of the shares won, of which McNemar's is the case of one trial."""
    if len(a) != len(b):
        raise ValueError(f"a paired test needs the same tasks on both sides, not {len(a)} and {len(b)} of them")
    first = sum(x * trials_b > y * trials_a for x, y in zip(a, b, strict=True))
    second = sum(x * trials_b < y * trials_a for x, y in zip(a, b, strict=True))
    if trials_a == trials_b == 1:
        return Paired(first, second, stats.mcnemar_exact(first, second), "exact McNemar")
    gaps = [x * trials_b - y * trials_a for x, y in zip(a, b, strict=True)]
    return Paired(first, second, stats.sign_flip(gaps), "exact sign flips")
