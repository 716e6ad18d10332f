"""RemoteRetriever: the retriever's own answers, or an InfrastructureError; never a failure that looks like a result."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.indexes import search_client
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.search_client import RemoteRetriever
from seedbench.indexes.search_server import SearchApp
from seedbench.indexes.search_shapes import answer, read
from tests.search_servers import Slow, passages, process, served

ODD = [Passage("a", "two\nlines", "king\n\ntext", 0.0), Passage("b", "", "king alone", 0.0),
       Passage("c", '"quoted" king"', "", 0.0), Passage("d", "\ud800", "king \ud800", 0.0)]  # fmt: skip
INDEX = Bm25(passages() + ODD)


@pytest.fixture(scope="module")
def remote() -> Iterator[RemoteRetriever]:
    with served(SearchApp(lambda: INDEX, cache=0, queue=2000)) as url:
        retriever = RemoteRetriever(f"{url}/retrieve")
        yield retriever
        retriever.close()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_it_finds_what_the_index_finds(remote: RemoteRetriever, count: int) -> None:
    queries = [f"{('king', 'tower', 'nothinglikeit', '')[i % 4]} {i}" for i in range(count)]
    assert remote.search(queries, 5) == INDEX.search(queries, 5)
    assert (remote.digest(), remote.exact) == (INDEX.digest(), True)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.text(max_size=60) | st.sampled_from(["\ud800 king", "\0", "king " * 400]), max_size=4),
    st.integers(1, 9),
)
def test_any_text_is_a_query(remote: RemoteRetriever, queries: list[str], k: int) -> None:
    assert remote.search(queries, k) == INDEX.search(queries, k)


def test_every_passage_comes_back_as_it_was(remote: RemoteRetriever) -> None:
    found = remote.search(["king"], 300)[0]
    assert {p.id for p in ODD} < {p.id for p in found} and found == INDEX.search(["king"], 300)[0]


@given(
    st.lists(st.lists(st.builds(Passage, st.text(), st.text(), st.text(), st.floats(-9, 9)), max_size=3), max_size=3)
)
def test_reading_undoes_answering(found: list[list[Passage]]) -> None:
    assert read(answer(found, True), len(found), 3) == found


def test_threads_share_one(remote: RemoteRetriever) -> None:
    queries = [f"king {i}" for i in range(64)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda q: remote.search([q], 3), queries)) == [INDEX.search([q], 3) for q in queries]


def test_a_query_over_the_server_s_limit_is_sent_in_part(remote: RemoteRetriever) -> None:
    long = "king " + "x" * 200_000
    assert remote.search([long] * 100, 1) == INDEX.search([long[:100_000]], 1) * 100
    with pytest.raises(SeedbenchError, match="k is 0"):
        remote.search(["king"], 0)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a", "http://", "http://a:x", "http://a/?b", "http://u:p@a"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(SeedbenchError, match="search server"):
        RemoteRetriever(url)


def test_nobody_listens() -> None:
    said: list[str] = []
    retriever = RemoteRetriever("http://127.0.0.1:9", patience=1.3, say=said.append)
    with pytest.raises(InfrastructureError, match=r"http://127.0.0.1:9 cannot be reached .*start it"):
        retriever.search(["king"], 1)
    assert len(said) == 1 and "up to 1 s" in said[0]
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="cannot be reached"):  # given up: not waited for again
        retriever.digest()
    assert time.monotonic() - began < 0.5


def test_it_waits_until_the_index_is_loaded() -> None:
    go, said = threading.Event(), list[str]()

    def opening() -> Bm25:
        go.wait(10)
        return INDEX

    def say(text: str) -> None:
        said.append(text)
        go.set()

    with served(SearchApp(opening, cache=1, queue=10)) as url:
        impatient = RemoteRetriever(url, loading=0.1)
        with pytest.raises(InfrastructureError, match="still loading"):
            impatient.digest()
        assert RemoteRetriever(url, patience=0.0, say=say).search(["king"], 1) == INDEX.search(["king"], 1)
    assert len(said) == 1 and "still loading its index" in said[0]


def test_a_server_killed_in_the_middle_comes_back(tmp_path: Path) -> None:
    with process(tmp_path) as (url, server):
        retriever = RemoteRetriever(url, deadline=3.0)
        before = retriever.search(["king"], 3)
        server.kill()
        server.wait()
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            retriever.search(["king"], 3)
    port = int(url.rpartition(":")[2])
    with process(tmp_path, port=port):
        retriever._left = (0.0, "")  # what half a minute does
        assert retriever.search(["king"], 3) == before
    with process(tmp_path, port=port):  # restarted between two searches: the old connection is dead
        assert retriever.search(["king"], 3) == before
    with process(tmp_path, "--red", port=port), pytest.raises(InfrastructureError, match="changed its index"):
        retriever.search(["king"], 3)


def test_the_digest_that_a_run_began_with_is_required(remote: RemoteRetriever) -> None:
    assert RemoteRetriever(remote.url, digest=INDEX.digest()).digest() == INDEX.digest()
    with pytest.raises(SeedbenchError, match="another index"):
        RemoteRetriever(remote.url, digest="0" * 64).search(["king"], 1)


def test_a_full_queue_is_asked_again() -> None:
    slow = Slow(INDEX, 0.2)
    with served(SearchApp(lambda: slow, cache=0, queue=1)) as url:
        retriever = RemoteRetriever(url, deadline=20)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: retriever.search([f"king {i}"], 1), range(4)))
    assert found == [INDEX.search([f"king {i}"], 1) for i in range(4)]


Reply = tuple[int, bytes, dict[str, str]]


@contextmanager
def pretending(*replies: Reply, drip: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """A server that knows POST /retrieve alone; the last of the replies is repeated. Yields its URL and what it got."""
    got: list[str] = []
    left = list(replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(404, b"{}", {})

        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.answer(*(left.pop(0) if len(left) > 1 else left[0]))

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            slowly = [body[i : i + 1] for i in range(len(body))]
            for byte in slowly if drip and self.command == "POST" else [body]:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has gone: as it should
                    self.wfile.write(byte)
                time.sleep(drip)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()


def reply(result: Any, status: int = 200, **headers: str) -> Reply:
    return status, json.dumps({"result": result}).encode(), headers


PROBED = reply([[{"document": {"contents": '"T"\nx'}, "score": 1}]] * len(search_client.PROBES))


def test_search_r1_s_own_server() -> None:
    """Its BM25 documents have title, text and contents but no id; its dense ones have the corpus's integer ids."""
    hits = [{"document": {"title": "A king", "text": "of\nit", "contents": '"A king"\nof\nit'}, "score": 2.5},
            {"document": {"id": 7, "contents": "bare\ntext"}, "score": 2}]  # fmt: skip
    with pretending(PROBED, reply([hits, []])) as (url, got):
        retriever = RemoteRetriever(f"{url}/retrieve")
        first, second = retriever.search(["king", ""], 2)
        assert [(p.title, p.text, p.score) for p in first] == [("A king", "of\nit", 2.5), ("bare", "text", 2.0)]
        assert first[0].id.startswith("text:") and first[1].id == "7" and second == []
        assert retriever.exact is False and retriever.digest().startswith("remote:")
        assert json.loads(got[1]) == {"queries": ["king", ""], "topk": 2, "return_scores": True}
        digest = retriever.digest()
    other = reply([[{"document": {"contents": '"U"\nx'}, "score": 1}]] * len(search_client.PROBES))
    with pretending(other) as (url, _):
        assert RemoteRetriever(url).digest() != digest
    with pretending(PROBED) as (url, _):
        assert RemoteRetriever(url).digest() == digest


