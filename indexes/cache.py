"""Cached: a retriever that remembers. Rollouts of one question begin alike, so many of their queries come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from seedbench.core import Passage, Retriever, SeedbenchError

HITS_A_QUERY = 10  # an entry's share of the memory: caches of large k hold fewer queries
Key = tuple[str, int, str]  # digest of the index, k, the query as it stands


class Cached:
    """A retriever before another one: the queries last used are answered from memory, the others asked in one call.

    Keys hold the digest of the index, so that an index that changes is never answered for from before. Threads may
    share it; one search in `retriever` runs at a time only where that retriever sees to it itself. `hits` counts
    queries that were not searched for: held, or a second time in one call; `misses` those that were.
    """

    def __init__(self, retriever: Retriever, size: int):
        """`size`: queries held, and ten times as many passages; 0 holds none and still asks a query only once a call.

        Raises SeedbenchError for a negative size.
        """
        if size < 0:
            raise SeedbenchError(f"the cache is for {size} queries: give 0 (none) or more.")
        self.retriever, self.size = retriever, size
        self.kind: str = getattr(retriever, "kind", type(retriever).__name__.lower())
        self.exact: bool = getattr(retriever, "exact", True)
        self.hits = self.misses = 0
        self._held: OrderedDict[Key, tuple[Passage, ...]] = OrderedDict()  # least recently used first
        self._passages = 0
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """As the retriever's own, whose errors pass through; what a failed call asked for is asked again."""
        digest = self.retriever.digest()
        found: dict[str, tuple[Passage, ...]] = {}
        missing: dict[str, None] = {}
        with self._lock:
            for query in queries:
                if query not in found and query not in missing:
                    held = self._get((digest, k, query))
                    if held is None:
                        missing[query] = None
                    else:
                        found[query] = held
        if missing:
            answers = self.retriever.search(list(missing), k)
            with self._lock:
                for query, hits in zip(missing, answers, strict=True):
                    found[query] = tuple(hits)
                    self._keep((digest, k, query), found[query])
        with self._lock:
            self.misses += len(missing)
            self.hits += len(queries) - len(missing)
        return [list(found[query]) for query in queries]

    def held(self, queries: Sequence[str], k: int) -> list[list[Passage]] | None:
        """What `search` would answer if nothing has to be searched for, else None. Never waits for the retriever."""
        digest = self.retriever.digest()
        with self._lock:
            keys = [(digest, k, query) for query in queries]
            if not all(key in self._held for key in keys):
                return None
            self.hits += len(keys)
            return [list(self._get(key) or ()) for key in keys]

    def _get(self, key: Key) -> tuple[Passage, ...] | None:
        hits = self._held.get(key)
        if hits is not None:
            self._held.move_to_end(key)
        return hits

    def _keep(self, key: Key, hits: tuple[Passage, ...]) -> None:
        before = self._held.pop(key, ())
        self._held[key] = hits
        self._passages += len(hits) - len(before)
        while self._held and (len(self._held) > self.size or self._passages > HITS_A_QUERY * self.size):
            _, dropped = self._held.popitem(last=False)
            self._passages -= len(dropped)

    def __len__(self) -> int:
        return len(self._held)

    def digest(self) -> str:
        """The retriever's: a cache changes no answer."""
        return self.retriever.digest()

    def statistics(self) -> dict[str, int]:
        """hits, misses (queries, since the start), queries and passages held now."""
        with self._lock:
            return {"hits": self.hits, "misses": self.misses, "queries": len(self._held), "passages": self._passages}

    def close(self) -> None:
        """Forget everything and close the retriever."""
        with self._lock:
            self._held.clear()
            self._passages = 0
        close: Any = getattr(self.retriever, "close", None)
        if close is not None:
            close()
