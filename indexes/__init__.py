"""Retrievers: `bm25` is Lucene's arithmetic without Java. All of them answer `search` and `digest` (core.Retriever)."""
