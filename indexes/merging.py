"""Many small postings into one, in bounded memory: the postings themselves lie in files, only the words do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from seedbench.indexes.postings import Postings, sort_documents


def merge(parts: Sequence[Callable[[], Postings]], numbers: np.ndarray, scratch: Path) -> Postings:
    """The postings of all documents of `parts` together, the i-th document under the number numbers[i].

    Each part is opened three times and held one at a time. The result's arrays are backed by files in the folder
    `scratch`, which may be deleted once the result is no longer used.
    """
    words = sorted(set().union(*(part().terms for part in parts)))
    number_of = {word: number for number, word in enumerate(words)}
    df = np.zeros(len(words), np.int64)
    owned, pairs, sizes = [], np.empty(0, np.int64), [0, 0]
    for part in parts:
        postings = part()
        owned.append(np.array([number_of[word] for word in postings.terms], np.int32))
        df[owned[-1]] += np.diff(postings.starts)
        pairs = np.union1d(pairs, postings.pairs)
        sizes = [sizes[0] + postings.documents, sizes[1] + postings.length]
    del number_of
    starts = np.concatenate(([0], np.cumsum(df))).astype(np.int64)
    docs = _array(scratch / "docs", np.int32, int(starts[-1]))
    codes = _array(scratch / "codes", np.uint16 if len(pairs) <= 1 << 16 else np.uint32, int(starts[-1]))
    free, first = starts[:-1].copy(), 0  # where the next posting of each word goes; first document of the part
    for part, words_here in zip(parts, owned, strict=True):
        postings = part()
        count = np.diff(postings.starts)
        at = np.repeat(free[words_here] - postings.starts[:-1], count) + np.arange(len(postings.docs))
        docs[at] = numbers[first + postings.docs]
        codes[at] = np.searchsorted(pairs, postings.pairs)[postings.codes]
        free[words_here] += count
        first += postings.total
    sort_documents(starts, docs, codes)
    return Postings(words, starts, docs, codes, pairs, sizes[0], sizes[1], first)


def _array(path: Path, dtype: type, length: int) -> np.ndarray:
    """A file-backed array; numpy cannot map an empty one."""
    if not length:
        return np.empty(0, dtype)
    with path.open("wb") as file:
        size = length * np.dtype(dtype).itemsize
        file.truncate(size)
        if hasattr(os, "posix_fallocate"):  # on a full disk an OSError here, not a SIGBUS at some later write
            os.posix_fallocate(file.fileno(), 0, size)
    return np.asarray(np.memmap(path, dtype, "r+", shape=(length,)))
