"""Searching the live web through somebody's own code, recorded so that a run can be played again without it.

    # my_web.py
    class Web:
        name = "my search engine, 2026-12"            # recorded with the result
        def search(self, query, k): ...               # [(url, title, snippet), ...], best first
        def page(self, url): ...                      # the text of a page

    seedbench eval --env deepsearch --data DIR --retriever live:my_web:Web@FOLDER ...
    seedbench verify RUN --retriever live:FOLDER      # from what FOLDER holds alone

Nothing is searched by default: there is no engine of ours, and no key. Every call is made once and then answered from
FOLDER, also for several processes: what was written down first holds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.prompts import sha256_json

PREFIX = "live:"
CALLS, ABOUT = "calls.jsonl", "live.json"
USAGE = "write live:module:factory@FOLDER to search and record, or live:FOLDER to play again what FOLDER holds"


class Web(Protocol):
    """What the user's code does. Whatever it raises leaves the episode unplayed."""

    name: str

    def search(self, query: str, k: int) -> Sequence[tuple[str, str, str]]: ...
    def page(self, url: str) -> str: ...


class Recorded:
    """A retriever over a Web and the folder of its answers; `web` None answers from the folder alone.

    Of what `search` finds, the text is the snippet; `page` gives the whole. The digest names the engine, not what it
    has answered so far, which grows.
    """

    exact = True  # what was answered once is answered again

    def __init__(self, folder: Path, web: Web | None):
        self.folder, self.web = folder, web
        self._known: dict[str, Any] = {}
        self._read_to = 0
        self._lock = threading.Lock()
        try:
            if web is not None:
                folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self.name = self._named()
                self._read()
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise SeedbenchError(f"{folder} is no record of live search ({error}): {USAGE}.") from error

    def _alone(self) -> AbstractContextManager[Any]:
        """Against other processes; where nothing is written, nothing is locked."""
        return FileLock(self.folder / ".lock") if self.web is not None else nullcontext()

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [[Passage(name, title, text, 0.0) for name, title, text in self._found(query, k)] for query in queries]

    def _found(self, query: str, k: int) -> list[list[str]]:
        hits: list[list[str]] = self._once(["search", query, k], lambda web: _hits(web.search(query, k), k))
        return hits

    def page(self, url: str) -> str:
        """The text of a page."""
        return str(self._once(["page", url], lambda web: str(web.page(url))))

    def digest(self) -> str:
        return sha256_json(["live-1", self.name])

    def close(self) -> None:
        """Nothing is held open."""

    def _once(self, call: list[Any], ask: Callable[[Web], Any]) -> Any:
        """The answer of a call: the one that is written down, or a new one, which then is."""
        key = json.dumps(call, ensure_ascii=False)
        with self._lock:
            if key in self._known:
                return self._known[key]
            if self.web is None:
                raise InfrastructureError(f"{self.folder} holds no answer to {key[:200]}: name the record of this run.")
            answer = ask(self.web)  # not under the lock of the folder: others may search meanwhile
            with self._alone():
                self._read()  # what another process wrote down in between
                if key not in self._known:
                    with (self.folder / CALLS).open("a", encoding="utf-8", newline="\n") as out:
                        out.write(json.dumps([call, answer], ensure_ascii=False) + "\n")
                    self._read()
            return self._known[key]

    def _read(self) -> None:
        """The calls that were written down since the last time; a line without its end is none yet."""
        path = self.folder / CALLS
        if not path.exists():
            return
        with path.open("rb") as lines:
            lines.seek(self._read_to)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                call, answer = json.loads(line)
                self._known.setdefault(json.dumps(call, ensure_ascii=False), answer)
                self._read_to += len(line)

    def _named(self) -> str:
        """What the folder's answers come from. Raises SeedbenchError where that is another engine."""
        path = self.folder / ABOUT
        if not path.exists():
            if self.web is None:
                raise SeedbenchError(f"{self.folder} holds no record of live search: {USAGE}.")
            path.write_text(json.dumps({"name": str(self.web.name)}) + "\n", encoding="utf-8")
        name = str(json.loads(path.read_text(encoding="utf-8"))["name"])
        if self.web is not None and name != self.web.name:
            raise SeedbenchError(
                f"{self.folder} is a record of {name!r}, not of {self.web.name!r}: name another folder."
            )
        return name


def _hits(found: Sequence[Sequence[Any]], k: int) -> list[list[str]]:
    return [[str(url), str(title), str(text)] for url, title, text in list(found)[:k]]


def open_live(name: str) -> Recorded:
    """What `live:module:factory@FOLDER` or `live:FOLDER` names. Raises SeedbenchError where it is neither."""
    code, at, folder = name.removeprefix(PREFIX).partition("@")
    if not at:
        return Recorded(Path(code), None)
    module, _, factory = code.partition(":")
    if not (module and factory and folder):
        raise SeedbenchError(f"{name} is no live search: {USAGE}.")
    if os.getcwd() not in sys.path:  # as for agents: a module beside which one starts is found
        sys.path.append(os.getcwd())
    try:
        web = getattr(import_module(module), factory)()
    except Exception as error:  # the user's own code
        raise SeedbenchError(f"{name} cannot be made ({type(error).__name__}: {error}): mend {module}.") from error
    if not (isinstance(getattr(web, "name", None), str) and hasattr(web, "search") and hasattr(web, "page")):
        raise SeedbenchError(f"{code} lacks a name, search(query, k) or page(url): see docs/deepsearch.md.")
    return Recorded(Path(folder), web)
