"""BM25 with Lucene's exact arithmetic, without Java: for corpora up to some 10^5 passages.

    score(query, document) = sum over the query's terms of  w - w / (1 + tf * c[length])           in float32
    w = (times in the query) * ln(1 + (N - df + 0.5) / (df + 0.5))                                 in float32
    c[length] = 1 / (k1 * ((1 - b) + b * length / average length))                                 in float32

after Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the form that Lucene
has had since 8.0 (no factor k1 + 1). N counts documents that have a term. `length` went through one byte, the average
did not. The sum is kept in float64, where it is exact, and rounded once to float32; ties go to the smaller id.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import store
from seedbench.indexes.analysis import ANALYSIS, analyze
from seedbench.indexes.postings import Counter, Postings, length_value
from seedbench.indexes.store import Strings

KIND = "bm25-1"
K1, B = 0.9, 0.4  # Anserini's defaults
_HEAD: store.Types = {"analysis": str, "k1": (int, float), "b": (int, float), "documents": int, "with_terms": int,
                      "corpus": str, "digest": str}  # fmt: skip
_ARRAYS = {f"{name}.{part}": dtype for name in ("terms", "ids", "titles", "texts")
           for part, dtype in (("data", "u1"), ("offsets", "i8"))} | {
    "starts": "i8", "docs": "i4", "codes": "u2 u4", "factors": "f4", "best": "f4"}  # fmt: skip
Document = Passage | tuple[str, str]


def check_settings(k1: float, b: float) -> None:
    """Raises SeedbenchError for settings out of range."""
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise SeedbenchError(f"k1 is {k1} and b is {b}: k1 must be a number from 0 up, b one from 0 to 1.")


class Bm25:
    """A frozen index, held in arrays that many processes can share once it is saved and loaded.

    `documents` are Passages, whose title and text are indexed together and given back by `search`, or (id, text)
    pairs, of which the id alone is kept. `progress` is called now and then with the number of documents read.
    Defaults of k1 and b are Anserini's. Raises SeedbenchError for an id that comes twice or settings out of range.
    """

    def __init__(
        self,
        documents: Iterable[Document] = (),
        k1: float = K1,
        b: float = B,
        progress: Callable[[int], object] | None = None,
    ):
        check_settings(k1, b)
        counter, kept = Counter(), []
        for document in documents:
            passage = document if isinstance(document, Passage) else Passage(document[0], "", document[1], 0.0)
            contents = f"{passage.title}\n{passage.text}" if passage.title else passage.text
            digest = document_digest(*passage[:3])
            counter.add(contents)
            kept.append((passage.id, digest, *(passage[1:3] if document is passage else ("", ""))))
            if progress is not None and len(kept) % 1000 == 0:
                progress(len(kept))
        order = sorted(range(len(kept)), key=lambda i: kept[i][0])
        for i, j in pairwise(order):
            if kept[i][0] == kept[j][0]:
                raise SeedbenchError(f"Two documents have the id {kept[i][0]!r}: give each its own.")
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        postings = counter.postings(numbers)
        corpus = hashlib.sha256(b"".join(kept[i][1] for i in order)).hexdigest()
        if progress is not None:
            progress(len(kept))
        ids, titles, texts = (Strings.of(str(kept[i][column]) for i in order) for column in (0, 2, 3))
        self._set_counted(postings, corpus, ids, titles, texts, k1, b)

    @classmethod
    def of_postings(cls, postings: Postings, corpus: str, ids: Strings, k1: float = K1, b: float = B) -> Bm25:
        """The index of documents counted elsewhere: `ids` ascending, `corpus` their digest (`document_digest`)."""
        check_settings(k1, b)
        index = cls.__new__(cls)
        empty = Strings(np.empty(0, np.uint8), np.zeros(len(ids) + 1, np.int64))
        index._set_counted(postings, corpus, ids, empty, empty, k1, b)
        return index

    def _set_counted(
        self, postings: Postings, corpus: str, ids: Strings, titles: Strings, texts: Strings, k1: float, b: float
    ) -> None:
        meta = {"analysis": ANALYSIS, "k1": k1, "b": b, "documents": len(ids), "with_terms": postings.documents,
                "corpus": corpus}  # fmt: skip
        arrays = _weights(postings, k1, b) | Strings.of(postings.terms).arrays("terms")
        for name, strings in (("ids", ids), ("titles", titles), ("texts", texts)):
            arrays |= strings.arrays(name)
        self._set(meta, arrays)

    def _set(self, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self._meta, self._arrays = meta, arrays
        self.ids, self._titles, self._texts, self._terms = (
            Strings(arrays[f"{name}.data"], arrays[f"{name}.offsets"]) for name in ("ids", "titles", "texts", "terms")
        )
        self._starts, self._docs, self._codes = arrays["starts"], arrays["docs"], arrays["codes"]
        self._factors, self._best = arrays["factors"], arrays["best"]

    def __len__(self) -> int:
        return len(self.ids)

    def digest(self) -> str:
        """Names corpus, analysis and settings; the order in which documents came does not matter."""
        named = {name: self._meta[name] for name in ("analysis", "k1", "b", "documents", "corpus")}
        return hashlib.sha256(json.dumps([KIND, named], sort_keys=True).encode()).hexdigest()

    @property
    def constants(self) -> tuple[float, float]:
        """k1 and b."""
        return float(self._meta["k1"]), float(self._meta["b"])

    def save(self, folder: Path | str) -> None:
        """Write the index into `folder`, which is made if it is not there."""
        store.write(Path(folder), KIND, self._meta | {"digest": self.digest()}, self._arrays)

    @classmethod
    def load(cls, folder: Path | str, digest: str | None = None, check: bool = True) -> Bm25:
        """A saved index, memory-mapped. `digest` is what it must have; without `check` only sizes are compared."""
        meta, arrays = store.read(Path(folder), KIND, check)
        store.need(Path(folder), meta, arrays, _HEAD, _ARRAYS)
        terms = len(arrays["terms.offsets"]) - 1
        lengths = {"starts": terms + 1, "best": terms, "codes": len(arrays["docs"])}
        lengths |= {f"{name}.offsets": meta["documents"] + 1 for name in ("ids", "titles", "texts")}
        store.need(Path(folder), meta, arrays, {}, _ARRAYS, lengths)
        index = cls.__new__(cls)
        said = meta.pop("digest")
        index._set(meta, arrays)
        own = index.digest()
        if said != own or meta["analysis"] != ANALYSIS:
            raise SeedbenchError(f"{folder} was built by another version or with other settings: build it again.")
        if digest is not None and digest != own:
            raise SeedbenchError(f"{folder} is an index of another corpus or of other settings: build it again.")
        return index

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best documents of each query, best first, ties by id; fewer where fewer share a term with it."""
        return [
            [Passage(self.ids[i], self._titles[i], self._texts[i], score) for i, score in self.top(query, k)]
            for query in queries
        ]

    def top(self, query: str, k: int) -> list[tuple[int, float]]:
        """(number of the document in `ids`, score) of the k best, as `search` orders them."""
        if k < 1:
            raise SeedbenchError(f"k is {k}: ask for 1 hit or more.")
        total = np.zeros(len(self.ids))
        candidates = self._add_until_decided(total, self._weighted(query), k)
        scores = (total if candidates is None else total[candidates]).astype(np.float32)
        hits = _top(scores, k)
        numbers = hits if candidates is None else candidates[hits]
        return list(zip(numbers.tolist(), scores[hits].tolist(), strict=True))

    def scores(self, query: str) -> np.ndarray:
        """float32 [documents]: the score of every document, in the order of `ids`; 0 where no term is shared."""
        total = np.zeros(len(self.ids))
        for number, weight in self._weighted(query):
            part = slice(self._starts[number], self._starts[number + 1])
            np.add.at(total, self._docs[part], self._impacts(weight)[self._codes[part]])
        return total.astype(np.float32)

    def _weighted(self, query: str) -> list[tuple[int, np.float32]]:
        """(term number, w) of the query's terms that occur in the corpus."""
        found = []
        for word, count in Multiset(analyze(query)).items():
            number = bisect_left(self._terms, word)
            if number < len(self._terms) and self._terms[number] == word:
                df = int(self._starts[number + 1] - self._starts[number])
                idf = math.log(1 + (self._meta["with_terms"] - df + 0.5) / (df + 0.5))
                found.append((number, np.float32(count) * np.float32(idf)))
        return found

    def _impacts(self, weight: np.float32) -> np.ndarray:
        """float64 that holds float32 values: what a term of this weight adds, for each code of a posting."""
        return (weight - weight / self._factors).astype(np.float64)

    def _add_until_decided(self, total: np.ndarray, found: list[tuple[int, np.float32]], k: int) -> np.ndarray | None:
        """Add up the scores in `total`, strongest terms first. Once the terms that are left cannot lift any further
        document among the k best, only the documents in reach are finished, and their numbers returned (ascending).
        (Turtle and Flood, "Query evaluation: strategies and optimizations", 1995: the quit rule of max-score.)
        """
        most = {number: float(weight - weight / self._best[number]) for number, weight in found}
        found = sorted(found, key=lambda term: -most[term[0]])
        reach = math.fsum(most.values())  # sum() rounds otherwise from Python 3.12 on
        candidates = None
        for number, weight in found:
            docs = self._docs[self._starts[number] : self._starts[number + 1]]
            codes = self._codes[self._starts[number] : self._starts[number + 1]]
            impacts = self._impacts(weight)
            if candidates is not None or len(docs) * 16 > len(total):  # a long list is worth a look for a way around
                partial = total if candidates is None else total[candidates]
                needed = _kth(partial, k) * (1 - 1e-6) - reach * (1 + 1e-6)  # the margin covers rounding to float32
                if needed > 0:
                    kept = np.flatnonzero(partial >= needed)
                    candidates = kept.astype(docs.dtype) if candidates is None else candidates[kept]
            if candidates is None or len(candidates) * 16 > len(docs):
                np.add.at(total, docs, impacts[codes])
            else:
                at = np.searchsorted(docs, candidates)
                at[at == len(docs)] = 0
                shared = docs[at] == candidates
                total[candidates[shared]] += impacts[codes[at[shared]]]
            reach -= most[number]
        return candidates


