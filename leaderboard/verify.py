"""`seedbench verify`: five levels, each of which includes those before it and returns what it finds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from seedbench.leaderboard import store
from seedbench.leaderboard.entry import LEVELS
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.run import Run

Check = Callable[[Run, Options], list[Finding]]

# By string: the last two load torch, the others must not.
CHECKS = {
    "form": "seedbench.leaderboard.form:check_form",
    "parse": "seedbench.leaderboard.parse_level:check_parse",
    "replay": "seedbench.leaderboard.replay:check_replay",
    "audit": "seedbench.leaderboard.audit:check_audit",
    "reproduced": "seedbench.leaderboard.reproduced:check_reproduced",
}


def check_of(level: str) -> Check:
    """The function that checks one level."""
    module, _, function = CHECKS[level].partition(":")
    check: Check = getattr(import_module(module), function)
    return check


def verify(run: Run, level: str = "replay", options: Options = Options()) -> list[Finding]:  # noqa: B008 - frozen
    """What is wrong with a run, up to a level; [] is nothing.

    Stops after the first level that finds something: the next ones rely on what it checks.
    """
    for name in LEVELS[: LEVELS.index(level) + 1]:
        if found := check_of(name)(run, options):
            return found
    return []


def verify_board(board: Path, level: str = "replay", options: Options = Options()) -> list[Finding]:  # noqa: B008
    """What is wrong with a board: entries that its submissions do not hold as they stand there, the other way round,
    and whatever is wrong with an entry. Raises SeedbenchError for a file that is no board."""
    entries = {entry.id: entry for entry in store.read_board(board)}
    folder = store.submissions(board)
    there = {p.name for p in folder.iterdir() if p.is_dir() or p.is_symlink()} if folder.is_dir() else set()
    found = [
        Finding("form", f"submissions/{name}", "no entry of the board has this id")
        for name in sorted(there - set(entries))
    ]
    for name, entry in entries.items():
        if name not in there or (folder / name).is_symlink():
            found.append(Finding("form", name, f"there is no folder submissions/{name}"))
            continue
        run = Run(folder / name)
        said = verify(run, level, options)
        if not said and run.entry != entry:
            said = [Finding("form", "entry.json", f"it is not the entry of {board.name}")]
        found += [f._replace(where=f"{name}: {f.where}") for f in said]
    return found


def notes(run: Run) -> list[str]:
    """What a reader of a verified run should know and no level can refuse."""
    rows = run.results.results
    said = [f"{r.env} {r.split} is partial: {r.tasks} of its tasks were played" for r in rows if r.partial]
    said += [f"{r.env} {r.split} is unpinned: no committed digest fixes its tasks" for r in rows if not r.pinned]
    if run.results.agent.get("needs_env") is not False:
        said.append("the agent was given the environment itself, so it may have seen more than its prompt")
    return said
