"""The shapes of the lines in a skills project. A line may say more than its shape names, but nothing else instead."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.record import Line

LOOSE = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
Trial = Annotated[int, Field(ge=0)]


class Collected(TypedDict):
    """A line of trajectories.jsonl."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    record: Line
    kind: str
    options: dict[str, Any]
    goal: str
    accepted: list[bool]
    reasons: list[tuple[str, str]]


class Lesson(TypedDict):
    """A line of lessons.jsonl."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    task: str
    trial: Trial
    analyzer: str
    text: str
    summary: str
    skill: str
    error: str


class Checked(Lesson):
    """A line of validated.jsonl."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    success: bool
    reasons: list[str]
    gain: NotRequired[float]


class Played(TypedDict):
    """A line of utility.jsonl."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    agent: str
    task: str
    trial: Trial
    skill: str
    success: bool


def _as_many(row: Collected) -> Collected:
    steps = len(row["record"]["steps"])
    if not steps == len(row["accepted"]) == len(row["reasons"]):
        raise ValueError("accepted and reasons are not as many as the steps")
    return row


COLLECTED: TypeAdapter[Any] = TypeAdapter(Annotated[Collected, AfterValidator(_as_many)])
LESSON: TypeAdapter[Any] = TypeAdapter(Lesson)
CHECKED: TypeAdapter[Any] = TypeAdapter(Checked)
PLAYED: TypeAdapter[Any] = TypeAdapter(Played)
