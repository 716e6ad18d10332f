"""The kind "lucene" of an index folder: real Lucene by the jar that pyserini ships, for corpora of any size.

Passages are added by ascending id, so that Lucene's own order among equal scores is the contract's (the smaller id
first), and a passage's number in Lucene is its rank by id. Neither text nor positions nor term vectors are stored: the
text is the corpus file's. Ids are, so that Pyserini's LuceneSearcher opens the index too.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import jvm
from seedbench.indexes.bm25 import K1, B, check_settings
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.java_home import find_jar
from seedbench.indexes.lucene_engine import Searcher, documents, join, version, write_part
from seedbench.indexes.records import RecordError, contents, passage, refuse_pointer
from seedbench.indexes.scanning import Report

KIND = "lucene-1"
SETTINGS = {"k1": K1, "b": B}
INDEX, PARTS = "lucene", "lucene.parts"
PART = (50_000, 500_000)  # passages: least and most of a part, after which a killed build goes on


class LuceneIndex:
    """Lucene over a corpus file. `warm` first where the first queries must not be slow."""

    kind, exact = "lucene", True

    def __init__(self, searcher: Searcher, corpus: Corpus, digest: str):
        self._searcher, self._corpus, self._digest = searcher, corpus, digest

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first, ties by id; fewer where fewer share a term with it."""
        order, corpus = self._corpus.order, self._corpus
        return [
            [corpus[int(order[rank])]._replace(score=score) for rank, score in hits]
            for hits in self._searcher.top(queries, k)
        ]

    def digest(self) -> str:
        """Names corpus, k1, b, and the versions of Lucene that made the index and that search it."""
        return self._digest

    def warm(self, queries: int = 2000) -> None:
        """Search for passages' beginnings until Java has compiled what searching takes."""
        step = max(1, len(self._corpus) // queries)
        self._searcher.top([p.title or p.text[:80] for p in self._corpus[::step][:queries]], 3)

    def close(self) -> None:
        self._searcher.close()


class ForeignIndex:
    """An index that Pyserini or Anserini built. Texts come from what it stores (`raw`, else `contents`), or from a
    corpus. Ties go to the smaller id."""

    kind, exact = "lucene", True

    def __init__(self, searcher: Searcher, corpus: Corpus | None, digest: str):
        self._searcher, self._corpus, self._digest = searcher, corpus, digest

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first, ties by id; fewer where fewer share a term with it."""
        found = self._searcher.top(queries, k)
        numbers = sorted({number for hits in found for number, _ in hits})
        known = dict(zip(numbers, self._passages(numbers), strict=True))
        return [[known[number]._replace(score=score) for number, score in hits] for hits in found]

    def _passages(self, numbers: Sequence[int]) -> list[Passage]:
        return [self._passage(*row) for row in self._searcher.fields(numbers, ("id", "raw", "contents"))]

    def _passage(self, id: str | None, raw: str | None, text: str | None) -> Passage:
        if self._corpus is not None:
            try:
                return self._corpus[self._corpus.number(str(id))]
            except KeyError:
                raise SeedbenchError(
                    f"{self._searcher.folder} holds the id {id!r}, which the corpus has not: name its own corpus."
                ) from None
        try:
            if raw is not None and raw.startswith("{"):
                return passage(raw.encode())
            if (text := raw if text is None else text) is not None:
                return passage(json.dumps({"id": id, "contents": text}).encode())
        except RecordError as error:
            raise SeedbenchError(f"In {self._searcher.folder} the stored passage {id!r} {error}.") from error
        raise SeedbenchError(
            f"{self._searcher.folder} stores no texts (it was built without -storeRaw): name the corpus file too."
        )

    def digest(self) -> str:
        """Names the files of the index, k1, b, and the version of Lucene that searches it."""
        return self._digest

    def close(self) -> None:
        self._searcher.close()


def open_foreign(folder: Path, corpus: Corpus | None = None, k1: float = K1, b: float = B) -> ForeignIndex:
    """An index of Pyserini's or Anserini's, read-only. k1 and b are Anserini's defaults unless given."""
    check_settings(k1, b)
    names = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != "write.lock" and path.is_file():
            refuse_pointer(path)
            with path.open("rb") as file:  # a Lucene file ends with the checksum of all that comes before
                file.seek(max(path.stat().st_size - 16, 0))
                names.update(json.dumps([path.name, path.stat().st_size, file.read().hex()]).encode())
    searcher = Searcher(folder, k1, b, by_id=True)
    made = [KIND, "foreign", names.hexdigest(), k1, b, version(), "" if corpus is None else corpus.digest()]
    index = ForeignIndex(searcher, corpus, _sha256(made))
    try:
        index._passages([0][: searcher.count])  # says at once that texts are missing
    except SeedbenchError:
        index.close()
        raise
    return index


def bytes_needed(count: int, text_bytes: int, settings: Mapping[str, Any]) -> int:
    """Bytes of the index, twice (parts and whole), from above for English text."""
    return 2 * (text_bytes // 3 + 40 * count) + (1 << 20)


def build(corpus: Corpus, folder: Path, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Index in parts, as many at a time as there are threads, and join them. A killed build keeps finished parts."""
    check_settings(settings["k1"], settings["b"])
    java = jvm.start()
    size = min(max(len(corpus) // 64, PART[0]), PART[1])
    starts = list(range(0, len(corpus), size))
    parts = [folder / PARTS / f"{i:05}" for i in range(len(starts))]
    lengths = [min(size, len(corpus) - start) for start in starts]
    total = len(corpus) + len(corpus) // 10  # joining counts as a tenth
    joined, whole = documents(folder / INDEX), folder / INDEX
    first = next((i for i, start in enumerate(starts) if start >= joined), len(starts))
    todo = [i for i in range(first, len(starts)) if documents(parts[i]) != lengths[i]]
    done = [len(corpus) - sum(lengths[i] for i in todo)]
    lock, stop = Lock(), Event()

    def count(some: int) -> None:
        with lock:
            done[0] += some
            report(done[0], total)

    def passages(i: int) -> Iterator[tuple[str, str]]:
        for number in corpus.order[starts[i] : starts[i] + lengths[i]]:
            found = corpus[int(number)]
            yield found.id, contents(found)

    constants = (float(settings["k1"]), float(settings["b"]))
    buffer = max(16.0, min(256.0, (java.heap_bytes() >> 20) / (4 * java.workers())))
    with ThreadPoolExecutor(java.workers()) as pool:
        jobs = [pool.submit(write_part, parts[i], passages(i), constants, buffer, stop, count) for i in todo]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    join(
        whole,
        parts[first:],
        constants,
        lambda ready: report(len(corpus) + ready * (total - len(corpus)) // (len(parts) + 1), total),
    )
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    _check_order(whole, corpus, constants)
    report(total, total)
    return {"lucene": version(), "anserini": find_jar().name, "k1": constants[0], "b": constants[1]}


def _check_order(whole: Path, corpus: Corpus, constants: tuple[float, float]) -> None:
    """That passages have the numbers that search relies on: the count, and a thousand ids."""
    searcher = Searcher(whole, *constants)
    try:
        ranks = range(0, len(corpus), max(1, len(corpus) // 1000))
        ids = [row[0] for row in searcher.fields(list(ranks), ["id"])] if searcher.count == len(corpus) else None
        if ids != [jvm.text(corpus[int(corpus.order[rank])].id) for rank in ranks]:
            raise SeedbenchError(f"{whole} does not hold the passages in order: remove the folder and build it again.")
    finally:
        searcher.close()


def open(folder: Path, manifest: Mapping[str, Any], corpus: Corpus) -> LuceneIndex:
    """The index, ready to search. Raises SeedbenchError where a newer Lucene built it."""
    facts, settings = manifest["facts"], manifest["settings"]
    made = str(facts.get("lucene"))
    if _numbers(made)[:1] > _numbers(version())[:1]:
        raise SeedbenchError(
            f"{folder} was built by Lucene {made} ({facts.get('anserini')}); here is {version()} "
            f"({find_jar().name}): install the pyserini that built it (2.x for Lucene 10), or build it again."
        )
    k1, b = float(settings["k1"]), float(settings["b"])
    if (k1, b) != (facts.get("k1"), facts.get("b")):
        raise SeedbenchError(
            f"{folder} was built with k1 {facts.get('k1')} and b {facts.get('b')}, and its manifest says {k1} and {b}: "
            "build it again."
        )
    searcher = Searcher(folder / INDEX, k1, b)
    if searcher.count != len(corpus):
        searcher.close()
        raise SeedbenchError(f"{folder} holds {searcher.count} passages, its corpus {len(corpus)}: build it again.")
    return LuceneIndex(searcher, corpus, _sha256([KIND, corpus.digest(), k1, b, made, version()]))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())


def _sha256(named: list[Any]) -> str:
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()
