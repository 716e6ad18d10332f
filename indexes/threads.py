"""How many threads arithmetic gets. Those of OpenMP and of a BLAS spin while they wait, which on a shared machine costs
more than they bring: one query through FAISS has been seen to take five times the CPU time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import util
from typing import Any

_blas = threading.Lock()


def cpus() -> int:
    """The CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products on the calling thread alone, where threadpoolctl is there to say so. One caller at a time: the
    limit holds for the whole process, and two callers would restore each other's."""
    with _blas:
        control = _control()
        if control is None:
            yield
        else:
            with control.limit(limits=1, user_api="blas"):
                yield


@cache
def _control() -> Any:
    if util.find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Variables that a library reads once, when it is loaded; what the user has set stays, and all is as before after.

    Not for two threads at once.
    """
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
