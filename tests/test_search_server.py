"""`seedbench serve search`: Search-R1's contract, micro-batches, limits, and what no client can break."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.envs.searchqa.data import open_dataset
from seedbench.envs.searchqa.retrieval import open_retriever
from seedbench.indexes import folder, search_server
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.search_client import RemoteRetriever
from seedbench.indexes.search_server import SearchApp
from seedbench.indexes.search_shapes import Refused, document, understand
from seedbench.serve import asgi
from tests.search_servers import Slow, passages, process, served

INDEX = Bm25(passages())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(SearchApp(lambda: INDEX, cache=50, queue=2000)) as address:
        ready(address)
        yield address


def test_connections_that_never_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are closed after a while, and never take every file of the process."""
    monkeypatch.setattr(asgi, "HEAD_WAIT", 0.5)
    monkeypatch.setattr(asgi, "_files", lambda: asgi.SPARE + 20)
    with served(SearchApp(lambda: INDEX, cache=0, queue=10), http=asgi.protocol()) as url:
        ready(url)
        address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        mute = [socket.create_connection(address, timeout=5) for _ in range(30)]
        began = time.monotonic()
        for connection in mute:
            with contextlib.suppress(OSError):  # refused and closed at once
                connection.sendall(b"GET /hea")
        ends = []
        for connection in mute:
            with connection, contextlib.suppress(ConnectionError):
                assert connection.recv(10) == b""
            ends.append(time.monotonic() - began)
        assert ends[0] > 0.3 and max(ends) < 4
        assert call(url, "GET", "/health")[0] == 200
        again = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)  # after an answer it may rest for longer
        for _ in range(2):
            again.request("GET", "/health")
            assert again.getresponse().read() and time.sleep(0.7) is None
        again.close()


def ready(url: str) -> dict[str, Any]:
    until = time.monotonic() + 10
    while (said := call(url, "GET", "/ready"))[0] != 200:
        assert time.monotonic() < until, said
        time.sleep(0.01)
    return json.loads(said[1])


