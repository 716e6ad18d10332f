"""Client: HTTP to one `seedbench serve`, with deadlines, and retries of what may safely be repeated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, NoReturn
from urllib.parse import urlsplit

import gymnasium as gym

from seedbench.core import InfrastructureError, SeedbenchError

API_VERSION = 1
PASSING = (429, 502, 503, 504)  # statuses after which the same request may succeed
QUIET = 30.0  # seconds that a server which was given up is left alone: hundreds of episodes shall not wait each


class EpisodeOver(SeedbenchError, gym.error.ResetNeeded):
    """`step` was called before `reset`, or after the episode had ended."""


class RemoteFault(SeedbenchError):
    """The environment raised on the server: like an exception of a local one, it ends the episode."""


class Client:
    """HTTP to one server: a keep-alive connection a thread, deadlines, and retries of what may safely be repeated."""

    def __init__(self, server: str, *, deadline: float = 60.0, retries: int = 5, backoff: float = 0.25):
        """`deadline` (seconds) bounds each request and the wait for a full server; `backoff` doubles at each retry.

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

    def describe(self, max_steps: int | None = None) -> dict[str, Any]:
        """Environment, digest, data and limits of the server, asked once for each step limit."""
        with self._lock:
            known = self._described.get(max_steps)
        if known is None:
            known = self.get("digest", **({} if max_steps is None else {"max_steps": max_steps}))
            if known.get("api") != API_VERSION:
                raise SeedbenchError(f"{self.url} speaks another version of the API: update seedbench on either side.")
            with self._lock:
                self._described[max_steps] = known
        return known

    def get(self, name: str, **query: str | int) -> dict[str, Any]:
        """The answer to GET /api/NAME. Raises as `post`."""
        return self._ask("GET", name, params=query)

    def post(self, name: str, body: Mapping[str, Any], *, once: bool = False) -> dict[str, Any]:
        """The answer to POST /api/NAME; `once` forbids retries.

        Raises InfrastructureError for a server that is gone, busy or full, RemoteFault for an environment that
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
                response = self._session().request(
                    method, f"{self.url}/api/{name}", timeout=(min(5.0, self.deadline), self.deadline), **how
                )
            except self._requests.RequestException as error:
                status, fault = 0, _cause(error)
                if attempt >= self.retries:
                    break
            else:
                status, fault = response.status_code, ""
                answer = self._read(response)
                if status == 200:
                    return answer
                fault = str(answer.get("message"))
                if answer.get("error") == "episode_lost" or not (
                    status in PASSING or answer.get("error") == "session_busy"
                ):
                    self._refuse(status, str(answer.get("error")), fault)
                wait = max(wait, _seconds(response.headers.get("Retry-After")))
            if once or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        if status == 429:
            self._give_up("sessions", f"{self.url} is full: {fault}")
        self._give_up("server", f"{self.url} cannot be reached ({fault}): start it, or give another --server")

    def _session(self) -> Any:
        if not hasattr(self._local, "session"):
            session = self._requests.Session()
            settings = session.merge_environment_settings(self.url, {}, False, None, None)  # once, not a request
            session.proxies, session.verify, session.cert = settings["proxies"], settings["verify"], settings["cert"]
            session.trust_env = False
            self._local.session = session
        return self._local.session

    def _read(self, response: Any) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or (response.status_code != 200 and "error" not in answer):
            if response.status_code in PASSING:  # a proxy before the server
                return {"error": "proxy", "message": f"HTTP {response.status_code}"}
            raise SeedbenchError(
                f"{self.url} does not answer as `seedbench serve` does (HTTP {response.status_code}): check --server."
            )
        return answer

    def _refuse(self, status: int, code: str, message: str) -> NoReturn:
        if code == "environment_failed":
            raise RemoteFault(message)
        if code in ("unknown_session", "episode_lost", "server_failed"):
            raise InfrastructureError(f"{self.url} lost the episode: {message}")
        if code == "episode_over":
            raise EpisodeOver(message)
        raise SeedbenchError(f"{self.url} refused (HTTP {status}): {message}")

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
        raise SeedbenchError("--server needs requests: pip install 'seedbench[serve]'.") from error
    return requests


def _cause(error: Exception) -> str:
    """The innermost cause, without addresses of objects in memory."""
    inner: BaseException = error
    while inner.__context__ is not None:
        inner = inner.__context__
    return type(inner).__name__ if "object at 0x" in str(inner) else f"{type(inner).__name__}: {inner}"[:200]


def _seconds(header: str | None) -> float:
    return min(float(header), 60.0) if header and header.isascii() and header.isdigit() else 0.0
