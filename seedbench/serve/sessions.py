"""Sessions: isolated episodes behind opaque names. They expire, are capped, and serve one request at a time."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from seedbench.core import TextEnv

BUSY_WAIT = 5.0  # seconds that a request waits for another one of its session


class Refused(Exception):
    """A request that is answered with an error: HTTP status, a code for programs, one sentence for people."""

    def __init__(self, status: int, code: str, message: str, retry_after: float | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


@dataclass(eq=False)
class Session:
    """One shopper, one house: an environment and the last thing it said. Only the holder of `lock` touches it."""

    id: str
    used: float  # by the clock of Sessions, at the end of the last request
    lock: threading.Lock = field(default_factory=threading.Lock)
    env: TextEnv | None = None
    digest: str = ""
    task: str = ""
    turn: int = -1  # how many resets and steps came after the one that opened it
    request: bytes = b""  # hash of the last of them, and what it was answered: a repeated request gets the same reply
    reply: bytes = b""
    over: bool = True


class Sessions:
    """All sessions of a server. No thread of its own: what has expired goes when the next request comes."""

    def __init__(self, limit: int, ttl: float, clock: Callable[[], float] = time.monotonic):
        self.limit, self.ttl, self._clock = limit, ttl, clock
        self._held: OrderedDict[str, Session] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter({"opened": 0, "closed": 0, "expired": 0, "refused": 0})

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._held)

    @contextmanager
    def open(self) -> Iterator[Session]:
        """A new session, held for the `with` block; it is dropped again where the block raises. Refused: 429."""
        with self._lock:
            self._expire()
            if len(self._held) >= self.limit:
                self.counts["refused"] += 1
                oldest = next(iter(self._held.values()))
                wait = max(1.0, oldest.used + self.ttl - self._clock())
                raise Refused(
                    429,
                    "too_many_sessions",
                    f"all {self.limit} sessions are in use: close some, come later, or raise --max-sessions",
                    min(wait, 2.0),  # most sessions are closed long before they expire
                )
            session = Session(secrets.token_urlsafe(18), self._clock())
            self._held[session.id] = session
            session.lock.acquire()
        try:
            yield session
        except BaseException:
            self._drop(session)
            raise
        finally:
            session.used = self._clock()
            session.lock.release()
        self.counts["opened"] += 1

    @contextmanager
    def use(self, name: str) -> Iterator[Session]:
        """The session of that name, for one request at a time. Refused: 404 when there is none, 409 when it is busy."""
        with self._lock:
            self._expire()
            session = self._held.get(name)
        if session is None:
            raise _unknown()
        if not session.lock.acquire(timeout=BUSY_WAIT):
            raise Refused(409, "session_busy", "another request of this session is still under way", 1.0)
        try:
            with self._lock:
                if self._held.get(name) is not session:  # closed while this request waited
                    raise _unknown()
                self._held.move_to_end(name)
                session.used = self._clock()
            yield session
        finally:
            session.used = self._clock()
            session.lock.release()

    def close(self, name: str) -> None:
        """End a session. Refused: as in `use`."""
        with self.use(name) as session:
            self.discard(session)
            self.counts["closed"] += 1

    def discard(self, session: Session) -> None:
        """Forget a session that the caller holds."""
        self._drop(session)

    def _drop(self, session: Session) -> None:
        with self._lock:
            self._held.pop(session.id, None)
        if session.env is not None:
            session.env.close()

    def _expire(self) -> None:
        """Drop what nobody used for `ttl` seconds. The caller holds the lock."""
        horizon = self._clock() - self.ttl
        for session in [*self._idle(horizon)]:
            del self._held[session.id]
            self.counts["expired"] += 1
            if session.env is not None:
                session.env.close()

    def _idle(self, horizon: float) -> Iterator[Session]:
        for session in self._held.values():
            if session.used > horizon:
                return
            if not session.lock.locked():
                yield session


def _unknown() -> Refused:
    return Refused(404, "unknown_session", "there is no such session: it was closed, has expired or never was; reset")
