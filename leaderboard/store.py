"""leaderboard.json: every entry, whole, in one file; and the submissions beside it, which hold the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

import seedbench
from seedbench.core import SeedbenchError
from seedbench.leaderboard import files
from seedbench.leaderboard.entry import Entry
from seedbench.record import write_json

SCHEMA = "seedbench.board/1"
MAX_BOARD = 512 * 2**20


def board_file(given: Path | None) -> Path:
    """The board that was named, or the checkout's. Raises SeedbenchError where there is neither, or it is no file."""
    if given is None:
        root = Path(seedbench.__file__).resolve().parent.parent
        board = root / "leaderboard" / "leaderboard.json"
        if not (root / "pyproject.toml").is_file() or not board.is_file():
            raise SeedbenchError(
                "this seedbench is no checkout, so it has no board: clone the repository, or give --board FILE."
            )
        return board
    if given.is_dir() or given.is_symlink():
        raise SeedbenchError(f"--board {given} is a folder or a link: name a file, new or written by submit.")
    return given.resolve()


def submissions(board: Path) -> Path:
    """The folder with one folder an entry, by its id."""
    return board.parent / "submissions"


def read_board(board: Path) -> list[Entry]:
    """The entries, by id; none where there is no file. Raises SeedbenchError for a file that is no board."""
    if not board.exists():
        return []
    value = files.parse_object(files.read_bytes(board, MAX_BOARD), board.name)
    held = value.get("entries")
    if set(value) != {"schema", "entries"} or value["schema"] != SCHEMA or not isinstance(held, list):
        raise SeedbenchError(f"{board} is no board: its keys must be schema ({SCHEMA}) and entries, a list.")
    entries = [Entry.from_json(entry, f"{board.name}, entry {i},") for i, entry in enumerate(held)]
    ids = [entry.id for entry in entries]
    if twice := [name for i, name in enumerate(ids) if name in ids[:i]]:
        raise SeedbenchError(f"{board} holds {twice[0]} twice: delete one.")
    return sorted(entries, key=lambda entry: entry.id)


def twins(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """Entries of a run that another holds too, (id, the other's): counted twice it would be two agents or seeds."""
    first: dict[str, str] = {}
    pairs = [(entry.id, first.setdefault(entry.results.chain_head, entry.id)) for entry in entries]
    return [(name, other) for name, other in pairs if name != other]


def write_board(board: Path, entries: Sequence[Entry]) -> None:
    """Replace the file in one step. Hold `locked_board` from the read to the write."""
    write_json(board, {"schema": SCHEMA, "entries": [e.as_json() for e in sorted(entries, key=lambda e: e.id)]})


@contextmanager
def locked_board(board: Path) -> Iterator[None]:
    """Hold the board for this process: another submit waits until it is free. A kill releases it."""
    board.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(board.with_name(f".{board.name}.lock")):
        yield
