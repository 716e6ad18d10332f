"""`seedbench data`: what there is to play, whether it is whole, and how published files get in.

An environment's own module `files` (seedbench.envs.<name>.files) knows its files; here is only what is common.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from seedbench.core import SeedbenchError
from seedbench.exam import SPLITS, environments, make_env
from seedbench.view import visible

Report = Callable[[int, int], None]  # done, total


def print_list(env: str, data: str) -> None:
    """One table: every environment, every split, how many tasks of which kinds, pinned or not; why some are absent."""
    table, notes = _table(f"data: {data}", ("environment", "split", "tasks", "kinds", "pinned")), []
    for env_id in environments(env):
        try:
            probe = make_env(env_id, data=data)
        except SeedbenchError as error:  # an extra that is not installed hides no other environment
            table.add_row(env_id, "-", "-", "-", "-")
            notes.append(f"{env_id}: {error}")
            continue
        for split in SPLITS:
            try:
                tasks = probe.tasks(split)
            except SeedbenchError as error:
                table.add_row(env_id, split, "-", "-", "-")
                notes.append(f"{env_id} {split}: {error}")
                continue
            kinds = len({t.kind for t in tasks})
            table.add_row(env_id, split, str(len(tasks)), str(kinds), "yes" if probe.pinned(split) else "no")
    _print(table, notes)


def run_import(env: str, source: Path, dest: Path) -> None:
    """Copy and verify published files; exit 1 when the source lacked some or held others than the manifest's."""
    with progress(f"import {env}") as report:
        rows = _files(env).import_published(source, dest, report)
    _print_rows(f"{env}: {source} -> {dest}", rows)
    _print_command(env, dest, [row["split"] for row in rows if row["found"]])


def run_check(env: str, data: str) -> None:
    """Compare every file with the manifest; exit 1 when any is missing, damaged or different, or none is there."""
    with progress(f"check {env}") as report:
        rows = _files(env).check(data, report)
    _print_rows(f"{env}: {data}", rows)


def run_generate(env: str, dest: Path, seed: int, level: int, sizes: dict[str, int] | None) -> None:
    """Generate a set of one's own into a new folder and say how hard it is."""
    with progress(f"generate {env}") as report:
        rows = _files(env).generate(dest, report, seed=seed, level=level, sizes=sizes)
    _print_rows(f"{env}: {dest}, seed {seed}, level {level}", rows)
    print(_files(env).GENERATED)
    _print_command(env, dest, [row["split"] for row in rows])


def _files(env: str) -> Any:
    return import_module(f"seedbench.envs.{env}.files")


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    """One line a split, and each split's first complaint below; exit 1 for a fault.

    A split that is wholly absent is no fault, as a folder may hold only some; that all are absent is one.
    """
    table = _table(title, [name for name in rows[0] if name != "first"])
    for row in rows:
        cells = (f"{value:.3f}" if isinstance(value, float) else str(value) for k, value in row.items() if k != "first")
        table.add_row(*map(Text, cells))
    _print(table, [f"{row['split']}: {row['first']}" for row in rows if row.get("first")])
    if "found" not in rows[0]:
        return
    if not any(row["found"] for row in rows):
        fault = "not one file of the manifest is there: name the folder that holds them."
    elif any(row["found"] and (row["missing"] or row["damaged"] or row["wrong"]) for row in rows):
        fault = "some files are missing or differ from the committed manifest (see the table)."
    else:
        return
    print(f"seedbench: {fault}", file=sys.stderr)
    sys.exit(1)


def _table(title: str, columns: Sequence[str]) -> Table:
    return Table(*columns, title=Text(visible(title), style="table.title"))  # a plain title would be read as markup


def _print(table: Table, notes: Sequence[str]) -> None:
    """The table, and below it what is too long for a cell."""
    Console().print(table)
    for note in notes:
        print(visible(note))


def _print_command(env: str, dest: Path, splits: Sequence[str]) -> None:
    folder = shlex.quote(visible(str(dest)))
    print(f"play them with: seedbench eval --agent expert --env {env} --data {folder} --split {','.join(splits)}")


@contextmanager
def progress(name: str) -> Iterator[Report]:
    """A progress bar on standard error; the block is given a function to report (done, total) to."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
