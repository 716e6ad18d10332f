"""Level 2, parse: what the environment's public parser reads in each stored text is the stored action."""

from __future__ import annotations

from seedbench.core import Mode, TextEnv
from seedbench.leaderboard.findings import MAX_FINDINGS, Finding, Options
from seedbench.leaderboard.run import Run, place
from seedbench.record import Record, key


def check_parse(run: Run, options: Options) -> list[Finding]:
    """Every turn of every episode. The parser depends on settings alone, so no episode is played."""
    envs = {exam.env_id: exam.make() for exam in run.exams}
    found: list[Finding] = []
    for number, line in enumerate(run.lines(), 1):
        found += [
            Finding("parse", f"{place(number, key(line))}, step {turn}", message)
            for turn, message in misread(envs[line["env"]], line, run.mode)
        ]
        if len(found) >= MAX_FINDINGS:
            break
    return found[:MAX_FINDINGS]


def misread(env: TextEnv, line: Record, mode: Mode) -> list[tuple[int, str]]:
    """Turns (from 1) whose text says another action than is stored, and what it says."""
    said = []
    for turn, step in enumerate(line["steps"], 1):
        action, format_valid, reason = env.parse(step["text"], mode)
        if (action, format_valid) != (step["action"], step["format_valid"]):
            stored = f"{step['action'][:200]!r} (format_valid {step['format_valid']})"
            read = f"{action[:200]!r} (format_valid {format_valid}{reason and ', ' + reason})"
            said.append((turn, f"the action is stored as {stored}, and its text is read as {read}"))
    return said
