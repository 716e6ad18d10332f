"""Reading files that a stranger sent: nothing but regular files, in bounded memory, each fault one sentence."""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from seedbench.core import SeedbenchError

MAX_JSON = 16 * 2**20  # bytes of results.json, run.json or entry.json
MAX_LINE = 32 * 2**20  # bytes of one episode, unpacked
MAX_TOTAL = 64 * 2**30  # bytes of all episodes of a run, unpacked
_CHUNK = 2**20


class Unreadable(SeedbenchError):
    """A file of a run that is not what it should be: a finding, not a mistake of whoever verifies."""


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; a link, a folder, a pipe or a device is refused (Unreadable), as is none."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise Unreadable(f"{path.name} is missing: is the run finished?") from None
    except (OSError, ValueError) as error:
        link = " (it is a symbolic link: put the file itself there)" if path.is_symlink() else ""
        raise Unreadable(f"{path.name} cannot be opened{link or f' ({error})'}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unreadable(f"{path.name} is no regular file.")
    return handle


def read_bytes(path: Path, most: int = MAX_JSON) -> bytes:
    """The bytes of a small file. Raises Unreadable for one that is missing, not regular or larger than `most`."""
    with os.fdopen(open_regular(path), "rb") as f:
        data = f.read(most + 1)
    if len(data) > most:
        raise Unreadable(f"{path.name} is larger than {most >> 20} MiB: that is no file of ours.")
    return data


def read_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object. Raises Unreadable for anything else, NaN and repeated keys included."""
    return parse_object(read_bytes(path), path.name)


def parse_object(data: bytes, name: str) -> dict[str, Any]:
    """A JSON object from strict UTF-8 JSON; raises Unreadable, which calls it `name`, for anything else."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_no_twins, parse_constant=_no_constant, parse_float=_finite
        )
        if b"\\ud" in data or b"\\uD" in data:  # half of a surrogate pair is a string that no file can hold
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:  # JSON and Unicode errors are ValueErrors too
        raise Unreadable(f"{name} is not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{name} is not a JSON object.")
    return value


def read_packed_lines(path: Path, most: int = MAX_TOTAL) -> Iterator[bytes]:
    """The lines of a gzip file, without their ends, one at a time; never more than MAX_LINE bytes are unpacked ahead.

    Raises Unreadable at the first byte that is not as it should be: damage, a cut, bytes after the last member, a line
    or a total that is too long, a last line that does not end.
    """
    total, rest = 0, b""
    for piece in _unpacked(path):
        total += len(piece)
        if total > most:
            raise Unreadable(f"{path.name} unpacks to more than {most >> 20} MiB.")
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE:
            raise Unreadable(f"{path.name} holds a line of more than {MAX_LINE >> 20} MiB.")
    if rest:
        raise Unreadable(f"{path.name} ends within a line: it was cut short.")


def _unpacked(path: Path) -> Iterator[bytes]:
    """Pieces of at most _CHUNK bytes of what a gzip file of one or more members holds."""
    with os.fdopen(open_regular(path), "rb") as f, gzip.GzipFile(fileobj=f) as unpack:
        try:
            while piece := unpack.read(_CHUNK):
                yield piece
        except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
            raise Unreadable(f"{path.name} cannot be unpacked to its end ({error}): copy it again.") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError(f"a key is repeated among {sorted(found)[:20]}")
    return found


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:40]} is no finite number")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
