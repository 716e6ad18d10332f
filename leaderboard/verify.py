"""`seedbench verify`: five levels, each of which includes those before it and returns what it finds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from seedbench.core import SeedbenchError
from seedbench.leaderboard import store
from seedbench.leaderboard.entry import LEVELS
from seedbench.leaderboard.files import Unreadable
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


class BoardSaid(NamedTuple):
    """What is wrong with a board, and why entries could not be judged here: (id, sentence)."""

    findings: list[Finding]
    skipped: list[tuple[str, str]]


def verify_board(
    board: Path,
    level: str = "replay",
    options: Options = Options(),  # noqa: B008 - frozen
    data: str | None = None,
    retriever: str | None = None,
) -> BoardSaid:
    """What is wrong with a board: entries that its submissions do not hold as they stand there, the other way round,
    one run under two ids, and whatever is wrong with an entry. An entry that cannot be judged here (published files
    that are not at hand, say) is skipped. Raises SeedbenchError for a file that is no board."""
    entries = {entry.id: entry for entry in store.read_board(board)}
    folder = store.submissions(board)
    there = {p.name for p in folder.iterdir() if p.is_dir() or p.is_symlink()} if folder.is_dir() else set()
    found = [
        Finding("form", f"submissions/{name}", "no entry of the board has this id")
        for name in sorted(there - set(entries))
    ]
    found += [Finding("form", name, f"it is the same run as {other}") for name, other in store.twins(entries.values())]
    skipped: list[tuple[str, str]] = []
    for name, entry in entries.items():
        if name not in there or (folder / name).is_symlink():
            found.append(Finding("form", name, f"there is no folder submissions/{name}"))
            continue
        run = Run(folder / name, data, retriever)
        try:
            said = [] if run.entry == entry else [Finding("form", "entry.json", f"it is not the entry of {board.name}")]
            said = said or verify(run, level, options)
        except Unreadable as error:
            said = [Finding("form", "entry.json", str(error))]
        except SeedbenchError as error:
            skipped.append((name, str(error)))
            continue
        found += [f._replace(where=f"{name}: {f.where}") for f in said]
    return BoardSaid(found, skipped)


def not_done(run: Run, level: str) -> str:
    """What a verified level leaves out for this run, in words; "" for nothing."""
    if LEVELS.index(level) > LEVELS.index("audit") and run.results.agent.get("kind") == "api":
        return "without the audit: its model lies behind an endpoint, so that nobody checked who gave the replies"
    return ""


def notes(run: Run) -> list[str]:
    """What a reader of a verified run should know and no level can refuse."""
    rows = run.results.results
    said = [f"{r.env} {r.split} is partial: {r.tasks} of its tasks were played" for r in rows if r.partial]
    said += [f"{r.env} {r.split} is unpinned: no committed digest fixes its tasks" for r in rows if not r.pinned]
    approximate = [exam.env_id for exam in run.exams if exam.protocol["replay"] == "score"]
    said += [f"{e} searches an approximate index: what the agent was shown is not replayed" for e in approximate]
    if run.results.agent.get("needs_env") is not False:
        said.append("the agent was given the environment itself, so it may have seen more than its prompt")
    return said
