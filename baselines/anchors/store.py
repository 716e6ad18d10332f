"""A file of anchors: JSON lines, one a task.

    {"task": "hotpotqa/5a8b...", "by": "gold", "anchors": [{"title": "...", "source": "...", "text": "..."}]}

`source` is the id of the document that `text` stands in, word for word but for answers, which [ANSWER] may stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbench.baselines.skills.store import Lines
from seedbench.core import Anchor, SeedbenchError

MOST = 6  # anchors of a task
LONGEST = 64  # words of one
ANSWER = "[ANSWER]"


def read(path: Path) -> dict[str, tuple[Anchor, ...]]:
    """Anchors by task id. Raises SeedbenchError for a file that is none."""
    if not path.is_file():
        raise SeedbenchError(f"There is no file of anchors {path}: make one with `seedbench anchors build`.")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        if file.read(1) not in (b"", b"\n"):
            raise SeedbenchError(f"{path} breaks off in its last line: end it with a line break, or build it again.")
    return dict(map(of_line, Lines(path).rows))


def of_line(row: Mapping[str, Any]) -> tuple[str, tuple[Anchor, ...]]:
    """Task id and anchors of a line. Raises SeedbenchError."""
    try:
        found = tuple(Anchor(a["title"], a["source"], a["text"]) for a in row["anchors"])
        if not all(isinstance(text, str) for text in (row["task"], *(part for a in found for part in a))):
            raise TypeError("not all of it is text")
        return row["task"], found
    except (KeyError, TypeError) as error:
        raise SeedbenchError(f"A line of anchors has another shape ({error!r}): build the file again.") from error


def line_of(task: str, by: str, anchors: Sequence[Anchor]) -> dict[str, Any]:
    """A line of the file; `by` says where the anchors come from."""
    return {"task": task, "by": by, "anchors": [a._asdict() for a in anchors]}
