"""Which lessons may be learnt from. SEED keeps what can be read (arXiv 2607.14777); the other checks are ours."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seedbench.baselines.lines import Lines, Row, write_lines
from seedbench.baselines.skills import leaks
from seedbench.baselines.skills.rows import LESSON
from seedbench.baselines.skills.store import episodes_of, exam_of, settings_of
from seedbench.baselines.skills.utility import Utility
from seedbench.core import SeedbenchError, TextEnv, Trajectory
from seedbench.record import locked

if TYPE_CHECKING:
    from seedbench.commands.skills import Validate


def run(options: Validate) -> None:
    """Check the lessons of one analyzer; writes validated.jsonl anew, in the order of tasks and trials."""
    if not 0 <= options.least_words <= options.most_words or options.trials < 1:
        raise SeedbenchError("--least-words must be 0 or more and at most --most-words, --trials 1 or more.")
    if options.min_gain is not None and not options.utility:
        raise SeedbenchError("--min-gain is measured with --utility: give both.")
    if options.min_gain is not None and not -1 <= options.min_gain <= 1:
        raise SeedbenchError(f"--min-gain is {options.min_gain}: give a difference of success rates, from -1 to 1.")
    settings_of(options.project)
    with locked(options.project):
        rows = lessons_of(Lines(options.project / "lessons.jsonl", LESSON).rows, options.analyzer)
        if not rows:
            raise SeedbenchError(f"{options.project} holds no lesson to check: `seedbench skills annotate` first.")
        exam = exam_of(options.project)
        env = exam.make()
        episodes = episodes_of(options.project, exam)
        checked = []
        for row in rows:
            t = episodes.get((row["task"], row["trial"]))
            if t is not None:
                why = list(reasons(row, t, env, options.least_words, options.most_words))
                checked.append({**row, "success": t.success, "reasons": why})
        if options.utility:
            valid = [row for row in checked if not row["reasons"]]
            gains = Utility(options, exam).measure(valid)
            for row in valid:
                row["gain"] = gains[row["task"], row["trial"]]
                if options.min_gain is not None and row["gain"] < options.min_gain:
                    row["reasons"].append("no gain")
        write_lines(options.project / "validated.jsonl", checked)
    _print(options, checked, len(rows) - len(checked))


def lessons_of(rows: list[Row], analyzer: str | None) -> list[Row]:
    """One line an episode, of one analyzer: the one named, or that of the last line."""
    analyzer = analyzer or (rows[-1]["analyzer"] if rows else "")
    found = {(row["task"], row["trial"]): row for row in rows if row["analyzer"] == analyzer}
    return [found[k] for k in sorted(found)]


def reasons(row: Row, t: Trajectory, env: TextEnv, least: int, most: int) -> Iterator[str]:
    """Why a lesson is not to be learnt; nothing for a valid one. `unreadable` alone is SEED's own check."""
    skill = row["skill"]
    if not skill:
        yield "unreadable"
        return
    n = len(skill.split())
    if n < least and not any(unicodedata.category(c) == "Lo" for c in skill):  # scripts that may have no spaces
        yield "too short"
    if n > most:
        yield "too long"
    told = f"{skill} {row['summary']}"  # both are learnt to be written
    if any(leaks.answers(told, env.secrets(t.task))):
        yield "tells the answer"
    shown = [s.view.observation for s in t.steps] + [s.view.goal for s in t.steps[:1]]
    if any(leaks.numbers(told, shown)):
        yield "numbers of this task"


def _print(options: Validate, checked: list[Row], lost: int) -> None:
    against = Counter(why for row in checked for why in row["reasons"])
    n, parsed = len(checked), sum(bool(row["skill"]) for row in checked)
    valid = sum(not row["reasons"] for row in checked)
    won = sum(row["success"] for row in checked)
    print(f"{options.project}: {n} lessons of {checked[0]['analyzer'] if checked else '-'} "
          f"({won} after a success), {parsed} readable, {valid} valid")  # fmt: skip
    if lost:
        print(f"  {lost} more are of episodes that the project does not hold, and were left out")
    for why, times in sorted(against.items()):
        print(f"  {why}: {times}")
