"""HTTP with kept-alive connections and a deadline to the last byte. The standard library's: a search is often shorter
than what a larger client spends on a request."""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from seedbench.core import SeedbenchError

MAX_ANSWER = 256 << 20  # bytes


class Said(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]  # names in any case
    data: bytes


class TooLong(Exception):
    """An answer of more than MAX_ANSWER bytes."""


class Connections:
    """Connections to one server, as many as there are requests at a time. Proxies of the environment are not used."""

    def __init__(self, url: str):
        """Raises SeedbenchError for a URL that is none, or holds a password."""
        try:
            parts = urlsplit(url)
            fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            fine = False
        if not fine or parts.query or parts.fragment:
            raise SeedbenchError("the search server is no http(s) URL: write it as http://localhost:8000.")
        if parts.username or parts.password:
            raise SeedbenchError("the search server's URL holds a user or password, which a run would record.")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._path = str(parts.hostname), parts.port, parts.path.rstrip("/")
        self._idle: list[http.client.HTTPConnection] = []

    def ask(self, method: str, path: str, body: bytes | None = None, seconds: float = 10.0) -> Said:
        """The answer. Raises OSError for a connection that fails, TimeoutError (one too) where the last byte is not
        there in time, TooLong."""
        until = time.monotonic() + seconds
        while True:
            try:
                connection, used = self._idle.pop(), True
            except IndexError:
                connection, used = self._kind(self._host, self._port, timeout=max(seconds, 0.001)), False
            try:
                return self._exchange(connection, method, path, body, until)
            except (ConnectionError, http.client.HTTPException, ValueError) as error:
                if used and isinstance(error, ConnectionError | http.client.BadStatusLine):
                    continue  # the server may have closed it while it was idle
                if isinstance(error, OSError):
                    raise
                raise ConnectionError(f"{type(error).__name__}: {error}"[:200]) from error  # no HTTP, or torn

    def _exchange(self, connection: Any, method: str, path: str, body: bytes | None, until: float) -> Said:
        whole = False
        try:
            if connection.sock is None:
                connection.connect()
                connection.sock = _Timed(connection.sock)
            connection.sock.until = until
            connection.request(method, self._path + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read(MAX_ANSWER + 1)
            if len(data) > MAX_ANSWER:
                raise TooLong
            whole = not response.will_close
        finally:
            if whole:
                self._idle.append(connection)
            else:
                connection.close()
        return Said(response.status, response.headers, data)

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()


class _Timed:
    """What http.client needs of a socket, with one deadline for all that is sent and read. A socket's own timeout
    bounds each call alone: an answer that comes byte by byte would never be late."""

    def __init__(self, sock: Any):
        self._sock = sock
        self.until = 0.0

    def left(self) -> float:
        """Seconds until the deadline. Raises TimeoutError at it."""
        seconds = self.until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("no whole answer in time")
        return seconds

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self.left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self, self._sock), 1 << 16)

    def close(self) -> None:
        self._sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, timed: _Timed, sock: Any):
        self._timed, self._sock = timed, sock
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open until the answer is read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._timed.left())
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        self._raw.close()
        super().close()


def cause(error: BaseException) -> str:
    """The innermost cause, without addresses of objects in memory."""
    while error.__context__ is not None:
        error = error.__context__
    return type(error).__name__ if "object at 0x" in str(error) else f"{type(error).__name__}: {error}"[:200]
