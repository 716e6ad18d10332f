"""Micro-batching: queries of requests that are open together go to the retriever in one call, on its own thread."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from seedbench.core import Passage

BATCH = 256  # queries a call, where one request does not bring more with a single k
WINDOW = 0.002  # seconds that a query waits at most for company
Search = Callable[[Sequence[str], int], list[list[Passage]]]
T = TypeVar("T")
Found = list[list[Passage]]
log = logging.getLogger("seedbench.search")


class Full(Exception):
    """As many queries wait as may wait."""


@dataclass(eq=False)
class _Piece:
    """A request, or 256 queries of a longer one, on its way through the queue."""

    queries: Sequence[str]
    k: int
    future: asyncio.Future[Found]
    came: float


class Batcher:
    """A bounded queue before `search`, and the threads that call it. Of one event loop, as its methods are.

    A request waits for company only where the call before held several: whoever asks alone never waits. Several values
    of k in one batch are a call each, since an approximate index may order its first hits by k.
    """

    def __init__(self, search: Search, limit: int, threads: int = 1):
        """`limit`: queries that wait or are searched for; `threads`: calls at a time."""
        self._search, self.limit, self.threads = search, limit, threads
        self.waiting = 0  # queries not yet answered
        self.calls = self.batched = 0  # calls of the retriever, and queries in them
        self._pieces: deque[_Piece] = deque()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._company = False

    def start(self) -> None:
        """Begin to work; called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._arrived, self._free = asyncio.Event(), asyncio.Semaphore(self.threads)
        for number in range(self.threads):  # daemons: a server that is told to stop does not wait for an index to load
            threading.Thread(target=self._work, name=f"search-{number}", daemon=True).start()
        self._task = asyncio.create_task(self._batch())

    def stop(self) -> None:
        """Let the threads end when their calls are done; what still waits is never answered."""
        self._task.cancel()
        for _ in range(self.threads):
            self._jobs.put(None)

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, made on a thread of the retriever's. Raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(lambda: self._settle(future, call))
        return await future

    async def search(self, queries: Sequence[str], k: int) -> Found:
        """As the retriever's own. Raises Full where too many queries wait, and what the retriever raises."""
        if self.waiting and self.waiting + len(queries) > self.limit:  # one long request alone is let in
            raise Full
        self.waiting += len(queries)
        now = time.monotonic()
        pieces = [_Piece(queries[i : i + BATCH], k, self._loop.create_future(), now)
                  for i in range(0, len(queries), BATCH)]  # fmt: skip
        self._pieces.extend(pieces)
        self._arrived.set()
        try:
            found = await asyncio.gather(*(piece.future for piece in pieces), return_exceptions=True)
        finally:
            self.waiting -= len(queries)
        answers: Found = []
        for part in found:
            if isinstance(part, BaseException):
                raise part
            answers += part
        return answers

    async def _batch(self) -> None:
        while True:
            await self._arrived.wait()
            await self._free.acquire()
            if self._company and self._pieces and sum(len(p.queries) for p in self._pieces) < BATCH:
                await asyncio.sleep(self._pieces[0].came + WINDOW - time.monotonic())
            batch = self._take()
            self._company = len(batch) > 1
            self._jobs.put(lambda batch=batch: self._answer(batch))  # type: ignore[misc]

    def _take(self) -> list[_Piece]:
        batch = [self._pieces.popleft()]
        size = len(batch[0].queries)
        while self._pieces and size + len(self._pieces[0].queries) <= BATCH:
            batch.append(self._pieces.popleft())
            size += len(batch[-1].queries)
        if not self._pieces:
            self._arrived.clear()
        return batch

    # What follows runs on the retriever's threads.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _answer(self, batch: list[_Piece]) -> None:
        found: list[tuple[_Piece, Found | Exception]] = []
        for k in dict.fromkeys(piece.k for piece in batch):
            found += self._call([piece for piece in batch if piece.k == k], k)
        self._tell(self._deliver, found)

    def _call(self, pieces: list[_Piece], k: int) -> list[tuple[_Piece, Found | Exception]]:
        """What each piece is answered; where the call fails, each alone, so that none fails for another's query."""
        queries = [query for piece in pieces for query in piece.queries]
        self.calls, self.batched = self.calls + 1, self.batched + len(queries)
        try:
            answers = self._search(queries, k)
            if len(answers) != len(queries):
                raise RuntimeError(f"{len(queries)} queries were answered by {len(answers)} lists")
            ends = list(accumulate(len(piece.queries) for piece in pieces))
            return [(piece, answers[end - len(piece.queries) : end]) for piece, end in zip(pieces, ends, strict=True)]
        except Exception as error:
            if len(pieces) > 1:
                return [part for piece in pieces for part in self._call([piece], k)]
            log.error("a search failed", exc_info=error)
            return [(pieces[0], error)]

    def _settle(self, future: asyncio.Future[T], call: Callable[[], T]) -> None:
        try:
            result = call()
        except Exception as error:
            self._tell(self._done, future, None, error)
        else:
            self._tell(self._done, future, result, None)

    def _tell(self, tell: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(tell, *args)
        except RuntimeError:
            log.warning("an answer came after the server had stopped")

    def _deliver(self, found: list[tuple[_Piece, Found | Exception]]) -> None:
        self._free.release()
        for piece, answer in found:
            error = answer if isinstance(answer, Exception) else None
            self._done(piece.future, answer, error)

    def _done(self, future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