DOCUMENT = {"id": "1", "contents": "x"}


@pytest.mark.parametrize(
    "bad",
    [
        (200, b"<html>", {}),
        (200, b'{"result": 1}', {}),
        (200, b"[" * 50_000, {}),
        reply([[]]),  # one list for two queries
        reply([[], [], []]),
        reply([[], {}]),
        reply([[], [DOCUMENT]]),  # no score
        reply([[], [{"document": DOCUMENT, "score": "1"}]]),
        reply([[], [{"document": DOCUMENT, "score": float("nan")}]]),
        reply([[], [{"document": {"id": "1"}, "score": 1.0}]]),
        reply([[], [{"document": {"id": [1], "contents": "x"}, "score": 1.0}]]),
        reply([[], [{"document": DOCUMENT, "score": 1.0}] * 3]),  # more than k
        (500, b"Internal Server Error", {}),
        (400, b'{"message": "what?"}', {}),
        (302, b"", {"Location": "http://127.0.0.1:9/"}),
    ],
)
def test_what_is_no_answer_is_an_infrastructure_error(bad: Reply) -> None:
    with pretending(PROBED, bad) as (url, _):
        retriever = RemoteRetriever(url)
        with pytest.raises(InfrastructureError, match="does not answer as a search server does"):
            retriever.search(["a", "b"], 2)