def call(url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    data = answer.read().decode()
    connection.close()
    return answer.status, data, answer.headers


def retrieve(url: str, **body: Any) -> Any:
    status, data, headers = call(url, "POST", "/retrieve", json.dumps(body).encode())
    assert status == 200, data
    assert headers["x-seedbench-digest"] == INDEX.digest() and headers["content-type"] == "application/json"
    said = json.loads(data)
    assert list(said) == ["result"]
    return said["result"]


def contents(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("scores", [False, True, None])
def test_one_list_a_query_whatever_their_number(url: str, count: int, scores: bool | None) -> None:
    queries = [f"{('king', 'tower', 'nothinglikeit', '')[i % 4]} {i}" for i in range(count)]
    asked = {"queries": queries, "topk": 2} | ({} if scores is None else {"return_scores": scores})
    expected = [
        [{"document": contents(p), "score": p.score} if scores else contents(p) for p in hits]
        for hits in INDEX.search(queries, 2)
    ]
    assert retrieve(url, **asked) == expected


def test_a_single_query_is_answered_in_the_same_shape(url: str) -> None:
    many = retrieve(url, queries=["king of the river"], topk=4, return_scores=True)
    assert retrieve(url, query="king of the river", topk=4, return_scores=True) == many and len(many[0]) == 4
    assert retrieve(url, query="zzz") == [[]] and retrieve(url, query=" ") == [[]]


@pytest.mark.parametrize("topk", [{}, {"topk": None}, {"topk": 0}, {"topk": 3}])
def test_three_passages_where_no_number_is_given(url: str, topk: dict[str, Any]) -> None:
    assert [len(hits) for hits in retrieve(url, queries=["king", "bell"], **topk)] == [3, 3]


def test_a_document_says_its_title_where_the_first_line_cannot() -> None:
    plain = document(Passage("1", 'The "Ship"', "a\nb", 1.0))
    assert plain == {"id": "1", "contents": '"The "Ship""\na\nb'}
    assert document(Passage("1", "a\nb", "c", 1.0))["title"] == "a\nb"


@pytest.mark.parametrize(
    "body, status, says",
    [
        (b"", 400, "no JSON object"),
        (b"[]", 400, "no JSON object"),
        (b'{"queries": ["a"]', 400, "no JSON object"),
        (b"[" * 100_000, 400, "no JSON object"),
        (b"\xff\xfe", 400, "no JSON object"),
        (b'{"topk": 3}', 400, "either queries"),
        (b'{"queries": ["a"], "query": "a"}', 400, "either queries"),
        (b'{"queries": "a"}', 400, "list of strings"),
        (b'{"queries": ["a", 1]}', 400, "list of strings"),
        (b'{"query": ["a"]}', 400, "list of strings"),
        (b'{"query": null}', 400, "list of strings"),
        (b'{"queries": ["a"], "top_k": 5}', 400, "'top_k' is not known"),
        (b'{"queries": ["a"], "topk": -1}', 400, "from 1 to 1000"),
        (b'{"queries": ["a"], "topk": 1001}', 400, "from 1 to 1000"),
        (b'{"queries": ["a"], "topk": true}', 400, "from 1 to 1000"),
        (b'{"queries": ["a"], "topk": "3"}', 400, "from 1 to 1000"),
        (b'{"queries": ["a"], "topk": 3.0}', 400, "from 1 to 1000"),
        (b'{"queries": ["a"], "return_scores": "yes"}', 400, "true or false"),
        (json.dumps({"queries": ["a"] * 10_001}).encode(), 413, "10000 queries"),
        (json.dumps({"queries": ["a"] * 101, "topk": 1000}).encode(), 413, "100000 passages"),
        (json.dumps({"query": "a" * 100_001}).encode(), 413, "100000 characters"),
    ],
)
def test_what_is_no_request_is_answered_with_a_sentence(url: str, body: bytes, status: int, says: str) -> None:
    got, data, _ = call(url, "POST", "/retrieve", body)
    said = json.loads(data)
    assert got == status and sorted(said) == ["error", "message"] and says in said["message"]
    assert "Traceback" not in data and ".py" not in data


KEYS = st.sampled_from(["queries", "query", "topk", "return_scores"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8))
def test_any_json_is_understood_or_refused(body: Any) -> None:
    try:
        asked = understand(json.dumps(body).encode())
    except Refused as error:
        assert error.status in (400, 413)
    else:
        assert all(isinstance(query, str) for query in asked.queries) and 1 <= asked.k <= 1000


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(max_size=40) | st.sampled_from(["\ud800", "\0", "<search>", '"}]', "king " * 300]), max_size=4))
def test_hostile_queries_find_what_the_index_finds(url: str, queries: list[str]) -> None:
    expected = [[contents(p) for p in hits] for hits in INDEX.search(queries, 3)]
    assert retrieve(url, queries=queries) == expected


def test_other_addresses_and_methods(url: str) -> None:
    status, data, _ = call(url, "GET", "/retrieves")
    assert status == 404 and "/retrieve" in json.loads(data)["message"]
    status, data, headers = call(url, "GET", "/retrieve")
    assert (status, headers["allow"]) == (405, "POST")
    assert call(url, "POST", "/ready", b"{}")[0] == 405 and call(url, "DELETE", "/retrieve")[0] == 405


def test_a_body_over_the_limit_is_refused_before_it_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_server, "MAX_BODY", 1000)
    status, data, headers = call(url, "POST", "/retrieve", b"x" * 1001)
    assert status == 413 and "1000 bytes" in data and headers["connection"] == "close"
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=10) as raw:
        raw.sendall(b"POST /retrieve HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        raw.sendall(b"1f4\r\n" + b"x" * 500 + b"\r\n")
        raw.sendall(b"258\r\n" + b"x" * 600 + b"\r\n")  # no end: the limit is met before
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_server, "BODY_WAIT", 0.2)
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=10) as raw:
        raw.sendall(b"POST /retrieve HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert raw.recv(100).startswith(b"HTTP/1.1 408")


def metrics(url: str) -> dict[str, float]:
    status, text, _ = call(url, "GET", "/metrics")
    assert status == 200
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("seedbench_search_"): float(value) for name, _, value in lines}


