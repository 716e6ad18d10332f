"""What plays a game behind ALFWorldEnv: our engine, or the real one in a process of its own.

backend = make_backend("fast")      # or "textworld" (the real engine with caches), "alfworld" (untouched)
text = backend.reset(entry)
text, accepted = backend.step("open fridge 1")
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, Protocol

from seedbench.core import SeedbenchError, UnsupportedError
from seedbench.envs.alfworld import oracle
from seedbench.envs.alfworld.data import ALLOWED, DataError, Dataset, GameSource
from seedbench.envs.alfworld.engine import Game, State
from seedbench.envs.alfworld.real.pool import Play, Turn
from seedbench.envs.alfworld.real.turbo import VERSIONS

CURE = "install them with `pip install -e '.[alfworld]'` (needs a C++ compiler), or use backend=\"fast\""


class Entry(NamedTuple):
    """A game that is to be played, with its id and task type, and the data set that it comes from."""

    id: str
    kind: str
    source: GameSource
    dataset: Dataset


class Divergence(SeedbenchError):
    """The real engine and ours, which plays along, do not agree."""


class Backend(Protocol):
    """One play at a time. `commands` are the admissible ones in the engine's order; not to be changed."""

    def reset(self, entry: Entry) -> str: ...
    def step(self, command: str) -> tuple[str, bool]: ...
    def commands(self) -> tuple[str, ...]: ...
    @property
    def won(self) -> bool: ...
    @property
    def progress(self) -> float: ...
    def expert(self) -> str | None: ...
    def why_not(self, command: str) -> str: ...
    def clone(self) -> Backend: ...
    def close(self) -> None: ...


@lru_cache(maxsize=512)
def _compiled(problem: str, task: str) -> Game:
    """One immutable game for all environments that play it, in any thread; forgotten when 512 others came since."""
    return Game(problem, task)


def compile_game(source: GameSource, name: str) -> Game:
    """The compiled game of `source`. Raises DataError for a game of another domain or grammar than ours."""
    if not ours(source):
        raise DataError(
            f"the fast engine plays one release of ALFWorld, and {name} has another domain or grammar "
            '(older releases say `put X in/on Y`): fetch the current games, or play it with backend="textworld".'
        )
    try:
        return _compiled(source.problem, source.task)
    except SeedbenchError as error:
        raise DataError(f"{name}: {error}") from None


def ours(source: GameSource) -> bool:
    """Whether the game is of the domain and grammar that the fast engine implements."""
    return (source.domain_sha, source.grammar_sha) in ALLOWED


class Fast:
    """Our own engine: see engine.State."""

    state: State  # of the play under way, from the first reset on

    def reset(self, entry: Entry) -> str:
        game = compile_game(entry.source, entry.id)
        if getattr(self, "state", None) is None or self.state.game is not game:
            self.state = State(game)
        return self.state.reset()

    def step(self, command: str) -> tuple[str, bool]:
        return self.state.step(command)

    def commands(self) -> tuple[str, ...]:
        return self.state.commands()

    @property
    def won(self) -> bool:
        return self.state.won

    @property
    def progress(self) -> float:
        return oracle.goal_progress(self.state)

    def expert(self) -> str | None:
        return oracle.next_action(self.state)

    def why_not(self, command: str) -> str:
        name = command.strip().removeprefix("go to ")
        if name != command.strip() and name in self.state.game.receptacles:
            return f"you are already at the {name}"
        return _why_not(command)

    def clone(self) -> Fast:
        other = Fast()
        other.state = self.state.clone()
        return other

    def close(self) -> None:
        pass