def _kth(scores: np.ndarray, k: int) -> float:
    """A lower bound of the k-th largest score: the k-th largest maximum of many groups. 0 if k asks for nearly all."""
    groups = min(len(scores), max(8 * k, 4096))
    if k > groups:
        return 0.0
    size = len(scores) // groups
    maxima = scores[: size * groups].reshape(size, groups).max(axis=0)
    return float(np.partition(maxima, groups - k)[groups - k])


def _top(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest positive scores, best first, ties by index. Sorts no more than k of them."""
    hits = np.flatnonzero((scores > 0) & (scores >= _kth(scores, k)))
    if len(hits) > k:
        last = np.partition(scores[hits], len(hits) - k)[len(hits) - k]
        above, level = hits[scores[hits] > last], hits[scores[hits] == last]
        hits = np.concatenate([above, level[: k - len(above)]])
    return hits[np.lexsort((hits, -scores[hits]))]


def document_digest(document: str, title: str, text: str) -> bytes:
    """What a corpus digest is made of: the sha256 of all documents' digests, by ascending id."""
    return hashlib.sha256(json.dumps((document, title, text)).encode()).digest()


def _weights(postings: Postings, k1: float, b: float) -> dict[str, np.ndarray]:
    """The arrays of an index: `factors` holds 1 + tf * c[length] for each code, `best` the largest of each term."""
    one, saturation, share = np.float32(1), np.float32(k1), np.float32(b)
    average = np.float32(postings.length / max(postings.documents, 1))
    lengths = np.array([length_value(code) for code in range(256)], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):  # k1 = 0 means that any frequency counts in full
        inverse = one / (saturation * ((one - share) + share * lengths / average))
        factors = one + (postings.pairs >> 8).astype(np.float32) * inverse[postings.pairs & 0xFF]
    best = np.empty(0, np.float32)
    if postings.terms:
        best = np.concatenate(
            [np.maximum.reduceat(factors[postings.codes[part]], starts) for _, starts, part in postings.runs()]
        )
    return {"starts": postings.starts, "docs": postings.docs, "codes": postings.codes, "factors": factors,
            "best": best}  # fmt: skip