def test_concurrent_singles_are_searched_for_together_and_each_gets_its_own() -> None:
    slow = Slow(INDEX, 0.05)
    with served(SearchApp(lambda: slow, cache=0, queue=1000)) as url:
        ready(url)
        slow.calls.clear()
        queries = [f"king {i}" for i in range(48)]
        with ThreadPoolExecutor(48) as pool:
            found = list(pool.map(lambda query: retrieve(url, query=query, topk=1 + len(query) % 2), queries))
        assert found == [[[contents(p) for p in INDEX.search([q], 1 + len(q) % 2)[0]]] for q in queries]
        assert sum(n for n, _ in slow.calls) == 48 and len(slow.calls) <= 14, slow.calls
        assert max(n for n, _ in slow.calls) >= 8
        assert {k for _, k in slow.calls} == {1, 2} and slow.threads == {"search-0"}
        said = metrics(url)
        assert said["batch_queries_total"] == said["queries_total"] == said["retrieve_seconds_count"] == 48
        assert said["batches_total"] == len(slow.calls) and said["queue"] == 0
        assert said['requests_total{route="/retrieve",status="200"}'] == 48


def test_a_long_request_goes_in_calls_of_256(url: str) -> None:
    slow = Slow(INDEX)
    with served(SearchApp(lambda: slow, cache=0, queue=10)) as address:
        ready(address)
        slow.calls.clear()
        assert len(retrieve(address, queries=[f"king {i}" for i in range(600)])) == 600  # alone, it may pass the queue
        assert slow.calls == [(256, 3), (256, 3), (88, 3)]


def test_what_came_before_is_answered_from_the_cache() -> None:
    slow = Slow(INDEX)
    with served(SearchApp(lambda: slow, cache=10, queue=1000)) as url:
        ready(url)
        slow.calls.clear()
        first = retrieve(url, queries=["king", "tower", "king"])
        assert retrieve(url, query="tower") == [first[1]]
        assert slow.calls == [(2, 3)]
        said = metrics(url)
        assert (said["cache_hits_total"], said["cache_misses_total"], said["cache_queries"]) == (2, 2, 2)
        assert said["batches_total"] == 1


def test_a_full_queue_says_when_to_come_back() -> None:
    slow = Slow(INDEX, 0.4)
    with served(SearchApp(lambda: slow, cache=0, queue=3)) as url:
        ready(url)
        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(lambda i: call(url, "POST", "/retrieve", b'{"queries": ["a", "b"]}'), range(8)))
        assert sorted({status for status, _, _ in said}) == [200, 503]
        full = next((data, headers) for status, data, headers in said if status == 503)
        assert json.loads(full[0])["error"] == "queue_full" and full[1]["retry-after"] == "1"
        assert len(retrieve(url, queries=["a", "b", "c"])) == 3


def test_a_search_that_fails_fails_alone() -> None:
    slow = Slow(INDEX, 0.05)
    with served(SearchApp(lambda: slow, cache=0, queue=100)) as url:
        ready(url)
        queries = ["king", "tower", "explode", "bell", "river", "song"]
        with ThreadPoolExecutor(6) as pool:
            asks = [json.dumps({"query": query}).encode() for query in queries]
            said = list(pool.map(lambda body: call(url, "POST", "/retrieve", body), asks))
        assert [status for status, _, _ in said] == [200, 200, 500, 200, 200, 200]
        assert json.loads(said[2][1])["error"] == "search_failed" and "as asked" not in said[2][1]


def test_a_retriever_whose_own_server_is_gone_is_unavailable() -> None:
    class Gone(Slow):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            if "now" in queries:
                raise InfrastructureError("the encoder is gone")
            return super().search(queries, k)

    with served(SearchApp(lambda: Gone(INDEX), cache=0, queue=100)) as url:
        ready(url)
        status, data, headers = call(url, "POST", "/retrieve", b'{"query": "now"}')
        assert (status, json.loads(data)["message"]) == (503, "the encoder is gone") and headers["retry-after"] == "1"


