"""A file of anchors: JSON lines, one a task.

    {"task": "hotpotqa/5a8b...", "by": "gold", "anchors": [{"title": "...", "source": "...", "text": "..."}]}

`source` is the id of the document that `text` stands in, word for word but for answers, which [ANSWER] may stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.baselines.lines import Lines, once
from seedbench.baselines.skills.rows import LOOSE
from seedbench.core import Anchor, SeedbenchError

MOST = 6  # anchors of a task
LONGEST = 64  # words of one
ANSWER = "[ANSWER]"


class Part(TypedDict):
    """An anchor as the file spells it."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    title: str
    source: str
    text: str


class Line(TypedDict):
    """A line of the file."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    task: str
    anchors: list[Part]


LINE: TypeAdapter[Any] = TypeAdapter(Line)


def read(path: Path) -> dict[str, tuple[Anchor, ...]]:
    """Anchors by task id. Raises SeedbenchError for a file that is none, and for a task that is there twice."""
    if not path.is_file():
        raise SeedbenchError(f"There is no file of anchors {path}: make one with `seedbench anchors build`.")
    lines = Lines(path, LINE)
    if lines.torn:
        raise SeedbenchError(
            f"{path} breaks off in its last line: end it with a line break, or delete it and build it again."
        )
    once(path, (row["task"] for row in lines.rows))
    return {row["task"]: tuple(Anchor(a["title"], a["source"], a["text"]) for a in row["anchors"])
            for row in lines.rows}  # fmt: skip


def line_of(task: str, by: str, anchors: Sequence[Anchor]) -> dict[str, Any]:
    """A line of the file; `by` says where the anchors come from."""
    return {"task": task, "by": by, "anchors": [a._asdict() for a in anchors]}
