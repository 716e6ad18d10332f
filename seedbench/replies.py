"""What a server may say to a client: the shapes of docs/serving.md, checked before anything of them is believed."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

MAX_ACTION = 100_000  # characters of an action in a request; search-QA reads no more of one either
MAX_LABEL = 1000  # characters of a session's name, a task's id and a split
DEEPEST = 32  # levels of a reply; seedbench's own have five
LARGEST = 2**64  # of an integer in a reply: seeds end below it

Label = Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Some = Annotated[int, Field(ge=1, le=2**53)]
ReplyT = TypeVar("ReplyT", bound="Said")


class Said(BaseModel):
    """A JSON object of a server. A later server may say more than is read here."""

    model_config = ConfigDict(strict=True, frozen=True)


class Description(Said):
    """GET /digest."""

    api: Count
    env: Label
    digest: Label
    data: Literal["mini", "real"]
    max_steps: Some
    replay: Literal["exact", "score"]
    max_sessions: Some
    settings: dict[str, JsonValue] = {}


class TaskRow(Said):
    """One task of GET /tasks; a key that is not known could change what the task is."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: Label
    env: Label
    split: Label
    kind: str
    options: dict[str, JsonValue]


class TaskList(Said):
    """GET /tasks: at least one task, each of the split that was asked for, each once."""

    split: Label
    pinned: bool
    tasks: Annotated[list[TaskRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_once(self) -> TaskList:
        if len({row.id for row in self.tasks}) < len(self.tasks):
            raise ValueError("a task is listed twice")
        if any(row.split != self.split for row in self.tasks):
            raise ValueError("a task of another split is listed")
        return self


class Told(Said):
    """`info` of an observation, as far as every environment has it: see seedbench.core.Info."""

    goal: str
    kind: str
    admissible: list[str]
    is_action_valid: bool
    invalid_reason: str
    won: bool
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    steps: Count


class Seen(Said):
    """POST /reset and /step. `digest` comes with a reset alone."""

    session: Label
    turn: Count
    task: Annotated[str, Field(max_length=MAX_LABEL)]
    observation: str
    reward: Finite
    terminated: bool
    truncated: bool
    done: bool
    info: Told
    digest: Label | None = None

    @model_validator(mode="after")
    def _ends_once(self) -> Seen:
        if self.done != (self.terminated or self.truncated):
            raise ValueError("done is not terminated or truncated")
        return self


class Closed(Said):
    """POST /close."""

    closed: Literal[True]


class Refusal(Said):
    """An error of the API: a code for programs, a sentence for people."""

    error: Label
    message: Annotated[str, Field(max_length=5000)]


SHAPES: dict[str, type[Said]] = {
    "digest": Description, "tasks": TaskList, "reset": Seen, "step": Seen, "close": Closed,
}  # fmt: skip


def read(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises ValueError for anything else, and for what no run could hold.

    That is: a number that is not finite or an integer beyond 64 bits, a lone surrogate, and what is nested deeply.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        if not level:
            return found
        level = [inner for value in level for inner in _inside(value)]
    raise ValueError("it is nested too deeply")


def check(shape: type[ReplyT], found: dict[str, Any]) -> ReplyT:
    """`found` as a reply of that shape. Raises ValueError, in a few words, where it is none."""
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"][:4])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, str) and not value.isascii():
        _encodable(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it holds a number that is not finite")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("it holds an integer beyond 64 bits")
    return []


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds a lone surrogate") from error
