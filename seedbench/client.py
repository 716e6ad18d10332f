"""Client: HTTP to one `seedbench serve`, with deadlines, and retries of what may safely be repeated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, NoReturn
from urllib.parse import urlsplit

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.replies import SHAPES, Refusal, check, read

API_VERSION = 1
PASSING = (429, 502, 503, 504)  # statuses after which the same request may succeed
OF_THE_REQUEST = ("malformed", "bad_task", "bad_split", "bad_setting")  # codes that blame whoever asked, with 400
MAX_ANSWER = 64 << 20  # bytes
QUIET = 30.0  # seconds that a server which was given up is left alone: hundreds of episodes shall not wait each


class RemoteFault(SeedbenchError):
    """The environment raised on the server: like an exception of a local one, it ends the episode."""


class Client:
    """HTTP to one server: a keep-alive connection a thread, deadlines, and retries of what may safely be repeated.

    Every answer is checked (seedbench.replies): what `seedbench serve` would not say is an InfrastructureError.
    """

    def __init__(self, server: str, *, deadline: float = 60.0, retries: int = 5, backoff: float = 0.25):
        """`deadline` (seconds) bounds each request, to the last byte of its answer, and the wait for a full server.

        `backoff` (seconds) doubles at each retry.

        Raises SeedbenchError for a URL that is none, or holds a password.
        """
        try:
            parts = urlsplit(server)
            fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            fine = False
        if not fine or parts.query or parts.fragment:
            raise SeedbenchError("--server is no http(s) URL: write it as http://localhost:8000.")
        if parts.username or parts.password:
            raise SeedbenchError("--server holds a user or password, which a run would record: leave it out.")
        self.url = server.rstrip("/").removesuffix("/api")
        self.deadline, self.retries, self.backoff = deadline, retries, backoff
        self._requests = _requests()
        self._local = threading.local()
        self._described: dict[int | None, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, str]] = {}  # what was given up -> until when, why

    def describe(self, max_steps: int | None = None, *, anew: bool = False) -> dict[str, Any]:
        """Environment, digest, data and limits of the server, asked once for each step limit, or `anew`.

        Raises SeedbenchError for a server of another version.
        """
        with self._lock:
            known = None if anew else self._described.get(max_steps)
        if known is None:
            known = self.get("digest", **({} if max_steps is None else {"max_steps": max_steps}))
            with self._lock:  # what a run began with is kept
                self._described.setdefault(max_steps, known)
        return known

    def get(self, name: str, **query: str | int) -> dict[str, Any]:
        """The answer to GET /api/NAME. Raises as `post`."""
        return self._ask("GET", name, params=query)

    def post(self, name: str, body: Mapping[str, Any], *, once: bool = False) -> dict[str, Any]:
        """The answer to POST /api/NAME; `once` forbids retries.

        Raises InfrastructureError for a server that is gone, busy, full or another, RemoteFault for an environment that
        raised, SeedbenchError for a request that was refused.
        """
        data = json.dumps(body).encode()
        return self._ask("POST", name, data=data, headers={"Content-Type": "application/json"}, once=once,
                         opens=name == "reset" and "session" not in body)  # fmt: skip

    def _ask(self, method: str, name: str, *, once: bool = False, opens: bool = False, **how: Any) -> dict[str, Any]:
        self._leave_alone("server")
        if opens:
            self._leave_alone("sessions")
        until = time.monotonic() + self.deadline
        for attempt in count():
            wait = min(self.backoff * 2 ** min(attempt, 10), 5.0)
            try:
                status, headers, data = self._send(method, f"{self.url}/api/{name}", **how)
            except (self._requests.RequestException, TimeoutError) as error:
                status, fault = 0, _cause(error)
                if attempt >= self.retries:
                    break
            else:
                if status == 200:
                    return self._read(name, data)
                refusal = self._refusal(status, data)
                fault = refusal.message
                if refusal.error == "episode_lost" or not (status in PASSING or refusal.error == "session_busy"):
                    self._refuse(status, refusal)
                wait = max(wait, _seconds(headers.get("Retry-After")))
            if once or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        if status == 429:
            self._give_up("sessions", f"{self.url} is full: {fault}")
        self._give_up("server", f"{self.url} cannot be reached ({fault}): start it, or give another --server")

    def _send(self, method: str, address: str, **how: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. Raises TimeoutError where the last byte is not there at the deadline.

        On a thread of its own: no timeout of a socket bounds an answer that comes byte by byte.
        """
        session, until = self._session(), time.monotonic() + self.deadline
        got: list[tuple[int, Mapping[str, str], bytes] | BaseException] = []

        def work() -> None:
            try:
                with session.request(
                    method, address, stream=True, allow_redirects=False,
                    timeout=(min(5.0, self.deadline), self.deadline), **how,
                ) as response:  # fmt: skip
                    data = bytearray()
                    for part in response.iter_content(1 << 13):
                        data += part
                        if len(data) > MAX_ANSWER or time.monotonic() > until:
                            break
                    if len(data) > MAX_ANSWER:
                        raise self._foreign(f"more than {MAX_ANSWER} bytes")
                    got.append((response.status_code, response.headers, bytes(data)))
            except BaseException as error:  # raised again by whoever waits
                got.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.deadline)
        if not got or time.monotonic() > until:
            del self._local.session  # its connection is in the middle of an answer
            raise TimeoutError(f"no whole answer within {self.deadline:g} s")
        if isinstance(got[0], BaseException):
            raise got[0]
        return got[0]

    def _session(self) -> Any:
        if not hasattr(self._local, "session"):
            session = self._requests.Session()
            settings = session.merge_environment_settings(self.url, {}, False, None, None)  # once, not a request
            session.proxies, session.verify, session.cert = settings["proxies"], settings["verify"], settings["cert"]
            session.trust_env = False
            self._local.session = session
        return self._local.session

    def _read(self, name: str, data: bytes) -> dict[str, Any]:
        try:
            answer = read(data)
            if name == "digest" and answer.get("api") != API_VERSION and "api" in answer:
                raise SeedbenchError(f"{self.url} speaks another version of the API: update seedbench on either side.")
            check(SHAPES[name], answer)
        except ValueError as error:
            raise self._foreign(f"/api/{name}: {error}") from error
        return answer

    def _refusal(self, status: int, data: bytes) -> Refusal:
        try:
            return check(Refusal, read(data))
        except ValueError as error:
            if status in PASSING:  # a proxy before the server
                return Refusal(error="proxy", message=f"HTTP {status}")
            raise self._foreign(f"HTTP {status}") from error

    def _foreign(self, what: str) -> InfrastructureError:
        return InfrastructureError(
            f"{self.url} does not answer as `seedbench serve` does ({what[:300]}): check --server."
        )

    def _refuse(self, status: int, refusal: Refusal) -> NoReturn:
        code, message = refusal.error, refusal.message
        if (status, code) == (500, "environment_failed"):
            raise RemoteFault(message)
        if status == 400 and code in OF_THE_REQUEST:
            raise SeedbenchError(f"{self.url} refused (HTTP {status}): {message}")
        if code in ("unknown_session", "episode_lost", "episode_over", "wrong_turn", "server_failed"):
            raise InfrastructureError(f"{self.url} lost the episode: {message}")
        raise self._foreign(f"HTTP {status}, {code}: {message}")

    def _leave_alone(self, what: str) -> None:
        with self._lock:
            until, why = self._left.get(what, (0.0, ""))
        if time.monotonic() < until:
            raise InfrastructureError(why)

    def _give_up(self, what: str, why: str) -> NoReturn:
        with self._lock:
            self._left[what] = time.monotonic() + QUIET, why
        raise InfrastructureError(why)


def _requests() -> Any:
    try:
        import requests
    except ModuleNotFoundError as error:
        raise SeedbenchError("--server needs requests: pip install -e '.[serve]'.") from error
    return requests


def _cause(error: Exception) -> str:
    """The innermost cause, without addresses of objects in memory."""
    inner: BaseException = error
    while inner.__context__ is not None:
        inner = inner.__context__
    return type(inner).__name__ if "object at 0x" in str(inner) else f"{type(inner).__name__}: {inner}"[:200]


def _seconds(header: str | None) -> float:
    return min(float(header), 60.0) if header and header.isascii() and header.isdigit() else 0.0
