"""`seedbench verify`: five levels, each of which includes those before it and returns what it finds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

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


def notes(run: Run) -> list[str]:
    """What a reader of a verified run should know and no level can refuse."""
    rows = run.results.results
    said = [f"{r.env} {r.split} is partial: {r.tasks} of its tasks were played" for r in rows if r.partial]
    said += [f"{r.env} {r.split} is unpinned: no committed digest fixes its tasks" for r in rows if not r.pinned]
    if run.results.agent.get("needs_env") is not False:
        said.append("the agent was given the environment itself, so it may have seen more than its prompt")
    return said