class Real:
    """The real engine. Our own plays along where it knows the game: for the oracle, and to check that both agree."""

    def __init__(self, engine: str):
        self.engine = engine
        self.mirror: Fast | None = None
        self.turn = Turn("", [], False)
        self._play: Play | None = None
        self._entry: Entry | None = None

    def reset(self, entry: Entry) -> str:
        self.close()
        self._entry, self._play = entry, Play(self.engine, game_text(entry), entry.kind)
        self.turn = self._play.open()
        self.mirror = Fast() if ours(entry.source) else None
        if self.mirror is not None:
            self._compare(self.mirror.reset(entry), "reset")
        return self.turn.text

    def step(self, command: str) -> tuple[str, bool]:
        assert self._play is not None, "reset comes first"
        accepted = command.strip() in self.turn.admissible
        self.turn = self._play.step(command)
        if self.mirror is not None:
            self._compare(self.mirror.step(command)[0], command)
        return self.turn.text, accepted

    def _compare(self, text: str, command: str) -> None:
        assert self.mirror is not None and self._entry is not None and self._play is not None
        fast = Turn(text, list(self.mirror.commands()), self.mirror.won)
        if fast != self.turn:
            what = next(field for field in Turn._fields if getattr(fast, field) != getattr(self.turn, field))
            raise Divergence(
                f"{self._entry.id}: the engines differ in `{what}` at step {len(self._play.commands)} ({command!r}), "
                f"{self.engine} says {getattr(self.turn, what)!r}, fast says {getattr(fast, what)!r}; please report it."
            )

    def commands(self) -> tuple[str, ...]:
        return tuple(self.turn.admissible)

    @property
    def won(self) -> bool:
        return self.turn.won

    @property
    def progress(self) -> float:
        return float(self.turn.won) if self.mirror is None else self.mirror.progress

    def expert(self) -> str | None:
        if self.mirror is None:
            raise UnsupportedError("the oracle knows the published release of ALFWorld only; this game has none.")
        return self.mirror.expert()

    def why_not(self, command: str) -> str:
        return _why_not(command) if self.mirror is None else self.mirror.why_not(command)

    def clone(self) -> Real:
        """A play in the same state; the engine gets there, by playing the commands again, at the clone's first step."""
        other = Real(self.engine)
        other.turn, other._entry = self.turn, self._entry
        other._play = None if self._play is None else self._play.clone()
        other.mirror = None if self.mirror is None else self.mirror.clone()
        return other

    def close(self) -> None:
        if self._play is not None:
            self._play.close()


def _why_not(command: str) -> str:
    return "the command is not among the admissible ones" if command.strip() else "no command was given"


def game_text(entry: Entry) -> str:
    """The text of a game.tw-pddl file: the user's file as it is, or one made for an embedded game."""
    if (path := entry.dataset.game_file(entry.id)) is not None:
        return path.read_text(encoding="utf-8")
    from seedbench.envs.alfworld.texts import game_json

    return game_json(entry.source)


def _cached() -> Real:
    if wrong := [f"{name} {found}" for name, found in _installed().items() if found != VERSIONS[name]]:
        untouched = _untouched("plain")
        _notice(
            f'seedbench\'s caches do not know {", ".join(wrong)}: backend="textworld" runs the slow, untouched engine'
        )
        return untouched
    return Real("textworld")


def _untouched(engine: str) -> Real:
    _installed()
    if sys.version_info >= (3, 13):
        raise SeedbenchError(
            "the untouched ALFWorld engine does not run on Python 3.13 (its grammar needs the locals() of 3.12): "
            'use Python 3.11 or 3.12, or backend="textworld" with alfworld 0.4.2 and textworld 1.7.0.'
        )
    return Real(engine)


@cache
def _installed() -> dict[str, str]:
    """Versions of the packages that make the real engine. Raises SeedbenchError where one is missing."""
    try:
        return {name: version(name) for name in VERSIONS}
    except PackageNotFoundError as error:
        raise SeedbenchError(f"the real ALFWorld engine is not installed ({error.name} is missing): {CURE}.") from None


@cache
def _notice(sentence: str) -> None:
    """Tell the user, once a process."""
    print(f"note: {sentence}.", file=sys.stderr)


BACKENDS: dict[str, Callable[[], Backend]] = {
    "fast": Fast,
    "textworld": _cached,
    "alfworld": lambda: _untouched("alfworld"),
}


def make_backend(name: str) -> Backend:
    """Raises SeedbenchError for an unknown name, or where what it needs is not installed."""
    if name not in BACKENDS:
        raise SeedbenchError(f'ALFWorld has no backend {name!r}; use "fast", "textworld" or "alfworld".')
    return BACKENDS[name]()


def suited(backend: Backend, entry: Entry) -> Backend:
    """The backend for this game: the one that was chosen, or the real engine where ours does not know the game."""
    if not isinstance(backend, Fast) or ours(entry.source):
        return backend
    _notice(f"{entry.id} has another domain or grammar than the fast engine's: such games go to the real one, slowly")
    return make_backend("textworld")
