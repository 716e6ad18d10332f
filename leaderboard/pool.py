"""Work on the lines of a run, spread over processes: in order, with few lines in memory, and a bar."""

from __future__ import annotations

import itertools
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbench.core import InfrastructureError
from seedbench.exam import Config
from seedbench.leaderboard.findings import Finding, Options

CHUNK = 16  # lines that one call takes
WORTH_A_PROCESS = 250  # episodes; a process takes half a second to start


class Worker(Protocol):
    def __call__(self, lines: Sequence[tuple[int, Any]]) -> list[Finding]: ...


class Pool:
    """Runs `make(configs)` once a process and what it returns on chunks of lines."""

    def __init__(
        self, make: Callable[[Sequence[Config]], Worker], configs: Sequence[Config], options: Options, total: int
    ):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.workers = options.workers or min(cores, 1 + total // WORTH_A_PROCESS)
        self._make, self._configs = make, configs
        self._processes: ProcessPoolExecutor | None = None
        columns = (TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=options.quiet)
        self._bar = self._progress.add_task("", total=total)

    def __enter__(self) -> Pool:
        if self.workers > 1:  # spawned, not forked: nothing of this process can reach an environment
            self._processes = ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_start, initargs=(self._make, self._configs)
            )
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._processes is not None:
            self._processes.shutdown(wait=True, cancel_futures=True)

    def map(self, lines: Iterable[tuple[int, Any]]) -> Iterator[list[Finding]]:
        """What the worker finds in each chunk, in order. Raises InfrastructureError when a process is killed."""
        chunks = _batched(lines)  # itertools.batched comes with Python 3.12
        if self._processes is None:
            worker = self._make(self._configs)
            for chunk in chunks:
                yield self._count(chunk, worker(chunk))
            return
        waiting: deque[tuple[Sequence[Any], Future[list[Finding]]]] = deque()
        try:
            for chunk in chunks:
                waiting.append((chunk, self._processes.submit(_work, chunk)))
                if len(waiting) > 2 * self.workers:
                    first, future = waiting.popleft()
                    yield self._count(first, future.result())
            for first, future in waiting:
                yield self._count(first, future.result())
        except BrokenProcessPool as error:
            raise InfrastructureError(
                "a replaying process died (out of memory?): try again with fewer --workers."
            ) from error

    def _count(self, chunk: Sequence[Any], found: list[Finding]) -> list[Finding]:
        self._progress.advance(self._bar, len(chunk))
        return found


def _batched(lines: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    source = iter(lines)
    while chunk := tuple(itertools.islice(source, CHUNK)):
        yield chunk


_worker: Worker | None = None  # of a spawned process


def _start(make: Callable[[Sequence[Config]], Worker], configs: Sequence[Config]) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one ends the others
    _worker = make(configs)


def _work(chunk: Sequence[Any]) -> list[Finding]:
    assert _worker is not None
    return _worker(chunk)
