"""A chat endpoint on this machine that answers, and fails, as it is told. What it does stands in a list of acts."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Act = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    request_json: dict[str, Any]

    def do_POST(self) -> None:
        self.request_json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner = self.server.owner
        with owner.lock:
            n = len(owner.requests)
            owner.requests.append({"path": self.path, "headers": self.headers, "json": self.request_json})
        owner.acts[min(n, len(owner.acts) - 1)](self)

    def send(
        self, body: bytes, status: int = 200, kind: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    owner: FakeEndpoint
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is what some tests want."""


class FakeEndpoint:
    """Request n meets act n, and the last act all that come after. `requests` keeps what was asked."""

    def __init__(self, *acts: Act):
        self.acts, self.requests, self.lock = acts, [], threading.Lock()
        self.closing = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.owner = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    requests: list[dict[str, Any]]

    def __enter__(self) -> FakeEndpoint:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


def completion(content: object, finish: object = "stop", **message: object) -> bytes:
    """The body of a chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "details": {"cached": 0}}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def says(content: object, finish: object = "stop", kind: str = "application/json", **message: object) -> Act:
    return lambda h: h.send(completion(content, finish, **message), kind=kind)


def body(text: str | bytes, kind: str = "application/json") -> Act:
    return lambda h: h.send(text if isinstance(text, bytes) else text.encode(), kind=kind)


def status(code: int, text: str = "", kind: str = "application/json", **headers: str) -> Act:
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return lambda h: h.send(text.encode(), code, kind, named)


def error(number: int, message: str, **more: object) -> Act:
    """An error as model servers word it."""
    return status(number, json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}}))


def hangs(seconds: float = 30.0, then: Act | None = None) -> Act:
    def act(h: Handler) -> None:
        h.server.owner.closing.wait(seconds)
        if then is not None:
            then(h)
        h.close_connection = then is None

    return act


def drips(h: Handler) -> None:
    """One byte at a time, never long enough apart for a read to time out."""
    h.send_response(200)
    h.send_header("Content-Length", "1000")
    h.end_headers()
    while not h.server.owner.closing.wait(0.02):
        h.wfile.write(b" ")
        h.wfile.flush()


def resets(h: Handler) -> None:
    """Half a body, then a reset connection."""
    whole = completion("<action>up</action>")
    h.send_response(200)
    h.send_header("Content-Length", str(len(whole)))
    h.end_headers()
    h.wfile.write(whole[:40])
    h.wfile.flush()
    h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    h.connection.close()
    h.close_connection = True
