"""Workers and the games on them, seen from the caller's process.

    play = Play("textworld", game, kind)      # game: the text of a game.tw-pddl file
    play.open()                               # -> Turn(text, admissible, won)
    play.step("open fridge 1")

A `Play` is its game and the commands so far; which worker holds it is a detail: where a worker was lost to another
play's failure, or to a fork, the commands are played again on the next one. A call that takes longer than DEADLINE, or
whose worker dies, raises InfrastructureError and takes that worker along.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, NamedTuple

from seedbench.core import InfrastructureError, SeedbenchError

DEADLINE = 300.0  # seconds a reset or a step may take; one of 2 CPU-seconds took over 60 on a crowded machine
STARTING = 120.0  # seconds more for the first call of a worker, which imports the engine meanwhile
WORKERS = min(4, os.cpu_count() or 1)  # at most, one for each thread that plays
GAMES = {"textworld": 100, "plain": 50, "alfworld": 25}  # a worker's; each game leaves about 2 MB, unpatched ones 4


class Turn(NamedTuple):
    """What the real engine says: text, admissible commands in its order, whether the game is won."""

    text: str
    admissible: list[str]
    won: bool


class Worker:
    """One process. `ask` is one request and its answer; the process is gone for good after a failure."""

    def __init__(self, engine: str):
        ours, theirs = socket.socketpair()
        arguments = (engine, str(theirs.fileno()), str(os.getpid()))
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "seedbench.envs.alfworld.real.worker", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self.engine, self.owner, self.thread = engine, os.getpid(), threading.get_ident()
        self.games = 0
        self.plays: set[int] = set()
        self.dropped: deque[int] = deque()  # plays that ended; told with the next request, since collectors may not ask
        self._socket, self._lock, self._asked, self._left = ours, threading.Lock(), False, b""

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self._socket.fileno() >= 0 and self.process.poll() is None

    @property
    def worn(self) -> bool:
        return self.games >= GAMES[self.engine]

    def ask(self, request: dict[str, Any]) -> Turn:
        """Raises InfrastructureError for a worker that is late or dead, SeedbenchError for what the engine raised."""
        with self._lock:
            request["drop"] = [self.dropped.popleft() for _ in range(len(self.dropped))]
            end = time.monotonic() + DEADLINE + (0 if self._asked else STARTING)
            try:
                self._socket.settimeout(end - time.monotonic())
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(self._line(end))
            except TimeoutError as error:
                self.kill()
                raise InfrastructureError(
                    f"the real ALFWorld engine gave no answer in {DEADLINE:.0f} seconds and was stopped; play again."
                ) from error
            except OSError as error:
                self.kill()
                raise InfrastructureError(
                    f"the real ALFWorld engine's process ended (exit status {self.process.returncode}); play again."
                ) from error
            self._asked = True
        if "error" in answer:
            raise SeedbenchError(f"the real ALFWorld engine failed on this game: {answer['error'].rstrip('.')}.")
        self.games = answer["games"]
        return Turn(answer["text"], answer["admissible"], answer["won"])

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._left:
            self._socket.settimeout(max(1e-3, end - time.monotonic()))
            if not (more := self._socket.recv(1 << 16)):
                raise ConnectionResetError("the worker closed its socket")
            self._left += more
        line, _, self._left = self._left.partition(b"\n")
        return line

    def kill(self) -> None:
        """End the process and wait for it."""
        self._socket.close()
        self.process.kill()
        self.process.wait()

    def drop(self, number: int) -> None:
        self.plays.discard(number)
        self.dropped.append(number)


class Pool:
    """The workers of this process, started when first needed, ended with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.workers: list[Worker] = []

    def worker(self, engine: str) -> Worker:
        """The worker on which this thread should open its next game."""
        me = threading.get_ident()
        with self._lock:
            for worker in self.workers:
                if worker.worn and not worker.plays:
                    worker.kill()
            self.workers = [w for w in self.workers if w.usable]
            fit = [w for w in self.workers if w.engine == engine and not w.worn]
            if mine := [w for w in fit if w.thread == me or not w.plays]:
                mine[0].thread = me
                return mine[0]
            if len(fit) < WORKERS:
                self.workers.append(Worker(engine))
                return self.workers[-1]
            return min(fit, key=lambda w: len(w.plays))

    def close(self) -> None:
        """End all workers. Plays under way go on in new ones."""
        with self._lock:
            for worker in self.workers:
                if worker.owner == os.getpid():
                    worker.kill()
            self.workers = []

    def forget(self) -> None:
        """In a forked child: the workers are the parent's, and so may be the locks."""
        self._lock, self.workers = threading.Lock(), []


POOL = Pool()
atexit.register(POOL.close)
os.register_at_fork(after_in_child=POOL.forget)
_numbers = itertools.count()


class Play:
    """One play of one game by the real engine."""

    def __init__(self, engine: str, game: str, kind: str, commands: list[str] | None = None):
        self.engine, self.game, self.kind = engine, game, kind
        self.commands = list(commands or ())
        self._worker: Worker | None = None
        self._number = -1
        self._end = lambda: None

    def open(self) -> Turn:
        """Start the game over, with the commands so far if there are any; returns what the last of them gave."""
        self.close()
        worker, number = POOL.worker(self.engine), next(_numbers)
        self._worker, self._number = worker, number
        worker.plays.add(number)
        self._end = weakref.finalize(self, worker.drop, number)
        self._end.atexit = False
        turn = worker.ask({"do": "open", "session": number, "game": self.game, "kind": self.kind})
        for command in self.commands:
            turn = worker.ask({"do": "step", "session": number, "command": command})
        return turn

    def step(self, command: str) -> Turn:
        if self._worker is None or not self._worker.usable:
            self.open()
        assert self._worker is not None
        turn = self._worker.ask({"do": "step", "session": self._number, "command": command})
        self.commands.append(command)
        return turn

    def clone(self) -> Play:
        """A play in the same state, which is reached, by playing the commands again, when it is first stepped."""
        return Play(self.engine, self.game, self.kind, self.commands)

    def close(self) -> None:
        """Give the place on the worker back; a later step would begin anew from the commands."""
        self._end()
        self._worker = None
