"""The command line: `seedbench COMMAND --help`. What a command does lies where it belongs; see seedbench.commands."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

import seedbench
from seedbench.commands import common
from seedbench.commands.anchors import Anchors
from seedbench.commands.board import Board, Compare, Export
from seedbench.commands.data import Data
from seedbench.commands.index import Index
from seedbench.commands.live import Doctor, Play, Serve
from seedbench.commands.runs import Eval, Table
from seedbench.commands.skills import Skills
from seedbench.commands.submit import Submit, Verify
from seedbench.commands.train import Train
from seedbench.core import InfrastructureError, SeedbenchError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Command = (
    Annotated[Eval, subcommand("eval")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Skills, subcommand("skills")]
    | Annotated[Anchors, subcommand("anchors")]
    | Annotated[Play, subcommand("play")]
    | Annotated[Table, subcommand("table")]
    | Annotated[Board, subcommand("board")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Verify, subcommand("verify")]
    | Annotated[Submit, subcommand("submit")]
    | Annotated[Data, subcommand("data")]
    | Annotated[Index, subcommand("index")]
    | Annotated[Serve, subcommand("serve")]
    | Annotated[Doctor, subcommand("doctor")]
)


def main(argv: list[str] | None = None) -> None:
    """Run one command. Exit 0: done; 1: checked and found wanting, or not all played; 2: a mistake in the call."""
    argv = sys.argv[1:] if argv is None else argv
    if any(not arg.isprintable() and arg.encode("utf-8", "replace").decode() != arg for arg in argv):
        sys.exit(_say("an argument is not valid UTF-8 text: type it again.", 2))
    if argv == ["--version"]:
        print(f"seedbench {seedbench.__version__}")
        return
    try:
        read(argv)()
    except InfrastructureError as error:
        sys.exit(_say(error, 1))
    except SeedbenchError as error:
        sys.exit(_say(error, 2))
    except KeyboardInterrupt as error:  # a run says what it kept and how it goes on
        sys.exit(_say(error if str(error) else "stopped.", 130))
    except BrokenPipeError:  # `seedbench data list | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in FULL:
            cure = "what was finished is kept: free some and run the same command again, or go on with --resume"
            sys.exit(_say(f"no space left on the disk{where}; {cure}.", 1))
        sys.exit(_say(f"{error.strerror or error}{where}: mend that and run the command again.", 1))


def read(argv: Sequence[str]) -> Callable[[], None]:
    """The command that `argv` means, not yet run. Raises SystemExit (with what is wrong on stderr), SeedbenchError."""
    common.ARGV.set(tuple(argv))
    command: Any = tyro.cli(
        Command,
        prog="seedbench",
        description="Train and measure language-model agents on long-horizon tasks.",
        args=list(argv),
    )
    return command


def _say(message: object, code: int) -> int:
    from seedbench.view import visible

    line = visible(" ".join(str(message).split()))
    print("seedbench:", line if len(line) < 600 else f"{line[:300]} ... {line[-290:]}", file=sys.stderr)
    return code
