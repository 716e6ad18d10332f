"""Real Lucene as Anserini indexes and searches with it, without any of our own index code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from seedbench.indexes import java_home, jvm

missing, java = java_home.missing, jvm.java_class


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
