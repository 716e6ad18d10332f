"""A folder of numpy arrays and one JSON file: a torn write shows, reading maps memory, nothing is unpickled."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from seedbench.core import SeedbenchError

META = "index.json"


class Strings(Sequence[str]):
    """Many strings in two arrays: all their UTF-8 bytes, and int64 offsets, one more than there are strings."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray):
        self.data, self.offsets = data, offsets
        self._view = data.data

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        data = bytearray()
        ends = [0]
        for string in strings:
            data += string.encode("utf-8", "surrogatepass")  # a lone surrogate is text too
            ends.append(len(data))
        return cls(np.frombuffer(bytes(data), np.uint8), np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: Any) -> Any:
        return str(self._view[self.offsets[i] : self.offsets[i + 1]], "utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Both arrays under names that `load` of the same `name` reads."""
        return {f"{name}.data": self.data, f"{name}.offsets": self.offsets}


class Pieces(NamedTuple):
    """A long one-dimensional array that is only made, piece by piece, while it is written."""

    dtype: np.dtype
    length: int
    pieces: Iterable[np.ndarray]

    def save(self, out: IO[bytes]) -> None:
        """Write it as np.save would."""
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(out, header)
        written = 0
        for piece in self.pieces:
            out.write(np.ascontiguousarray(piece, self.dtype).data)
            written += len(piece)
        assert written == self.length, "the pieces are not as long together as was said"


def write(folder: Path, kind: str, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray | Pieces]) -> None:
    """Write `arrays` as .npy files and `meta` beside them. Whoever is interrupted leaves no index, not half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / META).unlink(missing_ok=True)
    files = {}
    for name, array in arrays.items():
        part = folder / f"{name}.npy.part"
        with part.open("wb") as out:
            if isinstance(array, Pieces):
                array.save(out)
            else:
                _save(out, array)
        files[name] = {"bytes": part.stat().st_size, "sha256": _sha256(part)}
        os.replace(part, folder / f"{name}.npy")
    part = folder / f"{META}.part"
    part.write_text(json.dumps({"kind": kind, **meta, "files": files}, indent=1), encoding="utf-8")
    os.replace(part, folder / META)


def _save(out: IO[bytes], array: np.ndarray) -> None:
    try:
        np.save(out, array, allow_pickle=False)
    except OSError as error:
        if error.errno is not None:
            raise
        # numpy counts what it could write but drops the reason: a short write to a file is a full disk or quota
        raise OSError(errno.ENOSPC, f"No space left on device ({error})") from error


def read(folder: Path, kind: str, check: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The meta data and the memory-mapped arrays of a folder that `write` made for the same `kind`.

    Sizes are always checked, contents with `check` (about a second a gigabyte). Raises SeedbenchError for a folder
    that is missing, unfinished, damaged or something else.
    """
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        known = meta["kind"] == kind and isinstance(meta["files"], dict)
    except FileNotFoundError:
        raise SeedbenchError(f"{folder} holds no finished index ({META} is missing): build it again.") from None
    except (ValueError, TypeError, KeyError, OSError, RecursionError):
        known = False
    if not known:
        raise SeedbenchError(f"{folder / META} does not describe an index of kind {kind}: build it again.")
    arrays = {}
    for name, said in meta["files"].items():
        path = folder / f"{name}.npy"
        try:
            sound = path.stat().st_size == said["bytes"] and (not check or _sha256(path) == said["sha256"])
            # A plain view: indexing numpy's memmap class is several times slower.
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)) if sound else None
        except (OSError, EOFError, ValueError, TypeError, KeyError, OverflowError, SyntaxError, tokenize.TokenError):
            array = None  # numpy parses the header as Python
        if array is None:
            raise SeedbenchError(f"{path} is missing or not the file that was written: build the index again.")
        arrays[name] = array
    return meta, arrays


Types = Mapping[str, type | tuple[type, ...]]  # what each key of a head must be


def need(
    folder: Path,
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    types: Types,
    dtypes: Mapping[str, str],
    lengths: Mapping[str, int] | None = None,
) -> None:
    """Raises SeedbenchError where a folder's head lacks a key of `types` or holds one of another type, and where a
    one-dimensional array is absent or of none of its `dtypes` ("u2 u4"), or not of its length. `name.data` and
    `name.offsets` must fit together. Reads no more than the ends of the arrays."""
    for key, wanted in types.items():
        if not isinstance(meta.get(key), wanted):
            raise SeedbenchError(f"{folder / META} lacks {key}, or holds another type there: build it again.")
    for name, wanted_dtypes in dtypes.items():
        array = arrays.get(name)
        fits = array is not None and array.ndim == 1 and array.dtype in [np.dtype(d) for d in wanted_dtypes.split()]
        if fits and lengths and name in lengths:
            fits = len(array) == lengths[name]  # type: ignore[arg-type]
        if fits and name.endswith(".offsets"):
            data = arrays.get(name.replace(".offsets", ".data"))
            fits = bool(data is not None and len(array) and array[0] == 0 and array[-1] == len(data))  # type: ignore
        if not fits:
            raise SeedbenchError(f"{folder} holds no {name} that fits the rest: build it again.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
