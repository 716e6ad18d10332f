"""Encoding a corpus into .npy files, block by block: what is finished stays finished when the build is killed.

    vectors.npy (float32, float16 or int8 [passages, dim]) and, for int8, scales.npy (float32 [passages])

While they grow they are called .part, and blocks.jsonl says after each commit how many rows are there and the sha256
of those that were added. A build that goes on checks them and encodes from there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.encoders import Encoder
from seedbench.indexes.nearest import quantise
from seedbench.indexes.records import contents
from seedbench.indexes.scanning import Report

ROWS = 256  # encoded at a time
PATIENCE, ENOUGH = 5.0, 64 << 20  # a commit after so many seconds or bytes
JOURNAL = "blocks.jsonl"
DTYPES = {"float32": np.float32, "float16": np.float16, "int8": np.int8}


def encode(corpus: Corpus, encoder: Encoder, folder: Path, dtype: str, report: Report) -> dict[str, str]:
    """Write the files into `folder` and return the sha256 of each array's bytes, by name.

    Raises SeedbenchError where an encoder gives what is no number, or the folder holds the blocks of something else.
    """
    writer = _Writer(folder, {"corpus": corpus.digest(), "encoder": encoder.digest(), "dtype": dtype,
                              "shape": [len(corpus), encoder.dim]})  # fmt: skip
    with writer:
        texts = (contents(corpus[i]) for i in range(writer.rows, len(corpus)))
        for batch in _batches(texts):
            vectors = encoder.encode(batch, "passage")
            if not np.isfinite(vectors).all():
                raise SeedbenchError(
                    f"The encoder {encoder.name} gave values that are no numbers after passage {writer.rows}: use "
                    "float32 instead of a smaller dtype, or check its weights."
                )
            writer.add(vectors)
            report(writer.rows, len(corpus))
        return writer.finish()


def bytes_needed(count: int, dim: int, dtype: str) -> int:
    """Bytes of the finished files."""
    return count * (dim * np.dtype(dtype).itemsize + (4 if dtype == "int8" else 0)) + 4096


def load(folder: Path, shape: tuple[int, int], dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """(vectors, scales or None), memory-mapped. Raises SeedbenchError for files of another kind."""
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {"vectors": (shape, DTYPES[dtype])}
    if dtype == "int8":
        wanted["scales"] = ((shape[0],), np.float32)
    found = []
    for name, (size, kind) in wanted.items():
        path = folder / f"{name}.npy"
        try:
            mode: Any = "r" if shape[0] else None  # nothing cannot be mapped
            array = np.asarray(np.load(path, mmap_mode=mode, allow_pickle=False))
        except (OSError, ValueError, EOFError, TypeError, SyntaxError) as error:
            raise SeedbenchError(f"{path} cannot be read ({error}): build the index again.") from error
        if array.shape != size or array.dtype != kind:
            raise SeedbenchError(f"{path} does not hold {kind.__name__} {list(size)}: build the index again.")
        found.append(array)
    return found[0], found[1] if len(found) > 1 else None


class _Writer:
    """The growing files of one build, and their journal."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]):
        self._folder, self._identity = folder, identity
        count, dim = identity["shape"]
        self._arrays: dict[str, tuple[tuple[int, ...], Any]] = {"vectors": ((count, dim), DTYPES[identity["dtype"]])}
        if identity["dtype"] == "int8":
            self._arrays["scales"] = ((count,), np.float32)
        self.rows = 0
        self._waiting: list[dict[str, np.ndarray]] = []
        self._bytes, self._since = 0, time.monotonic()

    def __enter__(self) -> _Writer:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = {name: self._open(name) for name in self._arrays}
        self._starts = {name: self._header(name) for name in self._arrays}
        self._whole = {name: hashlib.sha256() for name in self._arrays}
        kept = self._resume()
        self._journal = (self._folder / JOURNAL).open("w", encoding="utf-8")
        for line in (self._identity, *kept):
            self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()
        for name, file in self._files.items():
            file.truncate(self._starts[name] + self.rows * self._width(name))
            file.seek(0, os.SEEK_END)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._journal.close()

    def _open(self, name: str) -> IO[bytes]:
        part, done = self._folder / f"{name}.npy.part", self._folder / f"{name}.npy"
        if done.exists() and not part.exists():  # killed after the last row, before the index was done
            os.replace(done, part)
        part.touch()
        return part.open("r+b")

    def _header(self, name: str) -> int:
        shape, dtype = self._arrays[name]
        said = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._files[name], said)
        return self._files[name].tell()

    def _width(self, name: str) -> int:
        shape, dtype = self._arrays[name]
        return int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize

    def _resume(self) -> list[dict[str, Any]]:
        """Journal lines whose rows are there as they were written; sets `rows`. Nothing follows a torn one."""
        kept: list[dict[str, Any]] = []
        for number, line in enumerate(_lines(self._folder / JOURNAL)):
            if number == 0:
                if line != self._identity:
                    raise SeedbenchError(
                        f"{self._folder} holds vectors of another corpus or encoder: remove it and build again."
                    )
                continue
            if not self._present(line):
                break
            kept.append(line)
        return kept

    def _present(self, line: Any) -> bool:
        if not isinstance(line, dict) or not isinstance(line.get("rows"), int) or line["rows"] <= self.rows:
            return False
        whole = {name: digest.copy() for name, digest in self._whole.items()}
        for name, file in self._files.items():
            file.seek(self._starts[name] + self.rows * self._width(name))
            data = file.read((line["rows"] - self.rows) * self._width(name))
            if hashlib.sha256(data).hexdigest() != line.get(name):
                return False
            whole[name].update(data)
        self._whole, self.rows = whole, line["rows"]
        return True

    def add(self, vectors: np.ndarray) -> None:
        """Rows as float32; they count as there at once, but are only after a commit."""
        if self._identity["dtype"] == "int8":
            codes, scales = quantise(vectors)
            block = {"vectors": codes, "scales": scales}
        else:
            block = {"vectors": vectors.astype(self._arrays["vectors"][1])}
        self._waiting.append(block)
        self.rows += len(vectors)
        self._bytes += sum(array.nbytes for array in block.values())
        if self._bytes >= ENOUGH or time.monotonic() - self._since >= PATIENCE:
            self._commit()

    def _commit(self) -> None:
        if not self._waiting:
            return
        line: dict[str, Any] = {"rows": self.rows}
        for name, file in self._files.items():
            data = b"".join(block[name].tobytes() for block in self._waiting)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            self._whole[name].update(data)
            line[name] = hashlib.sha256(data).hexdigest()
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()
        self._waiting, self._bytes, self._since = [], 0, time.monotonic()

    def finish(self) -> dict[str, str]:
        """Commit what waits and give the files their names. The journal stays for a build that has more to do."""
        self._commit()
        for name in self._arrays:
            os.replace(self._folder / f"{name}.npy.part", self._folder / f"{name}.npy")
        return {name: digest.hexdigest() for name, digest in self._whole.items()}


def _lines(path: Path) -> Iterator[Any]:
    """The JSON values of a file's lines, up to the first that is torn."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            yield json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            return


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(itertools.islice(texts, ROWS)):
        yield batch