def test_a_busy_server_is_asked_until_the_deadline() -> None:
    busy = reply([], 503, **{"Retry-After": "0"})
    with pretending(PROBED, busy, busy, reply([[]])) as (url, got):
        assert RemoteRetriever(url).search(["a"], 1) == [[]]
        assert len(got) == 4
    with pretending(PROBED, busy) as (url, got):
        retriever = RemoteRetriever(url, deadline=0.5)
        with pytest.raises(InfrastructureError, match="HTTP 503"):
            retriever.search(["a"], 1)
        assert 2 <= len(got) <= 5


@pytest.mark.parametrize("reply_", [reply([[]]), (200, b"x" * 50, {"Content-Length": "200"})], ids=["drip", "torn"])
def test_the_deadline_holds_to_the_last_byte(reply_: Reply) -> None:
    with pretending(PROBED, drip=0.0) as (url, _):
        RemoteRetriever(url).digest()
    with pretending(reply_, drip=0.2) as (url, _):
        retriever = RemoteRetriever(url, deadline=1.0)
        retriever._about = {"digest": None, "exact": False}
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            retriever.search(["a"], 1)
        assert time.monotonic() - began < 2


def evaluate(out: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seedbench", "eval", "--quiet", "--agent", "random", "--seed", "3", *args]
    if "--resume" in args:
        command = [sys.executable, "-m", "seedbench", "eval", "--quiet", *args]
    else:
        command += ["--env", "searchqa", "--split", "seen", "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=out.parent)


def ask_about(folder: Path, count: int) -> Path:
    """A folder of published questions about the first passages, and the passages."""
    folder.mkdir()
    rows = [{"id": f"q{i}", "question": f"which {p.title.lower()} is {p.text.lower()}", "golden_answers": [p.title]}
            for i, p in enumerate(passages()[:count])]  # fmt: skip
    (folder / "nq_test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = [{"id": p.id, "title": p.title, "text": p.text} for p in passages()]
    (folder / "passages.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in found))
    return folder


def test_a_run_over_http_is_the_local_run_to_the_byte(tmp_path: Path) -> None:
    """`seedbench serve search --data` serves the index that the environment builds in process."""
    questions = ask_about(tmp_path / "questions", 12)
    local, remote = tmp_path / "local", tmp_path / "remote"
    done = evaluate(local, "--data", str(questions))
    assert done.returncode == 0, done.stderr
    port_file = tmp_path / "port"
    command = [sys.executable, "-m", "seedbench", "serve", "search", "--data", str(questions), "--port", "0"]
    server = subprocess.Popen([*command, "--port-file", str(port_file)], stderr=subprocess.DEVNULL)
    try:
        while not port_file.exists():
            assert server.poll() is None
            time.sleep(0.05)
        done = evaluate(
            remote, "--data", str(questions), "--retriever", f"http://127.0.0.1:{int(port_file.read_text())}"
        )
        assert done.returncode == 0, done.stderr
    finally:
        server.terminate()
    assert server.wait(20) == 0
    for name in ("trajectories.jsonl.gz", "results.json"):
        assert (local / name).read_bytes() == (remote / name).read_bytes()


def test_an_evaluation_outlives_its_search_server(tmp_path: Path) -> None:
    """kill -9 in the middle: episodes stay unplayed, and --resume gives the bytes of an uninterrupted run."""
    asked = ["--data", str(ask_about(tmp_path / "questions", 24))]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with process(tmp_path) as (url, _):
        done = evaluate(whole, *asked, "--retriever", url)
        assert done.returncode == 0, done.stderr
        port = int(url.rpartition(":")[2])
    with process(tmp_path, "--slow=0.05", port=port) as (url, server), ThreadPoolExecutor(1) as pool:
        running = pool.submit(evaluate, broken, *asked, "--retriever", url, "--batch", "4")
        journal = broken / "journal.jsonl"
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 6):
            assert not running.done(), running.result().stderr
            time.sleep(0.01)
        server.kill()
        cut = running.result()
    assert cut.returncode == 1 and "cannot be reached" in cut.stderr and "--resume" in cut.stderr, cut.stderr
    played = journal.read_bytes().count(b"\n")
    assert not (broken / "results.json").exists() and played < 30
    with process(tmp_path, "--red", port=port):  # another index: refused, and nothing played is lost
        other = evaluate(broken, "--resume", str(broken))
    assert other.returncode != 0 and journal.read_bytes().count(b"\n") == played
    with process(tmp_path, port=port):
        resumed = evaluate(broken, "--resume", str(broken))
    assert resumed.returncode == 0, resumed.stderr
    for name in ("trajectories.jsonl.gz", "results.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
