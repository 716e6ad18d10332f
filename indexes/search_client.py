"""RemoteRetriever: search over HTTP with deadlines, at `seedbench serve search` or at Search-R1's own server.

No failure of a server ever looks like a search result: it is an InfrastructureError, and the episode stays unplayed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.indexes.connections import MAX_ANSWER, Connections, Said, TooLong, cause
from seedbench.indexes.search_shapes import API_VERSION, DIGEST_HEADER, MAX_QUERY, json_object, read

PASSING = (429, 502, 503, 504)  # statuses after which the same request may succeed
RETRIES = 5  # after a connection that failed; a server that says it is busy is asked until the deadline
BACKOFF = 0.1  # seconds, doubled at each retry
QUIET = 30.0  # seconds that a server which was given up is left alone: hundreds of episodes shall not wait each
SLICE = 256  # queries a request
PROBES = ("who was the first king", "capital city of the country", "born in the year", "river and mountain", "a song",
          "the war", "science prize", "football club")  # fmt: skip


class RemoteRetriever:
    """A Retriever (core) behind a URL; threads may share it, each request has a kept-alive connection for itself.

    `exact` says what the server says of its index. Search-R1's own server says nothing: `exact` is False then and
    the digest is made of the first hits of eight fixed queries, which tells most indexes from each other.
    """

    kind = "remote"

    def __init__(
        self,
        url: str,
        deadline: float = 60.0,
        *,
        patience: float = 30.0,
        loading: float = 3600.0,
        digest: str | None = None,
        say: Callable[[str], object] | None = None,
    ):
        """`deadline` (seconds) bounds a search, retries and the last byte included. Before the first one a server that
        does not listen is waited for `patience` seconds, one that loads its index `loading` seconds; `say` gets a
        sentence about that (default: stderr). `digest` is what the index must have.

        Raises SeedbenchError for a URL that is none or holds a password.
        """
        self.url = url.rstrip("/").removesuffix("/retrieve")
        self._connections = Connections(self.url)
        self.deadline, self._patience, self._loading = deadline, patience, loading
        self._say = say or (lambda text: print(text, file=sys.stderr))
        self._wanted = digest
        self._about: dict[str, Any] | None = None
        self._meeting = threading.Lock()
        self._left: tuple[float, str] = (0.0, "")  # given up until when, and why

    @property
    def exact(self) -> bool:
        """Whether the same digest gives the same hits and scores anywhere, as the server says."""
        return bool(self._meet()["exact"])

    def digest(self) -> str:
        """The digest of the server's index. Raises InfrastructureError where there is none to ask."""
        return str(self._meet()["digest"])

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """As every retriever's. Raises InfrastructureError for a server that is gone, busy until the deadline, changed
        its index or answers something else; SeedbenchError for k below 1."""
        if k < 1:
            raise SeedbenchError(f"k is {k}: ask for 1 hit or more.")
        self._meet()
        found: list[list[Passage]] = []
        for some in _slices(queries):
            found += self._retrieve(some, k)
        return found

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _meet(self) -> dict[str, Any]:
        """What the server says of itself, asked once and when it is ready."""
        if self._about is None:
            with self._meeting:
                if self._about is None:
                    self._leave_alone()
                    ours = self._wait()
                    about = self._describe() if ours else self._foreign_index()
                    if self._wanted is not None and about["digest"] != self._wanted:
                        raise SeedbenchError(
                            f"{self.url} serves another index than this run began with: start it with the same "
                            "index, or give the URL of a server that has it."
                        )
                    self._about = about
        return self._about

    def _wait(self) -> bool:
        """Wait until the server is ready; False for one that is not ours."""
        began = time.monotonic()
        listening = said = False
        while True:
            try:
                status = self._connections.ask("GET", "/ready").status
            except (OSError, TooLong) as error:
                wait, fault = self._loading if listening else self._patience, cause(error)
            else:
                if status == 200:
                    return True
                if status in (404, 405):
                    return False
                if status != 503:
                    self._odd(f"HTTP {status} to /ready")
                listening, wait, fault = True, self._loading, "it is still loading its index"
            waited = time.monotonic() - began
            if waited > wait:
                self._give_up(fault)
            if waited > 1 and not said:
                said = True
                self._say(f"waiting for the search server at {self.url} ({fault}), up to {wait:.0f} s")
            time.sleep(min(1.0, max(0.05, waited / 10)))

    def _describe(self) -> dict[str, Any]:
        status, _, data = self._ask("GET", "/digest")
        about = json_object(data) if status == 200 else {}
        if about.get("api") not in (None, API_VERSION):
            raise SeedbenchError(f"{self.url} speaks another version of the API: update seedbench on either side.")
        if not (isinstance(about.get("digest"), str) and isinstance(about.get("exact"), bool)):
            self._odd("/digest names no digest")
        return about

    def _foreign_index(self) -> dict[str, Any]:
        """A server that knows /retrieve alone: what it finds for fixed queries is all that names its index."""
        self._about = {"digest": None, "exact": False}  # for the requests that follow
        try:
            first = [hits[0] if hits else None for hits in self._retrieve(PROBES, 1)]
        finally:
            self._about = None
        named = [None if p is None else (p.title, p.text) for p in first]
        digest = hashlib.sha256(json.dumps(["remote-1", named]).encode()).hexdigest()
        return {"digest": f"remote:{digest}", "exact": False}

    def _retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        body = json.dumps({"queries": [query[:MAX_QUERY] for query in queries], "topk": k, "return_scores": True})
        status, headers, data = self._ask("POST", "/retrieve", body.encode())
        if status != 200:
            said = json_object(data).get("message")
            self._odd(f"HTTP {status} to /retrieve" + (f": {said}" if isinstance(said, str) else ""))
        about = self._about or {}
        if about.get("digest") and (now := headers.get(DIGEST_HEADER, about["digest"])) != about["digest"]:
            raise InfrastructureError(
                f"{self.url} changed its index in the middle of the run (digest {about['digest'][:12]} before, "
                f"{now[:12]} now): start the server with the index of before and go on with --resume."
            )
        try:
            return read(data, len(queries), k)
        except ValueError as error:
            self._odd(f"/retrieve: {error}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Said:
        """One answer within the deadline. Raises InfrastructureError where none comes."""
        self._leave_alone()
        until, failures, wait = time.monotonic() + self.deadline, 0, BACKOFF
        while True:
            try:
                said = self._connections.ask(method, path, body, until - time.monotonic())
            except TooLong:
                self._odd(f"more than {MAX_ANSWER} bytes")
            except OSError as error:
                failures, fault, pause = failures + 1, cause(error), wait
            else:
                if said.status not in PASSING:
                    return said
                fault, pause = f"HTTP {said.status}", max(wait, _seconds(said.headers.get("Retry-After")))
            if failures > RETRIES or time.monotonic() + pause > until:
                self._give_up(fault)
            time.sleep(pause)
            wait = min(wait * 2, 5.0)

    def _odd(self, what: str) -> NoReturn:
        raise InfrastructureError(
            f"{self.url} does not answer as a search server does ({what[:300]}): check the URL and the server's log."
        )

    def _leave_alone(self) -> None:
        until, why = self._left
        if time.monotonic() < until:
            raise InfrastructureError(why)

    def _give_up(self, fault: str) -> NoReturn:
        why = f"the search server at {self.url} cannot be reached ({fault}): start it, and go on with --resume."
        self._left = time.monotonic() + QUIET, why
        raise InfrastructureError(why)


def _slices(queries: Sequence[str]) -> Iterator[Sequence[str]]:
    """At most 256 queries each, and 4 million characters where each has no more."""
    some: list[str] = []
    size = 0
    for query in queries:
        size += len(query[:MAX_QUERY])
        if some and (len(some) == SLICE or size > 4_000_000):
            yield some
            some, size = [], len(query[:MAX_QUERY])
        some.append(query)
    if some:
        yield some


def _seconds(header: str | None) -> float:
    return min(float(header), 60.0) if header and header.isascii() and header.isdigit() else 0.0
