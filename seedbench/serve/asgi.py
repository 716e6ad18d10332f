"""`seedbench serve search`: a retriever under uvicorn until SIGTERM or Ctrl-C, and requests under way end first."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.serve.server import GRACE, _write_port

EXTRA = "a search server needs uvicorn and httptools: pip install -e '.[serve]'."
CONNECTIONS = 1000  # at a time; one more is answered 503
HEAD_WAIT = 30.0  # seconds for the last byte of a request's head
SPARE = 64  # files that are no connections


def serve_search(
    index: Path | None, data: str, corpus: Path | None, host: str, port: int, port_file: Path | None, **limits: Any
) -> None:
    """Serve the index in folder `index`, or by default that of the embedded passages (`data`="mini").

    `limits`: cache, queue (queries), threads.
    """
    if index is not None:
        what, opening = str(index), partial(_open_index, index, corpus)
    else:
        what, opening = f"the passages of {data}", partial(_open_data, data)
    app = import_module("seedbench.indexes.search_server").SearchApp(opening, **limits)
    run(app, host, port, port_file, what)


def _open_index(index: Path, corpus: Path | None) -> Any:
    return import_module("seedbench.indexes.folder").open_index(index, corpus=corpus)


def _open_data(data: str) -> Any:
    dataset = import_module("seedbench.envs.searchqa.data").open_dataset(data)
    return import_module("seedbench.envs.searchqa.retrieval").open_retriever(dataset, None)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. asyncio switches Nagle's algorithm off only where a socket says that it is TCP's: otherwise
    every answer waits for a delayed acknowledgement, 40 ms."""
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        if os.name == "posix":  # elsewhere it would share the port with another server
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except BaseException:
        listening.close()
        raise
    return listening


def protocol() -> type[Any]:
    """uvicorn's protocol, less connections that never ask: they would take every file that the process may open.

    A head that does not come within HEAD_WAIT closes its connection, and one more than there are files for is refused.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    most = _files() - SPARE

    class Impatient(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_head()
            if len(self.connections) > most:
                transport.abort()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._await_head()

        def on_headers_complete(self) -> None:
            self._rest()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._rest()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._rest()
            self._head = self.loop.call_later(HEAD_WAIT, self.transport.close)

        def _rest(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return Impatient


def few(record: logging.LogRecord) -> bool:
    """A filter of asyncio's log: it tells of want of files with a traceback for every connection that waits."""
    if "out of system resource" in record.getMessage():
        record.msg, record.args, record.exc_info = "no file is left for another connection: raise ulimit -n", (), None
        return next(_told) < 3
    return True


_told = itertools.count()


def _files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ModuleNotFoundError:  # no POSIX
        return 2 * CONNECTIONS
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def run(app: Any, host: str, port: int, port_file: Path | None, what: str) -> None:
    """Listen, say where, and serve. Port 0 takes a free one; `port_file` gets its number.

    Raises SeedbenchError for an address that is taken, and what kept `app` from opening its index.
    """
    try:
        import httptools  # noqa: F401 - uvicorn would quietly take the slower parser
        import uvicorn
    except ModuleNotFoundError as error:
        raise SeedbenchError(EXTRA) from error
    try:
        listening = listen(host, port)
    except (OSError, OverflowError, UnicodeError) as error:
        raise SeedbenchError(
            f"cannot listen on {host} port {port} ({error}): give another --port or --host."
        ) from error
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(few)
    config = uvicorn.Config(
        app, http=protocol(), loop="asyncio", ws="none", lifespan="on", interface="asgi3", log_config=None,
        access_log=False, proxy_headers=False, server_header=False, date_header=False, timeout_keep_alive=300,
        timeout_graceful_shutdown=int(GRACE), limit_concurrency=CONNECTIONS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    app.failed = partial(setattr, server, "should_exit", True)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn sends itself what it was sent once it has stopped
        signal.signal(number, lambda *_: app.failed())
    bound = listening.getsockname()[1]
    if port_file is not None:
        _write_port(port_file, bound)
    address = f"[{host}]" if ":" in host else host
    print(f"serving {what} at http://{address}:{bound}/retrieve once it is loaded (stop with Ctrl-C)", flush=True)
    try:
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        listening.close()
        if port_file is not None:
            port_file.unlink(missing_ok=True)
    if app.failure is not None:
        raise app.failure
    print("stopped", flush=True)
