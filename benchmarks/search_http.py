"""Load for a server of POST /retrieve, and the CPU time that it takes there (for benchmarks/search.py; Linux)."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

CLIENTS = 32


class Plan(NamedTuple):
    """How many queries warm a server, how many are measured, passages a query."""

    warming: int
    count: int
    k: int


def cpu(pid: int) -> float:
    """Seconds of CPU, user and system, of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int | str) -> float:
    """Resident MB of a process."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@contextmanager
def ours(index: Path, cache: int) -> Iterator[tuple[int, int]]:
    """`seedbench serve search` over an index; yields its port and process id once it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = ["--index", str(index), "--cache", str(cache), "--port", "0", "--port-file", str(port_file)]
        with running([sys.executable, "-m", "seedbench", "serve", "search", *command]) as server:
            wait(port_file.exists, server)
            port = int(port_file.read_text())
            wait(lambda: get(port, "/ready")[0] == 200, server)
            yield port, server.pid


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process while the block runs; its output goes to a file that is shown where it ends too early."""
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield server
        finally:
            if server.poll() is not None:
                log.seek(0)
                print(log.read().decode()[-3000:], file=sys.stderr)
            server.kill()
            server.wait()


def wait(there: Callable[[], bool], server: subprocess.Popen[bytes], seconds: float = 300.0) -> None:
    """Until it is there. Exits where the server ends first, or time is up."""
    until = time.monotonic() + seconds
    while True:
        try:
            if there():
                return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > until:
            sys.exit("a server ended before it was ready, or took too long")
        time.sleep(0.1)


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class Asker:
    """One kept-alive connection."""

    def __init__(self, port: int, k: int):
        self._connection, self._k = http.client.HTTPConnection("127.0.0.1", port, timeout=120), k

    def __call__(self, queries: list[str]) -> None:
        body = json.dumps({"queries": queries, "topk": self._k, "return_scores": True})
        self._connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read()
        assert answer.status == 200 and len(json.loads(data)["result"]) == len(queries), data[:300]


def figures(port: int, pid: int, plan: Plan, source: Iterator[str]) -> dict[str, float]:
    """CPU-ms a query of the server: requests of 256, one client's single queries, those of 32 at once; RSS in MB."""
    ask = Asker(port, plan.k)
    for _ in range(0, plan.warming, 256):
        ask(list(islice(source, 256)))
    found = {}
    for name, size in (("batch", 256), ("single", 1)):
        queries = list(islice(source, plan.count))
        before = cpu(pid)
        for i in range(0, plan.count, size):
            ask(queries[i : i + size])
        found[name] = 1000 * (cpu(pid) - before) / plan.count
    shares = [list(islice(source, plan.count // CLIENTS)) for _ in range(CLIENTS)]
    before = cpu(pid)
    at_once(port, plan.k, shares)
    found["concurrent"] = 1000 * (cpu(pid) - before) / sum(map(len, shares))
    found["rss"] = resident(pid)
    return found


def at_once(port: int, k: int, shares: list[list[str]]) -> None:
    """Each share's queries by a client of its own, one after the other. Raises what any of them met."""
    errors: list[BaseException] = []

    def client(share: list[str]) -> None:
        try:
            ask = Asker(port, k)
            for query in share:
                ask([query])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def rollouts(port: int, pid: int, plan: Plan, source: Iterator[str]) -> None:
    """Groups of 8 rollouts that begin alike: all ask the same first query, half of them the same second one."""
    groups = plan.count // 16
    first = [query for query in islice(source, groups) for _ in range(8)]
    second = [query for shared in islice(source, groups) for query in [shared] * 4 + list(islice(source, 4))]
    ask = Asker(port, plan.k)
    ask(list(islice(source, 256)))
    counts, before = metrics(port), cpu(pid)
    for queries in (first, second):
        at_once(port, plan.k, [queries[i::CLIENTS] for i in range(CLIENTS)])
    spent = 1000 * (cpu(pid) - before) / (16 * groups)
    now = metrics(port)
    hits, asked = (now[n] - counts[n] for n in ("cache_hits_total", "queries_total"))
    print(f"groups of 8 rollouts, single queries, 32 clients: {spent:.2f} CPU-ms a query, "
          f"{100 * hits / asked:.0f} % answered without a search (of 16 queries 10 repeat an earlier one)")  # fmt: skip
    queries = first[::8] * 4
    before = cpu(pid)
    for i in range(0, len(queries), 256):
        ask(queries[i : i + 256])
    batch = 1000 * (cpu(pid) - before) / len(queries)
    before = cpu(pid)
    for query in queries:
        ask([query])
    print(f"cache hits alone: {batch:.3f} batch, {1000 * (cpu(pid) - before) / len(queries):.3f} single")


def metrics(port: int) -> dict[str, float]:
    lines = [x.rpartition(" ") for x in get(port, "/metrics")[1].splitlines() if not x.startswith("#")]
    return {name.removeprefix("seedbench_search_"): float(value) for name, _, value in lines}
