"""The shape of results.json. It is strict: an unknown key, a NaN or a share outside [0, 1] is refused, when written
and when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from seedbench.core import SeedbenchError

SCHEMA = "seedbench.results/1"

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
        except (ValueError, RecursionError) as error:  # JSON and Unicode errors are ValueErrors too
            raise SeedbenchError(f"results.json is not valid JSON ({error}); run eval again.") from error


def load(run: Path) -> Results:
    """The results of a finished run folder. Raises SeedbenchError when there are none or they are not valid."""
    try:
        return Results.loads((run / "results.json").read_bytes())
    except FileNotFoundError as error:
        if not run.is_dir():
            raise SeedbenchError(f"{run} is no folder: name the folder of a finished run.") from error
        if not (run / "run.json").is_file():
            raise SeedbenchError(
                f"{run} is the folder of no run: it holds neither results.json nor run.json."
            ) from error
        raise SeedbenchError(f"{run} holds no results.json: finish it with `seedbench eval --resume {run}`.") from error


def _no_twins(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    """A JSON object; a key that is there twice would mean one thing to us and another to the next reader."""
    if len(twice := dict(pairs)) != len(pairs):
        raise ValueError(f"a key is repeated among {sorted(twice)}")
    return twice
