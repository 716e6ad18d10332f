"""The command line, called in this process."""

from __future__ import annotations

from seedbench import cli


def run(*args: object, code: int = 0) -> None:
    try:
        cli.main([str(a) for a in args])
    except SystemExit as stop:
        assert (stop.code or 0) == code
    else:
        assert code == 0
