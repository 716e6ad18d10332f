"""`seedbench data`: what there is to play, whether it is whole, and how published files get in.

An environment's own module `files` (seedbench.envs.<name>.files) knows its files; here is only what is common.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from seedbench.core import SeedbenchError
from seedbench.exam import SPLITS, environments, make_env

Report = Callable[[int, int], None]  # done, total


def print_list(env: str, data: str) -> None:
    """One table: every environment, every split, how many tasks of which kinds, pinned or not."""
    table = Table("environment", "split", "tasks", "kinds", "pinned", title=f"data: {data}")
    for env_id in environments(env):
        probe = make_env(env_id, data=data)
        for split in SPLITS:
            try:
                tasks = probe.tasks(split)
            except SeedbenchError as error:
                table.add_row(env_id, split, "-", escape(str(error)), "")
                continue
            kinds = len({t.kind for t in tasks})
            table.add_row(env_id, split, str(len(tasks)), str(kinds), "yes" if probe.pinned(split) else "no")
    Console().print(table)


def run_import(env: str, source: Path, dest: Path) -> None:
    """Copy and verify published files; exit 1 when the source lacked some or held others than the manifest's."""
    with progress(f"import {env}") as report:
        rows = _files(env).import_published(source, dest, report)
    _print_rows(f"{env}: {source} -> {dest}", rows)
    print(f"play them with: seedbench eval --agent expert --env {env} --data {dest}")


def run_check(env: str, data: str) -> None:
    """Compare every file with the manifest; exit 1 when any is missing, damaged or different."""
    with progress(f"check {env}") as report:
        rows = _files(env).check(data, report)
    _print_rows(f"{env}: {data}", rows)


def run_generate(env: str, dest: Path, seed: int, level: int, sizes: dict[str, int] | None) -> None:
    """Generate a set of one's own into a new folder and say how hard it is."""
    with progress(f"generate {env}") as report:
        rows = _files(env).generate(dest, report, seed=seed, level=level, sizes=sizes)
    _print_rows(f"{env}: {dest}, seed {seed}, level {level}", rows)
    print(f"play it with: seedbench eval --agent expert --env {env} --data {dest}")


def _files(env: str) -> Any:
    return import_module(f"seedbench.envs.{env}.files")


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    """One line a split. A split that is wholly absent is no fault: a folder may hold only some."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    Console().print(table)
    if any(row.get("found") and (row["missing"] or row["damaged"] or row["wrong"]) for row in rows):
        print(
            "seedbench: some files are missing or differ from the committed manifest (see the table).", file=sys.stderr
        )
        sys.exit(1)


@contextmanager
def progress(name: str) -> Iterator[Report]:
    """A progress bar on standard error; the block is given a function to report (done, total) to."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
