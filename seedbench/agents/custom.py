"""`module:factory`: an agent of the user's own, from a module in the current directory or an installed one.

The shortest, in `mine.py`, played with `seedbench eval --agent mine:make`:

    def make():
        return lambda views: [f"<action>{view.admissible[0]}</action>" for view in views]
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from seedbench.core import Agent, Reply, Sampling, SeedbenchError, TextEnv, View

SPEC = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Function(Agent):
    """A plain function from views to texts, as an agent."""

    def __init__(self, function: Callable[[Sequence[View]], Sequence[str]], spec: str, source: str):
        """`source` is the digest of the module's file: another text of it is another agent."""
        self.function, self.name, self.source = function, spec, source

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        """What the function said. Raises TypeError when that is not one text a view."""
        texts = self.function(views)
        if not isinstance(texts, list | tuple):
            raise TypeError(f"{self.name} gave {type(texts).__name__}, not a list of {len(views)} texts")
        return [self._reply(text) for text in texts]

    def _reply(self, text: object) -> Reply | Exception:
        if isinstance(text, Reply | Exception):
            return text
        if isinstance(text, str):
            return Reply(text, finish_reason="stop")
        return TypeError(f"{self.name} gave {type(text).__name__} in the place of a text")

    def describe(self) -> dict[str, Any]:
        """The spec and the digest of the module's file."""
        return {"spec": self.name, "kind": "custom", "source_sha256": self.source}


def load_custom(spec: str) -> Agent:
    """Import the module, call the factory (with `sampling=`, the defaults, if it takes that), check what it returns.

    The sampling of a run is set on the agent (`agent.sampling`) before each environment is played. Raises
    SeedbenchError with the cause.
    """
    name, _, path = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # stays there, as with `python -m`, for what the module imports later
        sys.path.insert(0, here)
    try:
        factory: Any = import_module(name)
    except Exception as error:  # the module's own code runs here and may raise anything
        raise SeedbenchError(
            f"--agent {spec}: importing {name} from {here} failed ({type(error).__name__}: {error}): mend the module."
        ) from error
    source = _digest(factory)
    for part in path.split("."):
        if not hasattr(factory, part):
            raise SeedbenchError(f"--agent {spec}: {name} has no {path}: define it, or name another.")
        factory = getattr(factory, part)
    made = _call(spec, factory)
    if callable(made) and not isinstance(made, Agent | type):
        made = Function(made, spec, source)
    if not isinstance(made, Agent):
        raise SeedbenchError(
            f"--agent {spec} made {made if isinstance(made, type) else type(made)}: it must return a "
            "seedbench.core.Agent, or a function from a list of views to a list of texts."
        )
    made.name = made.name or spec
    _check_description(spec, made)
    return made


def _call(spec: str, factory: Any) -> object:
    if not callable(factory):
        raise SeedbenchError(f"--agent {spec} is {type(factory).__name__}: name a function or class without arguments.")
    try:
        signature = inspect.signature(factory)
        options = {"sampling": Sampling()} if "sampling" in signature.parameters else {}
        signature.bind(**options)
    except (TypeError, ValueError) as error:
        raise SeedbenchError(
            f"--agent {spec} cannot be called without arguments ({error}): give it defaults; only `sampling` is passed."
        ) from error
    try:
        return factory(**options)
    except Exception as error:  # the user's own code
        raise SeedbenchError(f"--agent {spec} raised {type(error).__name__}: {error}; mend the factory.") from error


def _check_description(spec: str, agent: Agent) -> None:
    """run.json holds what describe() gives; a fault in it must show before a run folder exists."""
    try:
        described = agent.describe()
        json.dumps(described, allow_nan=False)
        missing = [k for k in ("spec", "kind") if not isinstance(described.get(k), str)]
    except Exception as error:  # the user's own code
        raise SeedbenchError(
            f"--agent {spec}: describe() is not JSON ({error}): return a dict of plain values."
        ) from error
    if missing:
        raise SeedbenchError(f"--agent {spec}: describe() lacks {' and '.join(missing)}: add them as strings.")


def _digest(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
