"""Frozen exam papers: every task of an environment's data set, with its kind, split and content digest.

One xz file of JSON lines a data set. Line 1 is the header, an object with at least `"schema"` and `"env"`; each
further line is `[id, kind, split, digest]` or `[id, kind, split, digest, options]`, in exam order. The files are
written once, by a committed function of the environment, and then only read.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

SCHEMA = 1


class Row(NamedTuple):
    """One task of the exam. `digest` is the sha256 hex of its content as the environment defines it, or ""."""

    id: str
    kind: str
    split: str
    digest: str
    options: Mapping[str, Any] = MappingProxyType({})  # facts about the task for its `Task.options`


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole exam paper. `digest` names it: sha256 hex over the uncompressed lines."""

    header: Mapping[str, Any]
    rows: Mapping[str, Row]  # by id, in exam order
    digest: str

    def split(self, name: str) -> tuple[Row, ...]:
        """The rows of one split in exam order; empty for a split that the paper does not hold."""
        return tuple(row for row in self.rows.values() if row.split == name)


@cache
def load(name: str) -> Manifest:
    """The committed manifest `name` (a file name without `.jsonl.xz`), read once a process."""
    return parse((resources.files(__name__) / f"{name}.jsonl.xz").read_bytes())


def parse(packed: bytes) -> Manifest:
    """Read the bytes of a manifest file. Raises ValueError or LZMAError for bytes that are none."""
    lines = lzma.decompress(packed)
    header, *rows = (json.loads(line) for line in lines.splitlines())
    if header.get("schema") != SCHEMA:
        raise ValueError(f"not a manifest of schema {SCHEMA}")
    return Manifest(header, {row[0]: Row(*row) for row in rows}, hashlib.sha256(lines).hexdigest())


def write(path: Path, header: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Write a manifest. The bytes depend on header and rows alone."""
    lines = ([*row[:4], dict(row.options)] if row.options else list(row[:4]) for row in rows)
    write_lines(path, [{"schema": SCHEMA, **header}, *lines])


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write values as compact JSON lines in one xz stream; the file is there whole or not at all."""
    text = "".join(json.dumps(v, separators=(",", ":"), ensure_ascii=False) + "\n" for v in values)
    part = path.with_name(path.name + ".part")
    part.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    part.replace(path)
