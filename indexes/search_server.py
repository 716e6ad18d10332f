"""The ASGI application of `seedbench serve search`: Search-R1's POST /retrieve before any retriever. See docs/scale.md.

Raw ASGI, no framework: of the time that a single query costs, routing and validation by one would be the larger part.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from seedbench.core import InfrastructureError, Passage, Retriever, SeedbenchError
from seedbench.indexes.batching import Batcher, Full
from seedbench.indexes.cache import Cached
from seedbench.indexes.search_metrics import Metrics
from seedbench.indexes.search_shapes import (
    API_VERSION,
    DIGEST_HEADER,
    MAX_HITS,
    MAX_K,
    MAX_QUERIES,
    MAX_QUERY,
    TOP_K,
    Refused,
    answer,
    understand,
)
from seedbench.indexes.warming import warm

MAX_BODY = 32 << 20  # bytes
BODY_WAIT = 30.0  # seconds for a request's last byte
JSON = b"application/json"
LIMITS = {"body": MAX_BODY, "queries": MAX_QUERIES, "query": MAX_QUERY, "top_k": MAX_K, "hits": MAX_HITS}
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
log = logging.getLogger("seedbench.search")


class SearchApp:
    """An ASGI 3 application. It answers at once; the index is opened and warmed on the thread that will search it."""

    def __init__(self, open_index: Callable[[], Retriever], *, cache: int, queue: int, threads: int = 1):
        """`open_index` may take minutes; `cache` and `queue` count queries, `threads` calls of the retriever at a time.

        Raises SeedbenchError for numbers out of range.
        """
        for name, value, least in (("cache", cache, 0), ("queue", queue, 1), ("threads", threads, 1)):
            if value < least:
                raise SeedbenchError(f"--{name} is {value}: it must be at least {least}.")
        self._open, self._size = open_index, cache
        self._batcher = Batcher(self._search, queue, threads)
        self._metrics = Metrics()
        self._cached: Cached | None = None
        self.failure: BaseException | None = None
        self.failed: Callable[[], object] = lambda: None  # called when the index cannot be opened
        self.began = time.monotonic()
        self._about: dict[str, Any] = {}
        self._digest: tuple[tuple[str, str], ...] = ()
        self._routes: dict[str, tuple[str, Callable[..., Awaitable[Any]]]] = {
            "/retrieve": ("POST", self._retrieve), "/health": ("GET", self._health), "/ready": ("GET", self._ready),
            "/digest": ("GET", self._describe), "/metrics": ("GET", self._show_metrics),
        }  # fmt: skip

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._batcher.start()
        loading = asyncio.create_task(self._load())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        loading.cancel()
        if self._cached is not None:
            await self._batcher.run(self._cached.close)
        self._batcher.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _load(self) -> None:
        try:
            self._cached, searched = await self._batcher.run(self._open_and_warm)
        except Exception as error:
            self.failure = error
            self.failed()
            return
        seconds = time.monotonic() - self.began
        log.info("ready after %.1f s, of which %d queries warmed the index", seconds, searched)

    def _open_and_warm(self) -> tuple[Cached, int]:
        retriever = self._open()
        if isinstance(retriever, Cached):  # the size of the cache is the server's to choose
            retriever = retriever.retriever
        searched = warm(retriever)
        cached = Cached(retriever, self._size)
        digest = cached.digest()
        self._about = {"api": API_VERSION, "digest": digest, "kind": cached.kind, "exact": cached.exact,
                       "top_k": TOP_K, "limits": LIMITS}  # fmt: skip
        self._digest = ((DIGEST_HEADER, digest),)
        return cached, searched

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        assert self._cached is not None
        return self._cached.search(queries, k)

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path = scope["path"]
        status, kind, headers = 200, JSON, self._digest
        try:
            body = await self._dispatch(scope, receive)
            if path == "/metrics":
                kind = b"text/plain; version=0.0.4; charset=utf-8"
        except Refused as error:
            status, headers = error.status, error.headers
            body = json.dumps({"error": error.code, "message": error.message}).encode()
        except InfrastructureError as error:  # what the retriever itself depends on is down
            status, headers = 503, (("retry-after", "1"),)
            body = json.dumps({"error": "unavailable", "message": str(error)}).encode()
        except Exception as error:
            log.error("%s failed", path, exc_info=error)
            status, headers = 500, ()
            says = f"the search failed ({type(error).__name__}); the server's log says where"
            body = json.dumps({"error": "search_failed", "message": says}).encode()
        pairs = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(body)),
            (b"x-content-type-options", b"nosniff"),
        ]
        pairs += [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})
        self._metrics.answered(path if path in self._routes else "none", status, time.perf_counter() - began)

    async def _dispatch(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        route = self._routes.get(scope["path"])
        if route is None:
            raise Refused(
                404, "no_such_page", f"there is nothing at this address; the API is {', '.join(self._routes)}"
            )
        method, handler = route
        if scope["method"] != method:
            raise Refused(405, "wrong_method", f"this address takes {method}", ("allow", method))
        answer = await handler(scope, receive) if method == "POST" else await handler()
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    async def _retrieve(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        asked = understand(await _body(scope, receive))
        cached = self._cached
        if cached is None:
            raise self._not_ready()
        self._metrics.queries += len(asked.queries)
        found = cached.held(asked.queries, asked.k)
        if found is None:
            try:
                found = await self._batcher.search(asked.queries, asked.k)
            except Full:
                says = f"{self._batcher.waiting} queries wait and the queue is for {self._batcher.limit}: ask again"
                raise Refused(503, "queue_full", says, ("retry-after", "1")) from None
        if sum(len(hits) for hits in found) > 1000:  # milliseconds: other requests go on meanwhile
            return await asyncio.to_thread(answer, found, asked.scores)
        return answer(found, asked.scores)

    async def _health(self) -> dict[str, Any]:
        state = "loading" if self._cached is None else "ready"
        return {"status": "ok", "state": state, "seconds": round(time.monotonic() - self.began, 3)}

    async def _ready(self) -> dict[str, Any]:
        if self._cached is None:
            raise self._not_ready()
        return {"ready": True, **self._about}

    async def _describe(self) -> dict[str, Any]:
        if self._cached is None:
            raise self._not_ready()
        return self._about

    async def _show_metrics(self) -> bytes:
        return self._metrics.text(self._cached, self._batcher).encode()

    def _not_ready(self) -> Refused:
        seconds = time.monotonic() - self.began
        return Refused(503, "loading", f"the index is being loaded, for {seconds:.0f} s so far", ("retry-after", "1"))


async def _body(scope: MutableMapping[str, Any], receive: Receive) -> bytes:
    """The request's body. Raises Refused where it is too long or does not come."""
    too_big = Refused(413, "too_big", f"the request is larger than {MAX_BODY} bytes: send fewer queries at a time",
                      ("connection", "close"))  # fmt: skip
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > MAX_BODY:  # the server has checked that it is a number
            raise too_big
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_WAIT):
            while len(body) <= MAX_BODY:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        says = f"the request was not there within {BODY_WAIT:g} s"
        raise Refused(408, "too_slow", says, ("connection", "close")) from None
    if len(body) > MAX_BODY:
        raise too_big
    return bytes(body)
