"""The k rows of a matrix with the largest inner products, by blocked matrix products: exact search, memory-mapped.

Rows are float32, float16, or int8 with one scale a row. Products of int8 rows and queries are whole numbers below 2^24,
which float32 holds exactly whatever the order of the sum, and the two scales come after: so `int8` gives the same
hits and scores on any machine, with any BLAS and any number of threads. Float rows do not: sums round otherwise there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.indexes.threads import cpus, one_blas_thread

BLOCK = 2048  # rows: with as many queries as below, the products stay in a core's cache
QUERIES = 256
GROUP = 64
LEVELS = 127
WIDEST = (1 << 24) // LEVELS**2  # 1,040 columns: beyond, the whole numbers above would be rounded
KEPT = 256 << 20  # bytes: rows that are no more than this as float32 are kept so, in memory


class Hits(NamedTuple):
    """Row numbers and scores of one query, at least its k best; all that tie with the k-th are there. Unordered."""

    numbers: np.ndarray
    scores: np.ndarray


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 [n, dim] and float32 scales [n]: code * scale is the vector, to half a step of its largest component / 127.
    Every step is one correctly rounded operation."""
    most = np.abs(vectors).max(axis=1, initial=0).astype(np.float32)
    divisor = np.where(most > 0, most, np.float32(1))
    codes = np.rint(vectors.astype(np.float32) / divisor[:, None] * np.float32(LEVELS)).astype(np.int8)
    return codes, most / np.float32(LEVELS)


class Rows:
    """A matrix to search. `scales` belong to int8 rows. `threads` of 0 means one for each CPU that may be used."""

    def __init__(self, rows: np.ndarray, scales: np.ndarray | None = None, threads: int = 0):
        if scales is not None and rows.shape[1] > WIDEST:
            raise SeedbenchError(f"int8 holds vectors of up to {WIDEST} dimensions, not {rows.shape[1]}: use fp16.")
        self._scales = scales
        small = rows.shape[0] * rows.shape[1] * 4 <= KEPT
        self._rows = rows.astype(np.float32) if small and rows.dtype != np.float32 else rows
        self._threads = threads or cpus()

    def top(self, queries: np.ndarray, k: int) -> list[Hits]:
        """The k best rows of each query. `queries` is float32 [n, dim]. All rows where there are no more than k."""
        found: list[Hits] = []
        with one_blas_thread():
            for start in range(0, len(queries), QUERIES):
                found += self._top(queries[start : start + QUERIES], k)
        return found

    def _top(self, queries: np.ndarray, k: int) -> list[Hits]:
        columns, scales = np.ascontiguousarray(queries.T, np.float32), None
        if self._scales is not None:
            codes, scales = quantise(queries)
            columns = np.ascontiguousarray(codes.T, np.float32)
        blocks = range(0, len(self._rows), BLOCK)
        workers = max(1, min(self._threads, len(blocks) // 2))
        share = -(-len(blocks) // workers)
        parts = [blocks[i : i + share] for i in range(0, len(blocks), share)]
        if len(parts) <= 1:
            kept = [self._best(part, columns, scales, k) for part in parts]
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                kept = list(pool.map(lambda part: self._best(part, columns, scales, k), parts))
        best = _Best(len(queries), k)
        for one in kept:
            best.add(one.queries, one.numbers, one.scores)
        return best.split()

    def _best(self, blocks: range, columns: np.ndarray, scales: np.ndarray | None, k: int) -> _Best:
        """Every product of some blocks; only those that reach the k-th best so far are looked at."""
        count = columns.shape[1]
        best = _Best(count, k)
        products = np.empty((BLOCK, count), np.float32)
        reach = np.empty((BLOCK, count), bool)
        copy = np.empty((BLOCK, len(columns)), np.float32)
        for start in blocks:
            rows = self._rows[start : start + BLOCK]
            if rows.dtype != np.float32:
                copy[: len(rows)] = rows
                rows = copy[: len(rows)]
            found = np.matmul(rows, columns, out=products[: len(rows)])
            if self._scales is not None and scales is not None:
                found *= self._scales[start : start + BLOCK, None]
                found *= scales
            if start == blocks.start:
                best.expect(found)
            at = np.flatnonzero(np.greater_equal(found, best.least, out=reach[: len(rows)]))
            which = at // count
            best.add(at - which * count, which + start, found.ravel()[at])
        return best


class _Best:
    """The k best scores of several queries so far, and all that tie with the k-th; `least` is what a row must reach."""

    def __init__(self, count: int, k: int):
        self._k = k
        self.least = np.full(count, -np.inf, np.float32)
        self.queries, self.numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        self.scores = np.empty(0, np.float32)

    def expect(self, found: np.ndarray) -> None:
        """Before the first products are added: the k-th largest of many groups' largest is reached by k rows."""
        groups = len(found) // GROUP
        if groups >= self._k:
            largest = found[: groups * GROUP].reshape(groups, GROUP, -1).max(axis=1)
            self.least = np.partition(largest, groups - self._k, axis=0)[groups - self._k].copy()

    def add(self, queries: np.ndarray, numbers: np.ndarray, scores: np.ndarray) -> None:
        queries, numbers = np.concatenate([self.queries, queries]), np.concatenate([self.numbers, numbers])
        scores = np.concatenate([self.scores, scores])
        order = np.lexsort((-scores, queries))
        starts = np.searchsorted(queries[order], np.arange(len(self.least)))
        counts = np.bincount(queries, minlength=len(self.least))
        full = counts >= self._k
        last = scores[order[starts[full] + self._k - 1]]
        self.least[full] = np.maximum(self.least[full], last)
        kept = order[scores[order] >= self.least[queries[order]]]
        self.queries, self.numbers, self.scores = queries[kept], numbers[kept], scores[kept]

    def split(self) -> list[Hits]:
        ends = np.searchsorted(self.queries, np.arange(len(self.least) + 1))
        return [Hits(self.numbers[i:j], self.scores[i:j]) for i, j in pairwise(ends)]
