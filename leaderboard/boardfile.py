"""Reading leaderboard.json: {"schema": "seedbench.board/1", "entries": [entry, ...]}."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from seedbench.core import SeedbenchError
from seedbench.leaderboard import outcomes
from seedbench.leaderboard.board import SCHEMA, Entered
from seedbench.leaderboard.entry import Entry
from seedbench.record import read_lines

DEFAULT = Path(__file__).with_name("leaderboard.json")


def load(board: Path | None = None) -> list[Entered]:
    """The entries of a board file, the checkout's own by default.

    Outcomes come from the entry, or else from submissions/<id>/trajectories.jsonl.gz beside the file; an entry with
    neither is shown without a rank. Raises SeedbenchError where the file is missing or is no board.
    """
    path = board or DEFAULT
    entries = list(_entries(path))
    ids = [entry.id for entry in entries]
    if twice := [i for n, i in enumerate(ids) if i in ids[:n]]:
        raise SeedbenchError(f"{path} holds {twice[0]} twice: take one of them out.")
    return [entered(entry, path.parent / "submissions" / entry.id) for entry in entries]


def find(ident: str, board: Path | None = None) -> Entry:
    """One entry by its id, or the entry.json of the folder that `ident` names. Raises SeedbenchError without one."""
    folder = Path(ident)
    if (folder / "entry.json").is_file():
        return Entry.loads((folder / "entry.json").read_bytes(), str(folder / "entry.json"))
    path = board or DEFAULT
    known = {entry.id: entry for entry in _entries(path)}
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


def _entries(path: Path) -> Iterator[Entry]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise SeedbenchError(f"{path} is missing: name a board with --board FILE, or run in a checkout.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise SeedbenchError(f"{path} cannot be read as a board ({error}): fetch it again.") from error
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not isinstance(value.get("entries"), list):
        raise SeedbenchError(f'{path} is no board: it needs {{"schema": "{SCHEMA}", "entries": [...]}}.')
    for number, entry in enumerate(value["entries"], 1):
        yield Entry.from_json(entry, f"{path.name}, entry {number},")


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
