"""The kind "bm25" of an index folder: our own BM25 over a corpus file, which keeps the texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes.bm25 import K1, B, Bm25
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.postings import Counter
from seedbench.indexes.records import contents
from seedbench.indexes.scanning import Report
from seedbench.indexes.store import Strings

SETTINGS = {"k1": K1, "b": B}
ARRAYS = "bm25"


class Bm25Index:
    """BM25 whose hits are read from the corpus. The same digest, hits and scores as Bm25(passages, k1, b) in memory."""

    kind, exact = "bm25", True

    def __init__(self, index: Bm25, corpus: Corpus):
        self._index, self._corpus = index, corpus

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first, ties by id; fewer where fewer share a term with it."""
        order, corpus = self._corpus.order, self._corpus
        return [
            [corpus[int(order[rank])]._replace(score=score) for rank, score in self._index.top(query, k)]
            for query in queries
        ]

    def digest(self) -> str:
        return self._index.digest()

    def close(self) -> None:
        """Nothing is held but mapped files."""


def bytes_needed(count: int, text_bytes: int, settings: Mapping[str, Any]) -> int:
    """Bytes of the arrays, from above for English text: at most one posting of 6 bytes every 7 bytes of text."""
    return text_bytes + 64 * count + (1 << 16)


def build(corpus: Corpus, folder: Path, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Count every passage in memory and write the arrays. After a kill all are counted again."""
    counter = Counter()
    for done, passage in enumerate(corpus):
        counter.add(contents(passage))
        if done % 1000 == 0:
            report(done, len(corpus))
    ranks = np.empty(len(corpus), np.int32)
    ranks[corpus.order] = np.arange(len(corpus), dtype=np.int32)
    ids = Strings.of(corpus[int(number)].id for number in corpus.order)
    index = Bm25.of_postings(counter.postings(ranks), corpus.digest(), ids, settings["k1"], settings["b"])
    index.save(folder / ARRAYS)
    report(len(corpus), len(corpus))
    return {"index": index.digest()}


def open(folder: Path, manifest: Mapping[str, Any], corpus: Corpus) -> Bm25Index:
    """The saved arrays, mapped into memory. Raises SeedbenchError where the manifest says other constants."""
    index = Bm25.load(folder / ARRAYS, manifest["facts"].get("index"), check=False)
    if index.constants != (manifest["settings"]["k1"], manifest["settings"]["b"]):
        raise SeedbenchError(f"{folder} has k1 and b {index.constants}, its manifest others: build it again.")
    return Bm25Index(index, corpus)
