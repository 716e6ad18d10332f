"""Lucene's writer and searcher, in process. Passages are numbered as they are added; everything else is lucene.py's.

A query is a bag of words by Anserini's analyzer and query generator, so no character of it is syntax. Hits come back
as one JSON text a query (Jackson is in Anserini's jar): a Java object less to wrap for every hit.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.indexes import jvm
from seedbench.indexes.java_home import find_jar
from seedbench.indexes.jvm import java_class

LUCENE = "org.apache.lucene"
_L = "Lorg/apache/lucene"
WRITER = {"addDocument": "(Ljava/lang/Iterable;)J", "addIndexes": f"([{_L}/store/Directory;)J", "commit": "()J",
          "forceMerge": "(I)V", "rollback": "()V", "close": "()V"}  # fmt: skip
SET_TEXT = {"setStringValue": "(Ljava/lang/String;)V"}
SET_BYTES = {"setBytesValue": f"({_L}/util/BytesRef;)V"}
SEARCH = {"search": f"({_L}/search/Query;I){_L}/search/TopDocs;"}
SEARCH_BY_ID = {"search": f"({_L}/search/Query;I{_L}/search/Sort;Z){_L}/search/TopFieldDocs;"}
BUILD = {"buildQuery": f"(Ljava/lang/String;{_L}/analysis/Analyzer;Ljava/lang/String;){_L}/search/Query;"}
WRITE = {"writeValueAsString": "(Ljava/lang/Object;)Ljava/lang/String;"}
MOST = 200_000  # hits that all threads may hold at a time
CHUNK = 64  # queries a task
SYNC = 512  # passages between two looks at whether to stop
GONE = ("EOFException", "NoSuchFileException", "FileNotFoundException", "IndexNotFoundException")


@contextmanager
def java_errors(folder: Path) -> Iterator[None]:
    """Turn what Java throws into errors that name the cause and the cure."""
    jvm.start()  # also says so in a forked process, before jnius is touched
    from jnius import JavaException

    try:
        yield
    except JavaException as error:
        name, said = str(getattr(error, "classname", None) or ""), str(error)
        if "IndexFormatTooNew" in name or "in the future" in said or "Codec with name" in said:
            raise SeedbenchError(
                f"{folder} was built by a newer Lucene than the {version()} here (in {find_jar().name}): install "
                "the pyserini that built it (2.x for Lucene 10), or build the index again."
            ) from error
        if "IndexFormatTooOld" in name:
            raise SeedbenchError(
                f"{folder} was built by a Lucene too old for the {version()} here: build the index again."
            ) from error
        if "CorruptIndex" in name or name.endswith(GONE):
            raise SeedbenchError(
                f"{folder} is no whole Lucene index ({said[:300]}): copy it again, or build it again."
            ) from error
        if "No space left" in said:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder)) from error
        if "OutOfMemory" in name:
            raise InfrastructureError(
                f"Java ran out of its heap ({said[:200]}): give more by SEEDBENCH_JAVA_HEAP (4g, say), or fewer "
                "threads by SEEDBENCH_JAVA_THREADS."
            ) from error
        raise InfrastructureError(f"Lucene failed on {folder}: {said[:500]}.") from error


def version() -> str:
    """The version of Lucene that runs here."""
    return str(java_class(f"{LUCENE}.util.Version").LATEST.toString())


def _directory(folder: Path) -> Any:
    return java_class(f"{LUCENE}.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(folder)))


def _writer(folder: Path, k1: float, b: float, buffer: float) -> Any:
    """A writer that keeps passages in the order in which they come: its merges join neighbours only, when told to."""
    with jvm.lock:
        config = java_class(f"{LUCENE}.index.IndexWriterConfig")(_analyzer())
        policy = java_class(f"{LUCENE}.index.LogDocMergePolicy")()
        policy.setMergeFactor(100_000)
        config.setMergePolicy(policy)
        config.setMergeScheduler(java_class(f"{LUCENE}.index.SerialMergeScheduler")())
        config.setSimilarity(java_class(f"{LUCENE}.search.similarities.BM25Similarity")(k1, b))
        config.setRAMBufferSizeMB(buffer)
        writer = java_class(f"{LUCENE}.index.IndexWriter")(_directory(folder), config)
        return jvm.own(writer, f"{LUCENE}.index.IndexWriter", WRITER)


def _analyzer() -> Any:
    return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()


class _Row:
    """One Lucene document that is filled anew for each passage: `id` stored and for ties, `contents` for search."""

    def __init__(self) -> None:
        with jvm.lock:
            self._bytes = java_class(f"{LUCENE}.util.BytesRef")
            self._contents, self._id, self._tie = self._fields()

    def _fields(self) -> Iterator[Any]:
        from jnius import cast

        options = java_class(f"{LUCENE}.document.FieldType")()
        options.setIndexOptions(java_class(f"{LUCENE}.index.IndexOptions").DOCS_AND_FREQS)
        options.freeze()
        empty = cast("java.lang.CharSequence", java_class("java.lang.String")("x"))
        stored = java_class(f"{LUCENE}.document.Field$Store").YES
        self.document = java_class(f"{LUCENE}.document.Document")()
        for field, setter in (
            (java_class(f"{LUCENE}.document.Field")("contents", empty, options), SET_TEXT),
            (java_class(f"{LUCENE}.document.StringField")("id", "x", stored), SET_TEXT),
            (java_class(f"{LUCENE}.document.BinaryDocValuesField")("id", self._bytes(b"x")), SET_BYTES),
        ):
            self.document.add(field)
            yield jvm.own(field, f"{LUCENE}.document.Field", setter)

    def fill(self, id: str, contents: str) -> Any:
        self._id.setStringValue(jvm.text(id))
        self._tie.setBytesValue(self._bytes(id.encode("utf-8", "surrogatepass")))
        self._contents.setStringValue(jvm.text(contents))
        return self.document


def write_part(
    folder: Path,
    passages: Iterator[tuple[str, str]],
    settings: tuple[float, float],
    buffer: float,
    stop: Event,
    report: Callable[[int], object],
) -> None:
    """Index (id, contents) pairs, in order, into `folder`; what was there goes. `buffer` is in MiB; `report` gets the
    passages done since it was last called. Gives up without a trace of the part when `stop` is set."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with java_errors(folder):
            writer, row, waiting = _writer(folder, *settings, buffer), _Row(), 0
            add = writer.addDocument
            for id, contents in passages:
                add(row.fill(id, contents))
                waiting += 1
                if waiting == SYNC:
                    report(waiting)
                    waiting = 0
                    if stop.is_set():
                        writer.rollback()
                        return
            writer.close()  # commits: a part without a commit does not count
            report(waiting)
    finally:
        jvm.detach()


