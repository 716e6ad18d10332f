"""metrics.jsonl (one object an update), a live line in the terminal, and curves.png at the end."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from seedbench import record
from seedbench.core import SeedbenchError

FILE = "metrics.jsonl"
CURVES = ("success", "loss", "grad_norm", "entropy", "invalid_rate", "episode_steps")


class Log:
    """Opened at update `done` of `total`: later lines of an interrupted run are dropped, as they come again. Raises
    SeedbenchError for a file whose lines do not lead up to `done`, which is left as it is."""

    def __init__(self, out: Path, done: int, total: int, quiet: bool = False, tracker: Any = None):
        self.path = out / FILE
        self.quiet = quiet
        self.tracker = tracker
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), disable=quiet)
        self.task = self.bar.add_task("update", total=total, completed=done)
        if not quiet:
            out.mkdir(parents=True, exist_ok=True)
            kept = _before(self.path, done) if self.path.exists() else []
            record.write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def __enter__(self) -> Log:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()
        if self.tracker is not None:
            self.tracker.finish()

    def write(self, figures: Mapping[str, Any]) -> None:
        """Append one update's line."""
        if self.quiet:
            return
        line = json.dumps(dict(figures), allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self.tracker is not None:
            numbers = {k: v for k, v in figures.items() if isinstance(v, int | float) and k != "update"}
            self.tracker.log(numbers, step=figures["update"])
        flat = "  no group had a spread" if figures.get("flat_groups") == 1 else ""
        words = f"success {figures['success']:.2f}  loss {figures['loss']:+.3f}  |g| {figures['grad_norm']:.2f}{flat}"
        self.bar.update(self.task, completed=figures["update"], description=words)


def _before(path: Path, done: int) -> list[dict[str, Any]]:
    kept = [line for line in read(path) if line["update"] <= done]
    if [line["update"] for line in kept] != list(range(done + 1 - len(kept), done + 1)) or (done and not kept):
        raise SeedbenchError(
            f"{path} is damaged after line {len(kept)}, and the checkpoint stands at update {done}: mend that line, or "
            f"move the file away, and --resume goes on with a log that begins at update {done + 1}."
        )
    return kept


def plot(path: Path) -> None:
    """Draw curves.png beside a metrics file: what it holds of CURVES; nothing where there are no updates."""
    lines = read(path)
    names = [name for name in CURVES if any(name in line for line in lines)]
    if not names:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = 1 if len(names) < 4 else 2
    columns = -(-len(names) // rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4 * columns, 3 * rows), layout="constrained", squeeze=False)
    for name, axis in zip(names, axes.flat, strict=False):
        points = [(x["update"], x[name]) for x in lines
                  if isinstance(x.get(name), int | float) and math.isfinite(x[name])]  # fmt: skip
        axis.plot([x for x, _ in points], [y for _, y in points])
        axis.set(title=name.replace("_", " "), xlabel="update")
    figure.savefig(path.with_name("curves.png"), dpi=100)
    pyplot.close(figure)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file up to the first that is torn or no update's."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict) or type(value.get("update")) is not int:
            break
        lines.append(value)
    return lines
