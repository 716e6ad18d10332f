"""Lucene's writer and searcher, in process. Passages are numbered as they are added; everything else is lucene.py's.

A query is a bag of words by Anserini's analyzer and query generator, so no character of it is syntax. Hits come back
as one JSON text a query (Jackson is in Anserini's jar): a Java object less to wrap for every hit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.indexes import jvm
from seedbench.indexes.jvm import java_class

LUCENE = "org.apache.lucene"
LUCENE_PATH = "Lorg/apache/lucene"
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
                f"{folder} was built by a newer Lucene than the {version()} here (in {jvm.find_jar().name}): install "
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
    config = java_class(f"{LUCENE}.index.IndexWriterConfig")(_analyzer())
    policy = java_class(f"{LUCENE}.index.LogDocMergePolicy")()
    policy.setMergeFactor(100_000)
    config.setMergePolicy(policy)
    config.setMergeScheduler(java_class(f"{LUCENE}.index.SerialMergeScheduler")())
    config.setSimilarity(java_class(f"{LUCENE}.search.similarities.BM25Similarity")(k1, b))
    config.setRAMBufferSizeMB(buffer)
    return _writer_class()(_directory(folder), config)


@lru_cache(maxsize=1)
def _writer_class() -> Any:
    """IndexWriter by the methods used here: pyjnius cannot tell the two addIndexes of the whole class apart."""
    from jnius import JavaClass, JavaMethod, MetaJavaClass

    methods = {"addDocument": "(Ljava/lang/Iterable;)J", "addIndexes": f"([{LUCENE_PATH}/store/Directory;)J",
               "commit": "()J", "rollback": "()V", "close": "()V", "forceMerge": "(I)V"}  # fmt: skip
    members: dict[str, Any] = {name: JavaMethod(signature) for name, signature in methods.items()}
    made = f"({LUCENE_PATH}/store/Directory;{LUCENE_PATH}/index/IndexWriterConfig;)V"
    members |= {"__javaclass__": f"{LUCENE_PATH[1:]}/index/IndexWriter", "__javaconstructor__": [(made, False)]}
    return MetaJavaClass("IndexWriter", (JavaClass,), members)


def _analyzer() -> Any:
    return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()


class _Row:
    """One Lucene document that is filled anew for each passage: `id` stored and for ties, `contents` for search."""

    def __init__(self) -> None:
        from jnius import cast

        options = java_class(f"{LUCENE}.document.FieldType")()
        options.setIndexOptions(java_class(f"{LUCENE}.index.IndexOptions").DOCS_AND_FREQS)
        options.freeze()
        empty = cast("java.lang.CharSequence", java_class("java.lang.String")("x"))
        self._bytes = java_class(f"{LUCENE}.util.BytesRef")
        self.contents = java_class(f"{LUCENE}.document.Field")("contents", empty, options)
        stored = java_class(f"{LUCENE}.document.Field$Store").YES
        self.id = java_class(f"{LUCENE}.document.StringField")("id", "x", stored)
        self.tie = java_class(f"{LUCENE}.document.BinaryDocValuesField")("id", self._bytes(b"x"))
        self.document = java_class(f"{LUCENE}.document.Document")()
        for field in (self.contents, self.id, self.tie):
            self.document.add(field)

    def fill(self, id: str, contents: str) -> Any:
        self.id.setStringValue(jvm.text(id))
        self.tie.setBytesValue(self._bytes(id.encode("utf-8", "surrogatepass")))
        self.contents.setStringValue(jvm.text(contents))
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
            for id, contents in passages:
                writer.addDocument(row.fill(id, contents))
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
    with java_errors(folder):
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
            writer.addIndexes([_directory(part)])
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
        with java_errors(folder):
            self._workers = jvm.start().workers()
            reader = java_class(f"{LUCENE}.index.DirectoryReader").open(_directory(folder))
            self._reader, self.count = reader, int(reader.maxDoc())
            searchers = java_class(f"{LUCENE}.search.IndexSearcher")
            searchers.setMaxClauseCount(2**31 - 1)  # a query may be as long as it likes
            self._searcher = searchers(reader.getContext())
            self._searcher.setSimilarity(java_class(f"{LUCENE}.search.similarities.BM25Similarity")(k1, b))
            self._generator = java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()
            self._analyzer = _analyzer()
            self._json = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
            self._stored = reader.storedFields
            self._sort = self._by_id() if by_id else None
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
        build, analyzer, text = self._generator.buildQuery, self._analyzer, self._json.writeValueAsString
        found = []
        with java_errors(self.folder):
            for query in queries:
                built = build("contents", analyzer, jvm.text(query))
                hits = (
                    self._searcher.search(built, k, self._sort, True) if self._sort else self._searcher.search(built, k)
                )
                found.append(
                    [(hit["doc"], float(np.float32(hit["score"]))) for hit in json.loads(text(hits))["scoreDocs"]]
                )
        return found

    def fields(self, numbers: Sequence[int], names: Sequence[str]) -> list[list[str | None]]:
        """The stored fields of some passages, None where one is not stored."""
        return self._pool.submit(self._fields, numbers, names).result() if numbers else []

    def _fields(self, numbers: Sequence[int], names: Sequence[str]) -> list[list[str | None]]:
        with java_errors(self.folder):
            stored = self._stored()
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
        with java_errors(self.folder):
            self._reader.close()
