"""Queries that warm an index before a server says that it is ready: page cache, tables, and Java's compiler."""

from __future__ import annotations

import time

from seedbench.core import Retriever

JAVA = ("lucene", "hybrid")  # kinds whose code is compiled while it runs: some thousand queries
QUERIES, FEW = 2000, 64
SECONDS = 30.0
FIRST = ["who was the first", "where is the city of the river", "name of the house in the north", "year born"]


def warm(retriever: Retriever, seconds: float = SECONDS) -> int:
    """Search for what the index itself holds: titles and first words of hits are the next queries. Returns how many."""
    wanted = QUERIES if getattr(retriever, "kind", "") in JAVA else FEW
    until, asked, queries = time.monotonic() + seconds, 0, FIRST
    while queries and asked < wanted and time.monotonic() < until:
        found = retriever.search(queries, 3)
        asked += len(queries)
        passages = [passage for hits in found for passage in hits]
        words = [text.split()[n : n + 6] for n, text in enumerate(f"{p.title} {p.text}" for p in passages)]
        queries = [" ".join(some) for some in words if some][:64] or ([] if asked > len(FIRST) else ["a", "x", "the"])
    return asked
