"""What `seedbench board`, `compare` and `export` do."""

from __future__ import annotations

import sys
from pathlib import Path

from seedbench.core import SeedbenchError


def show_board(board: Path | None, html: Path | None, env: str | None, as_markdown: bool) -> None:
    """Print the board, and write its page where one is asked for."""
    from seedbench.exam import environments
    from seedbench.leaderboard import boardfile, show
    from seedbench.leaderboard.board import tables

    only = None
    if env is not None:
        ids = environments(env)
        if len(ids) > 1:
            raise SeedbenchError(f"--env {env}: name one environment, or leave the option out for all of them.")
        only = ids[0]
    found = tables(boardfile.load(board), only)
    if html is not None:
        writable(html, "--html")
        show.write_html(found, html)
    if as_markdown:
        sys.stdout.write(show.markdown(found))
    else:
        show.print_board(found)


def compare(first: Path, second: Path, html: Path | None, show: int) -> None:
    """Print two runs against each other, and write the page where one is asked for."""
    from seedbench.leaderboard import compare_view
    from seedbench.leaderboard.compare import compare as pair_up

    if show < 0:
        raise SeedbenchError(f"--show is {show}: give 0 or more.")
    pair = pair_up(first, second)
    if html is not None:
        writable(html, "--html")
        compare_view.write_html(pair, html)
    compare_view.print_comparison(pair, show)


def export(entry: str, dataset: str, out: Path, board: Path | None, source: str | None) -> None:
    """Write an entry in the shapes of the Hugging Face hub."""
    from seedbench.leaderboard import boardfile, exchange

    for path in exchange.write(boardfile.find(entry, board), dataset, out, source):
        print(path)


def writable(path: Path, flag: str) -> None:
    """Raises SeedbenchError if `path` is a folder, or its folder is not there."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise SeedbenchError(f"{flag} {path}: name a file in a folder that is there.")
