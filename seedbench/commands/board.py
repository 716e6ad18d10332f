"""`seedbench board`, `compare` and `export`: results side by side, and for other places to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from seedbench.commands.common import OptPath, OptStr, lazy


@dataclass(frozen=True)
class Board:
    """Print the board: success with its interval, seen and unseen side by side, ranks that a paired test supports.

    Agents that cannot be told from the leader on the same tasks share its rank. Floors (null, random) and the ceiling
    (expert) stand outside the ranking.
    """

    board: OptPath = None
    """The board file; by default the checkout's leaderboard/leaderboard.json."""
    html: OptPath = None
    """Also write the board as one page that needs no network."""
    env: OptStr = None
    """Only this environment, alfworld for example."""
    markdown: bool = False
    """Print markdown instead of a table for the terminal."""

    def __call__(self) -> None:
        lazy("seedbench.leaderboard.commands", "show_board")(self.board, self.html, self.env, self.markdown)


@dataclass(frozen=True)
class Compare:
    """Compare two finished runs task by task: paired tests, and the tasks that one won and the other lost.

    Exit 2 if they did not play the same tasks under the same protocol.
    """

    first: Positional[Path]
    """Run folder or entry folder."""
    second: Positional[Path]
    """Run folder or entry folder."""
    html: OptPath = None
    """Also write one page with every flipped task, the two transcripts side by side."""
    show: int = 3
    """How many flipped tasks to print with their transcripts."""

    def __call__(self) -> None:
        lazy("seedbench.leaderboard.commands", "compare")(self.first, self.second, self.html, self.show)


@dataclass(frozen=True)
class Export:
    """Write an entry's results for a model's page on the Hugging Face hub: .eval_results YAML and a model-index block.

    Nothing is uploaded.
    """

    entry: Positional[str]
    """The entry's id on the board, or the folder that holds its entry.json."""
    dataset: str
    """The hub id of the data set that stands for the benchmark, ORGANISATION/NAME."""
    out: Path
    """Folder to write to, the clone of a model's repository for example."""
    board: OptPath = None
    """The board file; by default the checkout's leaderboard/leaderboard.json."""
    source: OptStr = None
    """URL where the result can be checked, to be named as the source."""

    def __call__(self) -> None:
        lazy("seedbench.leaderboard.commands", "export")(self.entry, self.dataset, self.out, self.board, self.source)
