"""Search servers for tests: `SearchApp` over a small corpus, on a thread or in a process of its own.

    python -m tests.search_servers PORT PORT_FILE [--red] [--slow=SECONDS]

serves the corpus until it is stopped; with --red another one, whose digest differs; with --slow a search takes so
long.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from seedbench.core import Passage
from seedbench.indexes import search_server
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.search_server import SearchApp
from seedbench.serve.asgi import listen, run

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["river", "king", "tower", "bridge", "harbour", "painter", "song", "bell", "forest", "glass"]


def passages(red: bool = False) -> list[Passage]:
    """200 passages; `red` ones say so."""
    colour = "red " if red else ""
    return [
        Passage(f"p{i:03}", f"{WORDS[i % 10].title()} {i}", f"A {colour}{WORDS[i % 7]} by {WORDS[i % 9]} {i}.", 0.0)
        for i in range(200)
    ]  # fmt: skip


class Slow:
    """A retriever that waits before it answers, keeps the sizes of its calls, and fails for a query that says so."""

    kind, exact = "slow", True

    def __init__(self, inner: Any, seconds: float = 0.0):
        self.inner, self.seconds = inner, seconds
        self.calls: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.calls.append((len(queries), k))
        self.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        if "explode" in queries:
            raise RuntimeError("as asked")
        found: list[list[Passage]] = self.inner.search(queries, k)
        return found

    def digest(self) -> str:
        said: str = self.inner.digest()
        return said

    def close(self) -> None:
        pass


@contextmanager
def served(app: SearchApp, http: Any = "httptools") -> Iterator[str]:
    """The app under uvicorn on a thread of this process; yields its URL."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http=http, ws="none", lifespan="on", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def process(folder: Path, *args: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own; yields its URL and the process, which is killed at the end."""
    port_file = folder / f"port{time.monotonic_ns()}"
    command = [sys.executable, "-m", "tests.search_servers", str(port), str(port_file), *args]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    try:
        while not port_file.exists():
            assert server.poll() is None, server.communicate()[0]
            time.sleep(0.01)
        yield f"http://127.0.0.1:{int(port_file.read_text())}", server
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    index: Any = Bm25(passages("--red" in sys.argv))
    if slow := [arg for arg in sys.argv if arg.startswith("--slow=")]:
        index = Slow(index, float(slow[0].removeprefix("--slow=")))
        search_server.warm = lambda retriever: 0  # type: ignore[assignment]
    run(SearchApp(lambda: index, cache=100, queue=1000), "127.0.0.1", int(sys.argv[1]), Path(sys.argv[2]), "test")
