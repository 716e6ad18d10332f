"""Servers for tests: `seedbench serve` in its own process, an app on a thread, and one whose connections break."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from waitress import create_server


@contextmanager
def serving(folder: Path, *args: object, env: str = "alfworld", port: int = 0) -> Iterator[tuple[str, Any]]:
    """A server of its own process; yields its URL and the process, which is killed at the end."""
    port_file = folder / f"port{time.monotonic_ns()}"
    command = [sys.executable, "-m", "seedbench", "serve", "env", env, "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--port-file", str(port_file), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not port_file.exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        yield f"http://127.0.0.1:{int(port_file.read_text())}", process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def threaded(app: Any, threads: int = 8) -> Iterator[str]:
    """The app under waitress on a thread of this process; yields its URL."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    server = create_server(app, host="127.0.0.1", port=0, threads=threads)
    stop = threading.Event()

    def loop() -> None:  # server.run() ends by a signal to the main thread only
        while not stop.is_set():
            server.asyncore.loop(timeout=0.05, map=server._map, count=1)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        stop.set()
        thread.join()
        server.task_dispatcher.shutdown()
        server.asyncore.close_all(server._map)


@contextmanager
def breaking(app: Any, breaks: Callable[[str], bool]) -> Iterator[str]:
    """A server that plays every request and, where `breaks(path)` says so, drops the connection before it answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = app.test_client().open(self.path, method=self.command, data=body)
            if breaks(self.path):
                self.close_connection = True
                return
            self.send_response(answer.status_code)
            for name in ("Content-Type", "Content-Length", "Retry-After"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.data)

        do_GET = do_POST = answer

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