def test_it_answers_while_the_index_is_loaded() -> None:
    go = threading.Event()

    def opening() -> Bm25:
        go.wait(10)
        return INDEX

    with served(SearchApp(opening, cache=1, queue=10)) as url:
        status, data, _ = call(url, "GET", "/health")
        assert status == 200 and json.loads(data)["state"] == "loading"
        for path in ("/ready", "/digest", "/retrieve"):
            method, body = ("POST", b'{"query": ""}') if path == "/retrieve" else ("GET", None)
            status, data, headers = call(url, method, path, body)
            assert (status, json.loads(data)["error"], headers["retry-after"]) == (503, "loading", "1")
        assert metrics(url)["ready"] == 0
        go.set()
        said = ready(url)
        assert (said["digest"], said["kind"], said["exact"]) == (INDEX.digest(), "bm25", True)
        assert json.loads(call(url, "GET", "/health")[1])["state"] == "ready" and metrics(url)["ready"] == 1


def test_an_index_that_cannot_be_opened_ends_the_server() -> None:
    code = """if True:
        from seedbench.core import SeedbenchError
        from seedbench.indexes.search_server import SearchApp
        from seedbench.serve.asgi import run
        def opening():
            raise SeedbenchError("no index here")
        try:
            run(SearchApp(opening, cache=0, queue=1), "127.0.0.1", 0, None, "nothing")
        except SeedbenchError as error:
            print("said:", error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.endswith("said: no index here\n") and "Traceback" not in done.stderr


@pytest.mark.parametrize("bad", [{"cache": -1}, {"queue": 0}, {"threads": 0}])
def test_numbers_out_of_range_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(SeedbenchError, match="at least"):
        SearchApp(lambda: INDEX, **({"cache": 1, "queue": 1, "threads": 1} | bad))


def test_sigterm_lets_requests_under_way_end(tmp_path: Path) -> None:
    with process(tmp_path, "--slow=1") as (url, server):
        ready(url)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(call, url, "POST", "/retrieve", b'{"query": "king"}')
            time.sleep(0.3)
            server.send_signal(signal.SIGTERM)
            status, data, _ = asked.result(10)
        assert status == 200 and len(json.loads(data)["result"][0]) == 3
        assert server.wait(10) == 0
        said = server.stdout.read() if server.stdout else ""
        assert "ready after" in said and said.rstrip().endswith("stopped") and "Traceback" not in said
        assert not list(tmp_path.glob("port*"))


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seedbench", "serve", "search", *args], capture_output=True, text=True, timeout=60
    )


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("--port", str(taken.getsockname()[1]))
    assert done.returncode == 2 and "cannot listen on 127.0.0.1" in done.stderr and "Traceback" not in done.stderr
    for option, says in (("--cache", "--cache is -1"), ("--queue", "--queue is -1"), ("--port", "--port is -1")):
        done = command(option, "-1")
        assert done.returncode == 2 and says in done.stderr


@pytest.mark.parametrize("what", ["mini", "index"])
def test_the_command_serves_what_the_environment_searches(tmp_path: Path, what: str) -> None:
    if what == "mini":
        args, expected = (), open_retriever(open_dataset("mini"), None)
    else:
        corpus = tmp_path / "corpus.jsonl"
        corpus.write_text("".join(f"{json.dumps(contents(p))}\n" for p in passages()))
        folder.build("bm25", corpus, tmp_path / "index", say=lambda text: None)
        args, expected = ("--index", str(tmp_path / "index")), folder.open_index(tmp_path / "index")
    port_file = tmp_path / "port"
    options = ["--port", "0", "--port-file", str(port_file), *args]
    server = subprocess.Popen(
        [sys.executable, "-m", "seedbench", "serve", "search", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        while not port_file.exists():
            assert server.poll() is None, server.communicate()
            time.sleep(0.02)
        remote = RemoteRetriever(f"http://127.0.0.1:{int(port_file.read_text())}")
        assert (remote.digest(), remote.exact) == (expected.digest(), True)
        assert remote.search(["king of the river", "bell", ""], 3) == expected.search(
            ["king of the river", "bell", ""], 3
        )
        remote.close()
    finally:
        server.terminate()
    said, _ = server.communicate(timeout=20)
    assert server.returncode == 0 and said.decode().endswith("stopped\n") and not port_file.exists()


def test_a_folder_that_is_no_index_ends_the_command(tmp_path: Path) -> None:
    done = command("--port", "0", "--index", str(tmp_path))
    assert done.returncode == 2 and str(tmp_path) in done.stderr and "Traceback" not in done.stderr
