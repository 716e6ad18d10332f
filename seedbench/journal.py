"""The journal of a run folder: one line an episode, written as it ends. A kill loses only what was under way."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.core import SeedbenchError, Trajectory
from seedbench.record import STRICT, Key, Line, canonical, key, record, tokens, usage


class TokensLine(TypedDict, total=False):
    """Token ids and log-probabilities of one turn; empty where the turn has none."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]


class Entry(TypedDict):
    """A line of the journal."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    record: Line
    tokens: list[TokensLine] | None
    usage: dict[str, Annotated[int, Field(ge=0)]] | None


ENTRY = TypeAdapter(Entry)


class Journal:
    """The append-only journal of a run folder. Holds offsets, not records, so that its size does not matter."""

    def __init__(self, path: Path):
        self.path = path
        self.offsets: dict[Key, int] = {}
        self._file: io.FileIO | None = None

    def open(self) -> Journal:
        """Read what is there, drop a torn last line (never a complete one), get ready to append. Raises as `scan`."""
        self.path.touch()
        good = self.scan()
        if good < self.path.stat().st_size:
            os.truncate(self.path, good)
        self._file = io.FileIO(self.path, "a")  # unbuffered: nothing is half-written twice after a full disk
        return self

    def scan(self) -> int:
        """Note where the complete lines are, without changing anything; returns the bytes that they take.

        Raises SeedbenchError when a complete line is not a record: that is damage, not a kill.
        """
        good = 0
        with self.path.open("rb") as f:
            for number, raw in enumerate(f, 1):
                if not raw.endswith(b"\n"):
                    break
                try:
                    entry = ENTRY.validate_json(raw)
                except ValidationError as error:
                    first = error.errors()[0]
                    where = ".".join(map(str, first["loc"])) or "the line"
                    raise SeedbenchError(
                        f"{self.path}, line {number}, is damaged ({where}: {first['msg']}): delete that line to play "
                        "its episode again, or start a new run with another --out."
                    ) from error
                self.offsets[key(dict(entry["record"]))] = good
                good += len(raw)
        return good

    def append(self, t: Trajectory) -> None:
        """Write one finished episode and hand it to the operating system, so that a killed process loses nothing."""
        line = record(t)
        entry: dict[str, Any] = {"record": line, "tokens": tokens(t), "usage": usage(t)}
        self._write(key(line), canonical(entry).encode() + b"\n")

    def absorb(self, share: Path) -> None:
        """Take over the episodes of another journal that this one lacks, and remove it. A kill on the way loses none:
        what was taken over already is not taken again."""
        other = Journal(share)
        other.scan()
        with share.open("rb") as f:
            for k, at in other.offsets.items():
                if k not in self.offsets:
                    f.seek(at)
                    self._write(k, f.readline())
        share.unlink()

    def _write(self, k: Key, raw: bytes) -> None:
        """Append one line, whole or not at all."""
        assert self._file is not None
        at = self.path.stat().st_size
        rest = memoryview(raw)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            os.truncate(self.path, at)
            raise
        self.offsets[k] = at

    def shares(self) -> list[Path]:
        """The journals of the ranks of a sharded run, which lie beside this one."""
        return sorted(self.path.parent.glob(f"{self.path.stem}-*{self.path.suffix}"))

    def entries(self, order: Iterable[Key]) -> Iterator[dict[str, Any]]:
        """Journal entries ({"record", "tokens", "usage"}) in the given order, one in memory at a time."""
        with self.path.open("rb") as f:
            for k in order:
                f.seek(self.offsets[k])
                yield json.loads(f.readline())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
