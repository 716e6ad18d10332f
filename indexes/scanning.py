"""The one pass over a corpus file: where each record begins, in what order their ids stand, what all of it is called.

The result is a small store (seedbench.indexes.store) of two arrays, `offsets` (int64 [records + 1], bytes) and `order`
(int32 [records], record numbers by ascending id), 12 bytes a record together, and a head with the corpus digest and
the file's size, time and sha256, by which a file that has changed since is told.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import zlib
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.indexes import store
from seedbench.indexes.bm25 import document_digest
from seedbench.indexes.records import RecordError, passage, refuse_pointer

KIND = "corpus-1"
LONGEST_LINE = 64 << 20  # bytes
BLOCK = 1 << 16  # records
WIDEST = 64  # bytes of an id up to which ids are sorted as one array
PACKED = (".gz", ".xz")
MOST = np.iinfo(np.int32).max
Report = Callable[[int, int], object]  # done, total


def scan(path: Path, out: Path, report: Report, extra: dict[str, Any] | None = None) -> None:
    """Read the JSONL file `path` once and write the store `out`; `report` gets bytes done and in all.

    Memory: some 20 bytes a record and the ids. Raises SeedbenchError with the line's number for what is no record,
    and for ids that come twice.
    """
    refuse_pointer(path)
    out.mkdir(parents=True, exist_ok=True)
    before = path.stat()
    offsets, blocks, whole, done = array("q"), [np.empty(0, "S1")], hashlib.sha256(), 0
    digests, ids = out / "digests.part", []
    with digests.open("wb") as kept:
        for number, start, line in _lines(path):
            whole.update(line)
            done = start + len(line)
            record = line[3:] if start == 0 and line.startswith(b"\xef\xbb\xbf") else line
            if not record.strip():
                continue
            found = _passage(path, number, record)
            kept.write(document_digest(*found[:3]))
            offsets.append(start + len(line) - len(record))
            ids.append(found.id.encode("utf-8", "surrogatepass"))
            if len(ids) == BLOCK:
                blocks.append(np.array(ids))
                ids = []
                report(done, before.st_size)
    if ids:
        blocks.append(np.array(ids))
    if not offsets or len(offsets) > MOST:
        raise SeedbenchError(f"{path} holds {len(offsets)} passages: an index needs 1 to {MOST}.")
    order = _order(path, np.concatenate(blocks), offsets)
    offsets.append(done)
    corpus = _digest(digests, order)
    digests.unlink()
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or done != after.st_size:
        raise SeedbenchError(f"{path} was changed while it was read: run the same command again.")
    said = {"bytes": done, "mtime_ns": after.st_mtime_ns, "sha256": whole.hexdigest()}
    meta = {"file": said, "count": len(order), "corpus": corpus, **(extra or {})}
    store.write(out, KIND, meta, {"offsets": np.array(offsets, np.int64), "order": order})
    report(done, done)


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line number from 1, byte at which it begins, the line)."""
    number = start = 0
    with path.open("rb", buffering=1 << 20) as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                raise SeedbenchError(f"Line {number} of {path} is longer than {LONGEST_LINE >> 20} MiB: is it JSONL?")
            yield number, start, line
            start += len(line)


def _passage(path: Path, number: int, line: bytes) -> Any:
    try:
        return passage(line)
    except RecordError as error:
        if line.endswith(b"\n"):
            raise SeedbenchError(f"Line {number} of {path} {error}.") from error
        raise SeedbenchError(
            f"{path} ends in the middle of line {number}: the file is truncated, fetch it again."
        ) from error


def _order(path: Path, ids: np.ndarray, offsets: array[int]) -> np.ndarray:
    """Record numbers by ascending id (UTF-8 sorts as its characters do). Raises SeedbenchError where one repeats."""
    if ids.dtype.itemsize <= WIDEST:
        order = np.argsort(ids, kind="stable").astype(np.int32)
    else:
        listed = ids.tolist()
        order = np.array(sorted(range(len(listed)), key=listed.__getitem__), np.int32)
    for at in range(0, len(order) - 1, BLOCK):
        some = ids[order[at : at + BLOCK + 1]]
        if len(twice := np.flatnonzero(some[1:] == some[:-1])):
            first, second = sorted(order[at + int(twice[0]) :][:2].tolist())
            name = ids[first].decode("utf-8", "replace")
            lines = " and ".join(str(_line_at(path, offsets[i])) for i in (first, second))
            raise SeedbenchError(f"Lines {lines} of {path} have the same id {name!r}: give every passage its own.")
    return order


def _line_at(path: Path, byte: int) -> int:
    with path.open("rb") as file:
        left, lines = byte, 1
        while left > 0 and (data := file.read(min(left, 1 << 22))):
            lines, left = lines + data.count(b"\n"), left - len(data)
    return lines


def _digest(path: Path, order: np.ndarray) -> str:
    """sha256 over the documents' digests by ascending id: what Bm25 of the same passages has as its `corpus`."""
    digests = np.memmap(path, np.uint8, "r").reshape(-1, 32)
    whole = hashlib.sha256()
    for at in range(0, len(order), BLOCK):
        whole.update(digests[order[at : at + BLOCK]].tobytes())
    return whole.hexdigest()


def fingerprint(path: Path) -> dict[str, Any]:
    """Size, time and sha256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": digest}


def unchanged(path: Path, said: dict[str, Any]) -> bool:
    """Whether a file is the one that `fingerprint` saw: by size and time, or by its contents if the time differs."""
    stat = path.stat()
    if stat.st_size != said.get("bytes"):
        return False
    return stat.st_mtime_ns == said.get("mtime_ns") or fingerprint(path)["sha256"] == said.get("sha256")


def unpack(path: Path, out: Path, report: Report, say: Callable[[str], object]) -> None:
    """Unpack a .gz or .xz file to `out`. It is read twice, so that the bytes needed are said, and there, before any is
    written. Raises SeedbenchError for a damaged file and for a disk without that room."""
    refuse_pointer(path)
    packed = path.stat().st_size
    needed = _copy(path, None, lambda done: report(done, 2 * packed))
    need_room(out.parent, needed, f"unpacking {path.name} beside the index", say)
    part = out.with_name(out.name + ".part")
    with part.open("wb") as file:
        _copy(path, file, lambda done: report(packed + done, 2 * packed))
    os.replace(part, out)


def _copy(path: Path, out: IO[bytes] | None, report: Callable[[int], object]) -> int:
    opener = gzip.open if path.suffix == ".gz" else lzma.open
    total = 0
    try:
        with path.open("rb") as raw, opener(raw) as packed:
            stream = cast(IO[bytes], packed)
            while data := stream.read(1 << 22):
                total += len(data)
                if out is not None:
                    out.write(data)
                report(raw.tell())
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise SeedbenchError(f"{path} is damaged or truncated ({error}): fetch it again.") from error
    return total


def need_room(folder: Path, needed: int, purpose: str, say: Callable[[str], object]) -> None:
    """Say how many bytes `purpose` takes. Raises SeedbenchError where the disk of `folder` has fewer."""
    free = shutil.disk_usage(folder).free
    say(f"{purpose} needs {size(needed)} in {folder} ({size(free)} free)")
    if needed > free:
        raise SeedbenchError(
            f"{purpose} needs {size(needed)}, but the disk of {folder} has {size(free)} free: free some, or name a "
            "folder on another disk."
        )


def size(count: int) -> str:
    """A number of bytes to read: 1,234 bytes, 12.3 MB, 4.5 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,} bytes"
