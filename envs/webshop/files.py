"""What `seedbench data check|generate|import webshop` call. `progress(done, total)` counts goals, or kB of files."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.webshop import importing, mini
from seedbench.envs.webshop.data import open_dataset
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.shoppers import SHOPPERS, outcomes

Progress = Callable[[int, int], None]
GENERATED = (  # what the columns of `generate` mean
    "first hit, clicker, reader, scholar: success of scripted shoppers that see no goal. They buy the first hit; the "
    "first hit with the options that the task names; the first hit that visibly fits; and, knowing every paraphrase, "
    "what fits for certain within 15 steps."
)


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Compare every goal of a generated shop with its manifest, and play it; compare every file of an imported one.

    One row a split: split, expected, found, missing, damaged, wrong, pinned, solved, first. `solved` counts goals that
    the oracle reaches with score 1 within the step limit, `wrong` those that it does not or that are not the
    manifest's; `first` is the first complaint as a sentence. Raises SeedbenchError where the shop as a whole is not
    what its manifest says.
    """
    dataset = open_dataset(data)
    if not isinstance(dataset, mini.Frozen):
        return importing.rows_of(data, progress)
    env, table, done = WebShopEnv(data), [], 0
    for split in mini.SIZES:
        count: Counter[str] = Counter()
        first, tasks = "", dataset.manifest.split(split)
        for task in tasks:
            try:
                won = solved(env, task.id)
                fault = "" if won else f"The oracle does not win {task.id}: generate the shop again."
            except SeedbenchError as error:
                won, fault = False, str(error)
            count["solved"] += won
            count["wrong"] += not won
            first = first or fault
            done += 1
            progress(done, len(dataset.manifest.rows))
        found = {"split": split, "expected": len(tasks), "found": len(tasks), "missing": 0, "damaged": 0}
        solid = {"wrong": count["wrong"], "pinned": dataset.pinned(split), "solved": count["solved"], "first": first}
        table.append(found | solid)
    return table


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Build one memory-mapped store in `dest` from the original's files in `source`; returns `check`'s rows."""
    return importing.import_published(source, dest, progress)


def solved(env: WebShopEnv, task_id: str) -> bool:
    """Whether the oracle wins the task, step by step in the real environment."""
    _, info = env.reset(options={"task": task_id})
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(env.expert() or "")
        over = terminated or truncated
    return info["won"]


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate a shop into the folder `dest`, which `--data` then takes; results on it are unpinned.

    One row a split: split, goals, and the success of the scripted shoppers (seedbench.envs.webshop.shoppers). Raises
    SeedbenchError for a folder that holds a shop already, an unknown level, or where nothing can be written.
    """
    if any((dest / name).exists() for name in (mini.SHOP, mini.LISTING)):
        raise SeedbenchError(f"{dest} holds a shop already; name another folder, or remove it first.")
    for split, size in (sizes or {}).items():
        if size < 1:
            raise SeedbenchError(f"The split {split} is to hold {size} goals; ask for 1 or more, or leave it out.")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        dataset = mini.generate_into(dest, seed=seed, level=level, sizes=sizes or mini.SIZES, progress=progress)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some megabytes" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
    table = []
    for split in sizes or mini.SIZES:
        tasks = dataset.tasks(split)
        table.append(
            {"split": split, "goals": len(tasks)}
            | {how: outcomes(dataset, tasks, how)["all"].success for how in SHOPPERS}
        )
    return table
