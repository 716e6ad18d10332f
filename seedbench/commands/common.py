"""What the commands share: metavars, and reaching the rest of seedbench only when it is needed."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

# What a user may leave out; the plain metavar keeps --help readable.
OptInt = Annotated[int | None, tyro.conf.arg(metavar="INT")]
OptFloat = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
OptPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
OptStr = Annotated[str | None, tyro.conf.arg(metavar="STR")]


@dataclass(frozen=True)
class Terms:
    """On which terms a model behind an endpoint is asked for many answers."""

    concurrency: int = 8
    """Requests under way at a time."""
    retries: int = 4
    """Further tries of a request that failed for a reason that may pass; the pause doubles."""
    deadline: float = 180.0
    """Seconds that a try may take."""
    temperature: float = 0.0
    """Sampling temperature; SEED's analyzer had 0."""
    max_new_tokens: int = 1024
    """Longest answer, in tokens; SEED's analyzer had 1024."""
    price_in: float = 0.0
    """Price of a million prompt tokens; the cost is shown."""
    price_out: float = 0.0
    """Price of a million answer tokens."""
    budget: OptFloat = None
    """Most that this model's answers may cost, earlier calls included; nothing is sent that could exceed it."""
    budget_tokens: OptInt = None
    """The same in tokens, of prompts and answers together."""


ARGV: ContextVar[tuple[str, ...]] = ContextVar("ARGV", default=())  # the command line, set by seedbench.cli


def told(name: str) -> bool:
    """Whether the command line names an option, be it with its default."""
    flag = name.replace("_", "-")
    return any(a.partition("=")[0].replace("_", "-") in (f"--{flag}", f"--no-{flag}") for a in ARGV.get())


def lazy(module: str, function: str) -> Any:
    """A function by name: the core knows no environment, and nothing heavy is imported before it is called."""
    return getattr(import_module(module), function)


def index_or_url(name: str | None) -> str | None:
    """A retriever as it can be found again from any folder: the folder of an index becomes absolute."""
    return os.path.abspath(name) if name is not None and os.path.isdir(name) else name
