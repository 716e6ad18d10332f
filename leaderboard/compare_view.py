"""A comparison of two runs for eyes: a table and the first flipped tasks in the terminal, and a page with all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seedbench import record
from seedbench.leaderboard.compare import Comparison, Part
from seedbench.record import Record
from seedbench.view import clip, percent, render, short, visible

if TYPE_CHECKING:
    from rich.console import Console

NOTE = (
    "p: exact McNemar (several trials: sign flips), Holm-adjusted over whole splits, raw for kinds; "
    "interval: Newcombe's for pairs (several trials: the bootstrap's)"
)
NO_KINDS = "Kinds of task are left out: these runs were played on published files, which compare does not read."


def print_comparison(comparison: Comparison, show: int = 3, console: Console | None = None) -> None:
    """A table of paired tests, then the first `show` flipped tasks, transcripts side by side."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    names = [visible(side.name) for side in comparison.sides]
    console.print(f"A = {names[0]}\nB = {names[1]}", markup=False, highlight=False)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for i, name in enumerate(("", "n", "A %", "B %", "A - B, 95 %", "A only", "B only", "p")):
        grid.add_column(name, justify="right" if i else "left")
    for part in comparison.parts:
        grid.add_row(*(Text(visible(cell)) for cell in cells(part)), style="dim" if part.kind else "")
    console.print(grid)
    console.print(NOTE, style="dim", markup=False, highlight=False)
    if not comparison.kinds_known:
        console.print(NO_KINDS, markup=False, highlight=False)
    for flip, one, two in comparison.transcripts(show):
        won = "AB"[flip.better]
        head = f"{short(flip.env)} {flip.split} {flip.task}: {won} won, {'BA'[flip.better]} lost"
        console.print(f"\n{visible(head)}", style="bold", markup=False, highlight=False)
        pair = Table(box=box.SIMPLE, show_header=False, pad_edge=False, show_edge=False, expand=True)
        pair.add_column(ratio=1)
        pair.add_column(ratio=1)
        for i in range(max(len(one["steps"]), len(two["steps"])) + 1):
            pair.add_row(*(Text(_turn(line, i)) for line in (one, two)))
        console.print(pair)
    if (left := len(comparison.flips) - show) > 0:
        console.print(f"{left} more flipped tasks: --show N prints them, --html OUT shows all.", highlight=False)


def cells(part: Part) -> list[str]:
    """A part's texts: name, tasks, both means, difference with its interval, tasks won by one alone, p."""
    name = f"  {part.kind}" if part.kind else f"{short(part.env)} {part.split}"
    gap = "{} [{}, {}]".format(*map(points, part.difference))
    first, second = part.means
    ends = [str(part.test.first), str(part.test.second), p_value(part.p)]
    return [name, str(part.tasks), percent(first), percent(second), gap, *ends]


def points(share: float) -> str:
    """A difference of shares in points, one decimal, never "-0.0"."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def p_value(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _turn(line: Record, i: int) -> str:
    """One turn for a narrow column: the beginning of what was seen, and what was done."""
    if i == len(line["steps"]):
        return f"({'won' if line['success'] else line['ended']}, score {percent(line['score'])})"
    if i > len(line["steps"]):
        return ""
    step = line["steps"][i]
    seen = " ".join(clip(step["observation"]).split())
    did = visible(step["action"]) or "(nothing that could be read)"
    return f"{seen if len(seen) < 240 else seen[:240] + ' …'}\n> {did}"


def write_html(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison: the table, and every flipped task with both transcripts."""
    flips = list(comparison.transcripts())
    page = render(
        "compare.html",
        Path(__file__).parent,
        sides=comparison.sides,
        parts=comparison.parts,
        flips=flips,
        envs=sorted({short(flip.env) for flip, _, _ in flips}),
        splits=sorted({flip.split for flip, _, _ in flips}),
        kinds=sorted({flip.kind for flip, _, _ in flips if flip.kind}),
        notes=[NOTE] + [NO_KINDS] * (not comparison.kinds_known),
        points=points,
        p_value=p_value,
    )
    record.write_text(path, page)
