"""From the entries of leaderboard.json to what the board takes of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from seedbench.core import SeedbenchError
from seedbench.leaderboard import files, outcomes, store
from seedbench.leaderboard.entered import Entered
from seedbench.leaderboard.entry import Entry
from seedbench.record import read_lines


def load(board: Path | None = None) -> list[Entered]:
    """The entries of a board file, the checkout's own by default.

    Outcomes come from the entry, or else from submissions/<id>/trajectories.jsonl.gz beside the file; an entry with
    neither is shown without a rank. Raises SeedbenchError where the file is missing or is no board.
    """
    path, entries = _read(board)
    return [entered(entry, store.submissions(path) / entry.id) for entry in entries]


def find(ident: str, board: Path | None = None) -> Entry:
    """One entry by its id, by its agent's name where that is one's alone, or the entry.json of the folder that
    `ident` names. Raises SeedbenchError without one."""
    folder = Path(ident)
    if (folder / "entry.json").is_file():
        return Entry.loads((folder / "entry.json").read_bytes(), str(folder / "entry.json"))
    path, entries = _read(board)
    known = {entry.id: entry for entry in entries}
    named = [entry for entry in entries if entry.agent.name == ident]
    if ident not in known and len(named) == 1:
        return named[0]
    if ident not in known:
        raise SeedbenchError(f"{path} holds no entry {ident}: it has {', '.join(known) or 'none'}.")
    return known[ident]


def entered(entry: Entry, folder: Path) -> Entered:
    """An entry as the board takes it; `folder` holds its trajectories, if they are at hand."""
    held: Sequence[outcomes.Outcomes] = entry.outcomes
    trajectories = folder / "trajectories.jsonl.gz"
    if not held and trajectories.is_file():
        held = outcomes.of_lines(read_lines(trajectories))
    card, training, verified = entry.agent, entry.training, entry.verification
    facts = {**card.model_dump(exclude={"name", "kind"}), **training.model_dump(exclude={"seeds", "selection"})}
    stated = {name: _words(value) for name, value in facts.items() if value not in ("", None, [], False)}
    return Entered(
        id=entry.id,
        name=card.name,
        results=entry.results,
        outcomes=tuple(held),
        seeds=tuple(training.seeds),
        level=verified.level if verified else "",
        findings=tuple(verified.findings) if verified else (),
        facts=stated,
    )


def disagreements(board: Path) -> list[str]:
    """Where a board and the submissions beside it tell of different entries; [] is nowhere. Nothing is replayed."""
    held = {entry.id: entry for entry in store.read_board(board)}
    folders = {path.parent.name: path for path in sorted(store.submissions(board).glob("*/entry.json"))}
    said = [f"{i} is on the board and has no folder in submissions" for i in held if i not in folders]
    said += [f"{i} is in submissions and not on the board" for i in folders if i not in held]
    said += [f"{one} is the same run as {other}" for one, other in store.twins(held.values())]
    for ident in (i for i in held if i in folders):
        try:
            stored = Entry.loads(files.read_bytes(folders[ident]), f"{ident}/entry.json")
        except files.Unreadable as error:
            said.append(str(error))
            continue
        if stored != held[ident]:
            said.append(f"{ident} is not on the board as its entry.json has it")
    return said


def _read(board: Path | None) -> tuple[Path, list[Entry]]:
    path = store.board_file(board)
    if not path.exists():
        raise SeedbenchError(f"{path} is missing: name a board with --board FILE, or make one with `seedbench submit`.")
    return path, store.read_board(path)


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":  # python -m seedbench.leaderboard.boardfile leaderboard/leaderboard.json
    for entry in store.read_board(Path(sys.argv[1])):
        if entry.verification and entry.verification.level in ("audit", "reproduced"):
            print(
                f"note: {entry.id} says {entry.verification.level} by {entry.verification.by}: nothing here checks that"
            )
    found = disagreements(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" * bool(found))
    sys.exit(bool(found))
