"""Queries that warm an index before a server says that it is ready: page cache, tables, and Java's compiler."""

from __future__ import annotations

import time
from typing import Any

from seedbench.core import Retriever

QUERIES = {"lucene": 2000, "hybrid": 2000}  # kinds whose code is compiled while it runs
FEW = 64
SECONDS = 30.0
FIRST = ["who was the first", "where is the city of the river", "name of the house in the north", "year born"]


def warm(retriever: Retriever, seconds: float = SECONDS) -> int:
    """Call the retriever's own `warm`, or search for what the index holds: titles and first words of hits are the next
    queries. Returns how many searches that were; a time limit bounds them."""
    own: Any = getattr(retriever, "warm", None)
    wanted = QUERIES.get(getattr(retriever, "kind", ""), FEW)
    if own is not None:
        own(wanted)
        return wanted
    until, asked, queries = time.monotonic() + seconds, 0, FIRST
    while queries and asked < wanted and time.monotonic() < until:
        found = retriever.search(queries, 3)
        asked += len(queries)
        texts = [f"{passage.title} {passage.text}".split() for hits in found for passage in hits]
        some = [" ".join(words[n : n + 6]) for n, words in enumerate(texts) if words[n : n + 6]]
        queries = some[:64] or (["a", "x", "the"] if queries is FIRST else [])
    return asked