def documents(folder: Path) -> int:
    """How many passages the last commit in `folder` holds; 0 where there is none."""
    if not any(folder.glob("segments_*")):
        return 0
    with java_errors(folder), jvm.lock:
        reader = java_class(f"{LUCENE}.index.DirectoryReader").open(_directory(folder))
        try:
            return int(reader.maxDoc())
        finally:
            reader.close()


def join(folder: Path, parts: Sequence[Path], settings: tuple[float, float], report: Callable[[int], object]) -> None:
    """Append the parts to the index in `folder`, in order, deleting each once it is in, and make one segment of all."""
    folder.mkdir(parents=True, exist_ok=True)
    with java_errors(folder):
        writer = _writer(folder, *settings, 16.0)
        for done, part in enumerate(parts, 1):
            with jvm.lock:
                directory = _directory(part)
            writer.addIndexes([directory])
            writer.commit()
            shutil.rmtree(part)
            report(done)
        writer.forceMerge(1)
        writer.close()
    (folder / "write.lock").unlink(missing_ok=True)


class Searcher:
    """BM25 over a Lucene index, read-only, on threads of its own (so that no caller's thread is left tied to Java).

    Ties go to the passage that was added first; with `by_id`, to the smaller id (its bytes), at some cost.
    """

    def __init__(self, folder: Path, k1: float, b: float, by_id: bool = False):
        self.folder = folder
        with java_errors(folder), jvm.lock:
            self._workers = jvm.start().workers()
            self._reader = java_class(f"{LUCENE}.index.DirectoryReader").open(_directory(folder))
            self.count = int(self._reader.maxDoc())
            searchers = java_class(f"{LUCENE}.search.IndexSearcher")
            searchers.setMaxClauseCount(2**31 - 1)  # a query may be as long as it likes
            searcher = searchers(self._reader.getContext())
            searcher.setSimilarity(java_class(f"{LUCENE}.search.similarities.BM25Similarity")(k1, b))
            self._searcher = jvm.own(searcher, f"{LUCENE}.search.IndexSearcher", SEARCH_BY_ID if by_id else SEARCH)
            name = "io.anserini.search.query.BagOfWordsQueryGenerator"
            self._generator = jvm.own(java_class(name)(), name, BUILD)
            name = "com.fasterxml.jackson.databind.ObjectMapper"
            self._json = jvm.own(java_class(name)(), name, WRITE)
            self._analyzer, self._sort = _analyzer(), (self._by_id(), True) if by_id else ()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="lucene")

    def _by_id(self) -> Any:
        field, kind = java_class(f"{LUCENE}.search.SortField"), java_class(f"{LUCENE}.search.SortField$Type")
        return java_class(f"{LUCENE}.search.Sort")(field.FIELD_SCORE, field("id", kind.STRING_VAL))

    def top(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        """(passage number, float32 score) of the k best of each query, best first."""
        if k < 1:
            raise SeedbenchError(f"k is {k}: ask for 1 hit or more.")
        jvm.start()
        k = max(min(k, self.count), 1)
        if k * self._workers > MOST:
            return self._pool.submit(self._some, queries, k).result()
        step = max(1, min(CHUNK, len(queries) // (2 * self._workers)))
        chunks = [queries[at : at + step] for at in range(0, len(queries), step)]
        return [hits for some in self._pool.map(lambda chunk: self._some(chunk, k), chunks) for hits in some]

    def _some(self, queries: Sequence[str], k: int) -> list[list[tuple[int, float]]]:
        build, search, text = self._generator.buildQuery, self._searcher.search, self._json.writeValueAsString
        found = []
        with java_errors(self.folder):
            for query in queries:
                built = build("contents", self._analyzer, jvm.text(query))
                hits = json.loads(text(search(built, k, *self._sort)))["scoreDocs"]
                found.append([(hit["doc"], float(np.float32(hit["score"]))) for hit in hits])
        return found

    def fields(self, numbers: Sequence[int], names: Sequence[str]) -> list[list[str | None]]:
        """The stored fields of some passages, None where one is not stored."""
        return self._pool.submit(self._fields, numbers, names).result() if numbers else []

    def _fields(self, numbers: Sequence[int], names: Sequence[str]) -> list[list[str | None]]:
        with java_errors(self.folder), jvm.lock:
            stored = self._reader.storedFields()
            rows = (stored.document(number) for number in numbers)
            return [[row.get(name) for name in names] for row in rows]

    def close(self) -> None:
        """Let go of the files and the threads. In a forked process nothing is touched."""
        if self._pool._shutdown or not jvm.alive():
            return
        ready = Barrier(self._workers)

        def leave() -> None:
            ready.wait(60)  # so that each thread takes one of these
            jvm.detach()

        for one in [self._pool.submit(leave) for _ in range(self._workers)]:
            one.result()
        self._pool.shutdown()
        with java_errors(self.folder), jvm.lock:
            self._reader.close()
