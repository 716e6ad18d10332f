"""`seedbench anchors validate`: every line of a file against the environment's documents."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from seedbench.baselines.anchors import store
from seedbench.baselines.anchors.fair import faults
from seedbench.commands.common import index_or_url
from seedbench.core import SeedbenchError
from seedbench.exam import Config, plan_one

if TYPE_CHECKING:
    from seedbench.commands.anchors import Validate

SHOWN = 5  # tasks with faults that are named
STRANGE = "no task of these splits of this --env"


def run(options: Validate) -> None:
    """Print what falls short; exit 1 where something does. Raises SeedbenchError for a file that cannot be read."""
    found = store.read(options.file)
    if not found:
        raise SeedbenchError(f"{options.file} holds no anchors: `seedbench anchors build` first.")
    exam = plan_one(Config("validate", env=options.env, data=options.data, split=options.split,
                           retriever=index_or_url(options.retriever)))  # fmt: skip
    env = exam.make()
    tasks = {task.id: task for of_split in exam.tasks.values() for task in of_split}
    wrong: dict[str, list[str]] = {}
    for name, anchors in found.items():
        why = list(faults(env, tasks[name], anchors)) if name in tasks else [STRANGE]
        if why:
            wrong[name] = why
    n, good = sum(map(len, found.values())), len(found) - len(wrong)
    print(f"{options.file}: {len(found)} tasks, {n / len(found):.2f} anchors each, {good} without fault")
    for fault, times in sorted(Counter(w for some in wrong.values() for w in some).items()):
        print(f"  {fault}: {times}")
    for name, why in list(wrong.items())[:SHOWN]:
        print(f"    {name}: {', '.join(dict.fromkeys(why))}")
    if wrong:
        sys.exit(1)
