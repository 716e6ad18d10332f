"""Files of JSON lines, each line of one shape: what a project or a cache of answers is kept in."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from seedbench.core import SeedbenchError
from seedbench.record import canonical

Row = dict[str, Any]


class Lines:
    """An append-only file of JSON objects."""

    def __init__(self, path: Path, shape: TypeAdapter[Any]):
        """Read what is there; a torn last line goes when the next is written, so that reading changes no file. Raises
        SeedbenchError for a complete line that is not of the shape."""
        self.path = path
        self.rows: list[Row] = []
        self._good: int | None = None  # where whole lines end, until something is written
        good = 0
        if path.exists():
            with path.open("rb") as f:
                for number, raw in enumerate(f, 1):
                    if not raw.endswith(b"\n"):
                        break
                    self.rows.append(_row(path, number, raw, shape))
                    good += len(raw)
            self._good = good

    @property
    def torn(self) -> bool:
        """Whether the file that was read ends in half a line."""
        return self._good is not None and self._good < self.path.stat().st_size

    def append(self, row: Row) -> None:
        """Write one line and hand it to the operating system; after a full disk nothing is half-written."""
        if self._good is not None and self.path.exists():
            os.truncate(self.path, self._good)
        self._good = None
        at = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as f:
                f.write(canonical(row).encode() + b"\n")
        except OSError:
            if self.path.exists():
                os.truncate(self.path, at)
            raise
        self.rows.append(row)


def _row(path: Path, number: int, raw: bytes, shape: TypeAdapter[Any]) -> Row:
    try:
        return dict(shape.validate_json(raw))
    except ValidationError as error:
        raise SeedbenchError(
            f"{path}, line {number}, is damaged ({problem(error)}): delete that line to have it made again."
        ) from error


def problem(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def once(path: Path, keys: Iterable[Hashable]) -> None:
    """Raises SeedbenchError where two lines of a file, whose keys these are in order, have the same."""
    first: dict[Hashable, int] = {}
    for number, key in enumerate(keys, 1):
        if (was := first.setdefault(key, number)) != number:
            shown = " ".join(map(str, key)) if isinstance(key, tuple) else key
            raise SeedbenchError(f"{path}, line {number}, repeats line {was} ({shown}): delete one of them.")


def write_lines(path: Path, rows: Iterable[Row]) -> int:
    """Write a file of JSON lines whole or not at all; returns how many."""
    part, n = path.with_name(path.name + ".part"), 0
    with part.open("w", encoding="utf-8", newline="\n") as f:
        for row in rows:
            f.write(canonical(row) + "\n")
            n += 1
    os.replace(part, path)
    return n
