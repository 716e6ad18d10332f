"""Documents in, postings out: counts every term of a stream of documents in bounded extra memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seedbench.indexes.analysis import term, tokens

BLOCK = 1 << 20  # tokens that are sorted at once


def length_code(length: int) -> int:
    """Lucene's SmallFloat.intToByte4: a length in one byte, exact below 40, then 4 bits of mantissa."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(rest.bit_length() - 4, 0)
    return 24 + (rest if rest < 8 else ((shift + 1) << 3) + ((rest >> shift) & 7))


def length_value(code: int) -> int:
    """SmallFloat.byte4ToInt: the length that a code stands for."""
    if code < 24:
        return code
    mantissa, shift = (code - 24) & 7, ((code - 24) >> 3) - 1
    return 24 + (mantissa if shift < 0 else (mantissa | 8) << shift)


@dataclass(frozen=True, slots=True)
class Postings:
    """Who holds what: the documents of term t are docs[starts[t]:starts[t+1]], ascending.

    `pairs[codes[i]]` is the (term frequency << 8 | length code) of posting i: few pairs occur, so a code is small.
    """

    terms: list[str]  # ascending
    starts: np.ndarray  # int64 [terms + 1]
    docs: np.ndarray  # int32 [postings]
    codes: np.ndarray  # uint16, or uint32 where there are more pairs than that
    pairs: np.ndarray  # int64
    documents: int  # with at least one term: Lucene's docCount
    length: int  # terms in all documents together
    total: int  # documents, also those without a term

    def runs(self) -> Iterator[tuple[int, np.ndarray, slice]]:
        """(first term, starts within the run, slice of the postings) of successive terms, some millions a run."""
        return runs(self.starts)


def runs(starts: np.ndarray) -> Iterator[tuple[int, np.ndarray, slice]]:
    """What Postings.runs says, of the starts alone."""
    first = 0
    while first < len(starts) - 1:
        last = max(int(np.searchsorted(starts, starts[first] + 4 * BLOCK, "right")) - 1, first + 1)
        yield first, starts[first:last] - starts[first], slice(int(starts[first]), int(starts[last]))
        first = last


class _TermIds(dict[str, int]):
    """Token as it stands in the text -> term number, -1 for a stop word; learns as it is asked."""

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}

    def __missing__(self, token: str) -> int:
        word = term(token)
        self[token] = number = -1 if word is None else self.terms.setdefault(word, len(self.terms))
        return number


class Counter:
    """Takes documents one by one in any order; `postings` renumbers them."""

    def __init__(self) -> None:
        self._ids = _TermIds()
        self._pending = array("i")  # term numbers of the documents that wait to be counted
        self._sizes: list[int] = []
        self._codes: list[int] = []
        self._blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # terms, docs, pairs; by term, then doc
        self._counted = self._documents = self._length = 0

    def add(self, text: str) -> None:
        """Count the terms of the next document."""
        ids = self._ids
        found = [number for token in tokens(text) if (number := ids[token]) >= 0]
        self._pending.extend(found)
        self._sizes.append(len(found))
        self._codes.append(length_code(len(found)))
        self._documents += bool(found)
        self._length += len(found)
        if len(self._pending) >= BLOCK:
            self._flush()

    def _flush(self) -> None:
        terms = np.frombuffer(self._pending, np.int32) if self._pending else np.empty(0, np.int32)
        docs = np.repeat(np.arange(len(self._sizes)), self._sizes)
        keys, tf = np.unique(terms.astype(np.int64) << 32 | docs, return_counts=True)
        docs = keys & 0xFFFFFFFF
        pairs = tf.astype(np.int64) << 8 | np.array(self._codes, np.int64)[docs]
        self._blocks.append(((keys >> 32).astype(np.int32), (docs + self._counted).astype(np.int32), pairs))
        self._counted += len(self._sizes)
        self._pending, self._sizes, self._codes = array("i"), [], []

    def postings(self, numbers: np.ndarray) -> Postings:
        """All that was added, the i-th document under the number numbers[i]. Empties the counter."""
        self._flush()
        terms = sorted(self._ids.terms)
        old = np.array([self._ids.terms[word] for word in terms], np.int64)
        new = np.empty_like(old)
        new[old] = np.arange(len(old))
        df = sum((np.bincount(b[0], minlength=len(old)) for b in self._blocks), np.zeros(len(old), np.int64))
        starts = np.concatenate(([0], np.cumsum(df[old]))).astype(np.int64)
        pairs = np.unique(np.concatenate([np.unique(b[2]) for b in self._blocks]))
        docs = np.empty(starts[-1], np.int32)
        codes = np.empty(starts[-1], np.uint16 if len(pairs) <= 1 << 16 else np.uint32)
        free = starts[:-1].copy()  # where the next posting of each term goes
        self._blocks.reverse()
        while self._blocks:
            block_terms, block_docs, block_pairs = self._blocks.pop()
            first, run, count = np.unique(block_terms, return_index=True, return_counts=True)
            at = np.repeat(free[new[first]] - run, count) + np.arange(len(block_terms))
            docs[at] = numbers[block_docs]
            codes[at] = np.searchsorted(pairs, block_pairs)
            free[new[first]] += count
        if np.any(numbers[1:] < numbers[:-1]):
            sort_documents(starts, docs, codes)
        return Postings(terms, starts, docs, codes, pairs, self._documents, self._length, self._counted)


def sort_documents(starts: np.ndarray, docs: np.ndarray, codes: np.ndarray) -> None:
    """Put the documents of every term in ascending order, in place, some millions of postings at a time."""
    for _, inner, part in runs(starts):
        owner = np.repeat(np.arange(len(inner)), np.diff(inner, append=part.stop - part.start))
        order = np.argsort(owner << 32 | docs[part])
        docs[part], codes[part] = docs[part][order], codes[part][order]
