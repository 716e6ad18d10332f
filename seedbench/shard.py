"""One evaluation on several processes and machines, which meet in the run folder and nowhere else.

`torchrun` and `accelerate launch` tell each process its RANK, WORLD_SIZE and LOCAL_RANK, as any launcher may.
Episodes are dealt out over the ranks, each rank keeps its own journal, rank 0 joins them and writes the results.

The ranks wait for each other by files and not by torch.distributed: scripted agents then need no PyTorch, there is no
port and no time limit of a collective call that a long episode could exceed, a rank that is done may wait for hours,
and the folder has to be shared anyway, as it holds the journals.

    OUT/journal.jsonl         what earlier sessions finished; nobody writes to it while the ranks play
    OUT/journal-<rank>.jsonl  what this rank has finished; joined to the first at the end, or when the run goes on
    OUT/ranks/<rank>.json     the rank's word: a name drawn for this session, a beat that rises, state, counts
    OUT/ranks/launch.json     rank 0's answer: the names it plays with, so that files of a killed session fool nobody
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from seedbench import record
from seedbench.core import InfrastructureError, SeedbenchError

BEAT = 1.0  # seconds between signs of life, and between looks at those of the others
SILENT = 120.0  # seconds without one after which a rank counts as dead: more than a network folder's cache may hide
JOIN = 900.0  # seconds that ranks wait for each other at the start: loading a large model takes minutes


@dataclass(frozen=True)
class Place:
    """Which of how many processes this is."""

    rank: int
    world: int


def place() -> Place:
    """From the launcher's environment variables; rank 0 of 1 without a launcher. Raises SeedbenchError for nonsense."""
    given = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if None in given.values():
        return Place(0, 1)
    try:
        here = Place(int(given["RANK"] or ""), int(given["WORLD_SIZE"] or ""))
        if 0 <= here.rank < here.world:
            return here
    except ValueError:
        pass
    told = ", ".join(f"{name}={value}" for name, value in given.items())
    raise SeedbenchError(f"the launcher's {told} is no rank of so many processes: unset them, or mend the launcher.")


class Team:
    """This rank among the others: a context manager that gives signs of life for as long as it is entered."""

    def __init__(self, out: Path, here: Place):
        self.out, self.here = out, here
        self.folder = out / "ranks"
        self.journal = out / f"journal-{here.rank}.jsonl"
        self._name = secrets.token_hex(8)
        self._word: dict[str, Any] = {"state": "playing", "counts": {}}
        self._seen: dict[int, tuple[object, float]] = {}  # rank -> its last beat, and when that was new to us
        self._names: dict[str, str] = {}
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._live, name="seedbench-rank", daemon=True)

    @property
    def others(self) -> list[int]:
        return [r for r in range(self.here.world) if r != self.here.rank]

    def __enter__(self) -> Team:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = record.locked(self.folder, f"{self.here.rank}.lock")
        self._held.__enter__()
        if self.here.rank == 0:  # what a killed session left; who is alive says so again
            for old in self.folder.glob("*.json"):
                old.unlink(missing_ok=True)
        if threading.current_thread() is threading.main_thread():  # the only one that may, and the only one it reaches
            self._before = signal.signal(signal.SIGTERM, _terminated)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self.say(state="failed", message=str(error) or type(error).__name__)
        self._over.set()
        self._thread.join()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)
        self._held.__exit__(None, None, None)

    def say(self, **word: Any) -> None:
        """Tell the others: state (playing, done, complete, failed), counts, message."""
        with self._writing:
            self._word |= word
        self._beat()

    def gather(self) -> None:
        """Wait until everyone is here. Raises InfrastructureError when one does not come, SeedbenchError for a misfit.

        Rank 0 answers with the names that it found, and again when one of them turns out to be a dead session's.
        """
        began = time.monotonic()
        while missing := self._absent():
            if time.monotonic() - began > JOIN:
                raise InfrastructureError(
                    f"rank {missing[0]} of {self.here.world} did not come to {self.out} within {JOIN:.0f} s: is it a "
                    "folder that all machines share, and did every process start?"
                )
            time.sleep(BEAT / 5)

    def _absent(self) -> list[int]:
        """Ranks that are not known to be in this session: for rank 0 those that did not take up its answer, for the
        others rank 0, as long as its answer does not hold their name."""
        if self.here.rank:
            answer = self._read("launch.json") or {}
            if answer.get("names", {}).get(str(self.here.rank)) != self._name:
                return [0]
            self.say(joined=answer["zero"])
            return []
        words = {r: word for r in self.others if (word := self._read(f"{r}.json"))}
        for r, word in words.items():
            if word["world"] != self.here.world:
                raise SeedbenchError(
                    f"rank {r} was started as one of {word['world']} processes and rank 0 as one of {self.here.world}: "
                    "start all with the same number."
                )
        names = {str(r): word["name"] for r, word in words.items()}
        if names != self._names:
            self._names = names
            record.write_json(self.folder / "launch.json", {"names": names, "zero": self._name})
        return [r for r in self.others if words.get(r, {}).get("joined") != self._name]

    def look(self) -> list[dict[str, Any]]:
        """What the others last said. Raises InfrastructureError when one of them ended early or fell silent."""
        now = time.monotonic()
        words = []
        for r in self.others:
            word = self._read(f"{r}.json")
            said = (word or {}).get("beat")
            if r not in self._seen or self._seen[r][0] != said:
                self._seen[r] = said, now
            if word is not None and word.get("state") == "failed":
                raise self._lost(r, str(word.get("message", "")))
            if now - self._seen[r][1] > SILENT:
                raise self._lost(r, f"no sign of life for {SILENT:.0f} s")
            words.append(word or {"state": "playing", "counts": {}})
        return words

    def wait(self) -> None:
        """Of ranks other than 0, when done: until the run is complete. Raises as `look` does."""
        self.say(state="done")
        while self.folder.exists() and (self._read("0.json") or {}).get("state") != "complete":
            self.look()
            time.sleep(BEAT / 5)
        (self.folder / f"{self.here.rank}.json").unlink(missing_ok=True)
        self._over.set()

    def leave(self) -> None:
        """Of rank 0, when the results are written: let the others go and remove what they met by."""
        self.say(state="complete")
        until = time.monotonic() + 10 * BEAT
        while time.monotonic() < until and any((self.folder / f"{r}.json").exists() for r in self.others):
            time.sleep(BEAT / 20)
        self._over.set()
        self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lost(self, rank: int, why: str) -> InfrastructureError:
        return InfrastructureError(
            f"rank {rank} of {self.here.world} ended early ({why.rstrip('.')}): the finished episodes of all ranks are "
            f"kept, and `seedbench eval --resume {self.out}` goes on, with any number of processes."
        )

    def _live(self) -> None:
        while not self._over.is_set():
            self._beat()
            self._over.wait(BEAT)

    def _beat(self) -> None:
        """Write the word; a folder that is gone or a full disk is found by what plays, which says so better."""
        with self._writing:
            if self._over.is_set():
                return
            who = {
                "name": self._name,
                "world": self.here.world,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "beat": time.time(),
            }
            with contextlib.suppress(OSError):
                record.write_json(self.folder / f"{self.here.rank}.json", {**who, "beat": time.time(), **self._word})

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            word = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there yet, or being replaced on a folder whose replacing is not atomic
            return None
        return word if isinstance(word, dict) else None


def _terminated(number: int, frame: FrameType | None) -> None:
    """A launcher whose other process ended sends SIGTERM: end as after Ctrl-C, with a sentence."""
    raise KeyboardInterrupt("the launcher sent SIGTERM, as it does when another process of the run has ended:")
