"""What a search server counts, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seedbench.indexes.batching import Batcher
    from seedbench.indexes.cache import Cached

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds


class Metrics:
    """Counters of one event loop: no lock. Labels are names of routes and statuses, so their number is bounded."""

    def __init__(self) -> None:
        self.queries = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._latency = [0] * (len(BUCKETS) + 1)  # of /retrieve
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request, from its first byte read to its last byte written."""
        self._requests[route, status] += 1
        if route == "/retrieve":
            self._latency[bisect_left(BUCKETS, seconds)] += 1
            self._seconds[route] += seconds

    def text(self, cached: Cached | None, batcher: Batcher) -> str:
        """Everything counted so far."""
        held = cached.statistics() if cached is not None else {"hits": 0, "misses": 0, "queries": 0, "passages": 0}
        families: list[tuple[str, str, str, Sequence[tuple[str, float]]]] = [
            ("ready", "gauge", "1 once the index is loaded and warmed.", [("", int(cached is not None))]),
            ("requests_total", "counter", "Requests answered, by route and status.",
             [(f'{{route="{route}",status="{status}"}}', n) for (route, status), n in sorted(self._requests.items())]),
            ("queries_total", "counter", "Queries asked for.", [("", self.queries)]),
            ("cache_hits_total", "counter", "Queries answered without a search.", [("", held["hits"])]),
            ("cache_misses_total", "counter", "Queries searched for.", [("", held["misses"])]),
            ("cache_queries", "gauge", "Queries held by the cache.", [("", held["queries"])]),
            ("cache_passages", "gauge", "Passages held by the cache.", [("", held["passages"])]),
            ("queue", "gauge", "Queries that wait or are searched for.", [("", batcher.waiting)]),
            ("queue_limit", "gauge", "Queries that may wait.", [("", batcher.limit)]),
            ("batches_total", "counter", "Calls of the cache and its retriever.", [("", batcher.calls)]),
            ("batch_queries_total", "counter", "Queries in those calls.", [("", batcher.batched)]),
        ]  # fmt: skip
        lines = []
        for name, kind, says, values in families:
            lines += [f"# HELP seedbench_search_{name} {says}", f"# TYPE seedbench_search_{name} {kind}"]
            lines += [f"seedbench_search_{name}{labels} {value}" for labels, value in values]
        return "\n".join([*lines, *self._histogram()]) + "\n"

    def _histogram(self) -> list[str]:
        name = "seedbench_search_retrieve_seconds"
        lines = [f"# HELP {name} Seconds that a request to /retrieve took.", f"# TYPE {name} histogram"]
        count = 0
        for edge, n in zip([*map(str, BUCKETS), "+Inf"], self._latency, strict=True):
            count += n
            lines.append(f'{name}_bucket{{le="{edge}"}} {count}')
        return [*lines, f"{name}_sum {round(self._seconds['/retrieve'], 6)}", f"{name}_count {count}"]
