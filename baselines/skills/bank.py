"""A static bank of skills, written by us: baselines/skills/bank/<environment>/*.md.

What is told of a task is general.md, then <kind>.md, then family/<family>.md where the task names a family (the room of
one of ALFWorld's own games). Names are matched exactly; what has no file of its own is told the rest. The published
Skill-GRPO looks for keywords anywhere in the prompt instead and may join several files (SDAR, arXiv 2605.15155).

    seedbench eval --agent runs/grpo --env alfworld --skill static
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from seedbench.core import SeedbenchError, Task, short_name

FOLDER = Path(__file__).with_name("bank")


def static(task: Task) -> str:
    """The bank's text for a task, one line a file. Raises SeedbenchError where its environment has no skills."""
    texts = _texts(short_name(task.env))
    if "general" not in texts:
        raise SeedbenchError(f"The bank of skills has none for {task.env}: give --skill FILE, or leave it out.")
    wanted = ("general", task.kind, f"family/{task.options.get('family', '')}")
    return "\n".join(texts[place] for place in wanted if place in texts)


@cache
def _texts(name: str) -> dict[str, str]:
    """All texts of one environment by place: general, a kind, or family/<family>."""
    folder = FOLDER / name
    files = sorted(folder.rglob("*.md"))
    return {f.relative_to(folder).with_suffix("").as_posix(): f.read_text(encoding="utf-8").strip() for f in files}
