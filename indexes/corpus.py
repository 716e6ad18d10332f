"""A corpus of passages, of which no more is held than what is asked for.

    corpus = Corpus.open("wiki-18.jsonl")      # first time: one pass over the file; then milliseconds at any size
    corpus[12], corpus.number("doc-7"), corpus.digest()

What the pass found lies in a folder beside the file, or in `scratch`. Records are read with pread, not through a
mapping: a file that shrinks underneath is an error then, not a SIGBUS, and pages that were read leave no resident set.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import store
from seedbench.indexes.bm25 import document_digest
from seedbench.indexes.records import RecordError, passage, refuse_pointer
from seedbench.indexes.scanning import KIND, PACKED, Report, fingerprint, scan, unchanged, unpack

OFFSETS = "corpus.offsets"  # the scan's folder
UNPACKED = "corpus.jsonl"
_HEAD: store.Types = {"file": dict, "count": int, "corpus": str}
READ_AHEAD = 1 << 20  # bytes


def say(sentence: str) -> None:
    """Where sentences go that are no result: standard error."""
    print(sentence, file=sys.stderr)


class Corpus(Sequence[Passage]):
    """Passages by number, in file order. `order` is int32 [passages]: their numbers by ascending id."""

    path: Path | None = None  # the JSONL file; None in memory
    order: np.ndarray

    @staticmethod
    def open(
        path: Path | str,
        *,
        scratch: Path | str | None = None,
        report: Report = lambda done, total: None,
        say: Callable[[str], object] = say,
    ) -> FileCorpus:
        """A JSONL file (.jsonl, or .jsonl.gz and .jsonl.xz, which are unpacked into `scratch`).

        `scratch` (default: PATH.seedbench) keeps what the first call finds. Raises SeedbenchError for a file that is
        missing, changed since, a Git LFS pointer, truncated, or holds what is no passage, or an id twice.
        """
        path = Path(path)
        if not path.is_file():
            raise SeedbenchError(f"There is no corpus file {path}: name a .jsonl, .jsonl.gz or .jsonl.xz file.")
        refuse_pointer(path)
        folder = Path(scratch) if scratch is not None else path.with_name(path.name + ".seedbench")
        if not (folder / OFFSETS / store.META).exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with FileLock(folder / ".corpus.lock"):
                    if not (folder / OFFSETS / store.META).exists():
                        _make(path, folder, report, say)
            except PermissionError as error:
                raise SeedbenchError(
                    f"{folder} cannot be written ({error}): name another folder as scratch, or copy the corpus."
                ) from error
        return FileCorpus(path, folder)

    @staticmethod
    def of(passages: Iterable[Passage]) -> ListCorpus:
        """A corpus in memory. Raises SeedbenchError for an id that comes twice."""
        return ListCorpus(tuple(passages))

    @abstractmethod
    def digest(self) -> str:
        """sha256 over the passages' digests by ascending id: the same for any file that holds the same passages."""

    @abstractmethod
    def _at(self, number: int) -> Passage: ...

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self._at(i) for i in range(*at.indices(len(self)))]
        number = at if at >= 0 else at + len(self)
        if not 0 <= number < len(self):
            raise IndexError(at)
        return self._at(int(number))

    def number(self, id: str) -> int:
        """The number of the passage with this id. Raises KeyError where there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._at(int(self.order[middle])).id < id else (low, middle)
        if low == len(self) or self._at(int(self.order[low])).id != id:
            raise KeyError(id)
        return int(self.order[low])

    def close(self) -> None:
        """Let go of the file. Nothing can be read afterwards."""


class ListCorpus(Corpus):
    """Passages in memory (`Corpus.of`)."""

    def __init__(self, passages: tuple[Passage, ...]):
        self._passages = passages
        self.order = np.array(sorted(range(len(passages)), key=lambda i: passages[i].id), np.int32)
        for i, j in zip(self.order[:-1], self.order[1:], strict=True):
            if passages[i].id == passages[j].id:
                raise SeedbenchError(f"Two passages have the id {passages[i].id!r}: give each its own.")

    def __len__(self) -> int:
        return len(self._passages)

    def _at(self, number: int) -> Passage:
        return self._passages[number]._replace(score=0.0)

    def digest(self) -> str:
        whole = hashlib.sha256()
        for i in self.order:
            whole.update(document_digest(*self._passages[i][:3]))
        return whole.hexdigest()


class FileCorpus(Corpus):
    """A JSONL file that was scanned into `folder` (`Corpus.open`). Threads and forked processes may share it."""

    def __init__(self, path: Path, folder: Path):
        meta, arrays = store.read(folder / OFFSETS, KIND, check=False)
        store.need(folder / OFFSETS, meta, arrays, _HEAD, {"offsets": "i8", "order": "i4"},
                   {"offsets": meta.get("count", 0) + 1, "order": meta.get("count", 0)})  # fmt: skip
        packed = path.suffix in PACKED
        said = meta.get("packed") if packed else meta["file"]
        if not isinstance(said, dict) or not unchanged(path, said):
            raise SeedbenchError(
                f"{path} is not the file that {folder} was made of, or has changed since: name the right one, or "
                f"remove {folder} and build it again."
            )
        self._remember(path, meta, said, folder)
        self.path = folder / UNPACKED if packed else path
        if packed and not (self.path.is_file() and self.path.stat().st_size == meta["file"]["bytes"]):
            raise SeedbenchError(f"{self.path} is missing or was changed: remove {folder} and build it again.")
        self.text_bytes = int(meta["file"]["bytes"])
        self.folder = folder
        self._meta, self.order, self._offsets = meta, arrays["order"], arrays["offsets"]
        self._fd = os.open(self.path, os.O_RDONLY)
        self._close = weakref.finalize(self, os.close, self._fd)

    @staticmethod
    def _remember(path: Path, meta: dict[str, Any], said: dict[str, Any], folder: Path) -> None:
        """Keep the new time of a file that was copied or touched, so that it is not read to the end once more."""
        if said["mtime_ns"] == path.stat().st_mtime_ns:
            return
        said["mtime_ns"] = path.stat().st_mtime_ns
        part = folder / OFFSETS / f"{store.META}.{os.getpid()}.part"
        with suppress(OSError):  # a folder that cannot be written stays as it is
            part.write_text(json.dumps(meta, indent=1), encoding="utf-8")
            os.replace(part, folder / OFFSETS / store.META)

    def __len__(self) -> int:
        return len(self.order)

    def digest(self) -> str:
        return str(self._meta["corpus"])

    def close(self) -> None:
        self._close()

    def _at(self, number: int) -> Passage:
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return self._parse(number, os.pread(self._fd, end - start, start))

    def __iter__(self) -> Iterator[Passage]:
        """In file order, read a megabyte at a time."""
        first = 0
        while first < len(self):
            start = int(self._offsets[first])
            last = max(int(np.searchsorted(self._offsets, start + READ_AHEAD, "right")) - 1, first + 1)
            ends = self._offsets[first : last + 1].tolist()
            data = os.pread(self._fd, ends[-1] - start, start)
            for i in range(last - first):
                yield self._parse(first + i, data[ends[i] - start : ends[i + 1] - start])
            first = last

    def _parse(self, number: int, line: bytes) -> Passage:
        try:
            return passage(line)
        except RecordError as error:
            raise SeedbenchError(f"{self.path} has changed: passage {number} {error}. Fetch the file again.") from error


def _make(path: Path, folder: Path, report: Report, say: Callable[[str], object]) -> None:
    extra = {}
    source = path
    if path.suffix in PACKED:
        source = folder / UNPACKED
        extra["packed"] = fingerprint(path)
        unpack(path, source, report, say)
    scan(source, folder / OFFSETS, report, extra)
