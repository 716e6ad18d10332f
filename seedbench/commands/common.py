"""What the commands share: metavars, and reaching the rest of seedbench only when it is needed."""

from __future__ import annotations

import os
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

# What a user may leave out; the plain metavar keeps --help readable.
OptInt = Annotated[int | None, tyro.conf.arg(metavar="INT")]
OptFloat = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
OptPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
OptStr = Annotated[str | None, tyro.conf.arg(metavar="STR")]

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
