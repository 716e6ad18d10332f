"""The board for eyes: a table in the terminal, markdown, and board.html, one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seedbench import record
from seedbench.leaderboard.board import Cell, Row, Table
from seedbench.leaderboard.entered import digest_of
from seedbench.view import percent, render, short, visible

if TYPE_CHECKING:
    from rich.console import Console

NOTE = (
    "success in per cent with its 95 % interval · #: rank by paired test against the leader, shared where p >= .05 "
    "(Holm over environments) · gap: seen - unseen (Newcombe)"
)
WIDE = 118  # columns in which a figure and its interval stand on one line


def print_board(tables: Sequence[Table], console: Console | None = None) -> None:
    """One table an exam; in a narrow terminal the intervals stand under their figures."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = console or Console()
    for table in tables:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False, title_justify="left")
        grid.title = Text(title(table, tables), style="bold")
        for i, name in enumerate(header(table)):
            grid.add_column(name, justify="right" if i else "left", no_wrap=i > 0, min_width=0 if i else 14)
        for row in table.rows:
            texts = [visible(cell) for cell in cells(table, row)]
            if console.width < WIDE:
                texts = texts[:1] + [_narrow(text) for text in texts[1:]]
            grid.add_row(*map(Text, texts), style="dim" if row.outside else "")
        console.print(grid)
        for line in notes(table):
            console.print(visible(line), markup=False, highlight=False)
        console.print()
    console.print(NOTE if tables else "The board is empty.", markup=False, highlight=False, style="dim")


def _narrow(text: str) -> str:
    """A figure over its interval, seeds over their deviation."""
    for old, new in (
        (" [", "\n"),
        ("]", ""),
        (", +", "..+"),
        (", -", "..-"),
        (", ", "\u2013"),
        ("single ", "single\n"),
    ):
        text = text.replace(old, new)
    return text.replace(" / ", "/")


def markdown(tables: Sequence[Table]) -> str:
    """The same tables for a README; bars and markup in names are escaped."""
    parts = []
    for table in tables:
        head = header(table)
        parts += [f"### {_escaped(title(table, tables))}", ""]
        parts += ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
        parts += ["| " + " | ".join(map(_escaped, cells(table, row))) + " |" for row in table.rows]
        parts += ["", *(_escaped(line) + "\n" for line in notes(table))]
    return "\n".join([*parts, NOTE if tables else "The board is empty.", ""])


def write_html(tables: Sequence[Table], path: Path) -> None:
    """Write board.html: tables with drawn intervals, kinds and provenance of every row, filters."""
    page = render(
        "board.html",
        Path(__file__).parent,
        tables=[(table, title(table, tables), notes(table)) for table in tables],
        envs=sorted({short(table.env) for table in tables}),
        levels=sorted({level(row) for table in tables for row in table.rows}),
        selection=selection,
        seeds=seeds,
        level=level,
        marks=marks,
        signed=signed,
        whole=whole,
        protocol=_protocol,
        places=places(tables),
    )
    record.write_text(path, page)


def title(table: Table, tables: Sequence[Table]) -> str:
    """The exam's name; with its digest where another exam shares that name."""
    name = f"{short(table.env)} ({table.data})"
    twins = sum((t.env, t.data) == (table.env, table.data) for t in tables) > 1
    return f"{name}, protocol {digest_of(table.exam)}" if twins else name


def header(table: Table) -> list[str]:
    found = ["agent"]
    for split in table.splits:
        found += ["#", f"{split} %"]
    gap = ["gap"] if {"seen", "unseen"} <= set(table.splits) else []
    return [*found, *gap, "seeds", "chosen", "verified"]


def cells(table: Table, row: Row) -> list[str]:
    """A row's texts, one a column of `header`."""
    found = [row.name + (f" ({', '.join(marks(row))})" if marks(row) else "")]
    for split in table.splits:
        cell = row.cells.get(split)
        found += [rank(cell), figure(cell)]
    if {"seen", "unseen"} <= set(table.splits):
        found.append(f"{signed(row.gap[0])} [{signed(row.gap[1])}, {signed(row.gap[2])}]" if row.gap else "-")
    return [*found, seeds(table, row), selection(row), level(row)]


def rank(cell: Cell | None) -> str:
    return str(cell.standing.rank) if cell and cell.standing else "-"


def figure(cell: Cell | None) -> str:
    return f"{percent(cell.mean)} [{percent(cell.ci[0])}, {percent(cell.ci[1])}]" if cell else "-"


def signed(share: float) -> str:
    """A difference of shares in points; never "-0.0"."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def whole(n: int) -> str:
    return f"{n:,}"


def marks(row: Row) -> list[str]:
    """What a reader must know before the figures."""
    found = [row.role] if row.role != "agent" else []
    if row.privileged and row.role != "floor":
        found.append("privileged")
    elif row.outside and not found:
        found.append("not ranked")
    return found + list(dict.fromkeys(mark for cell in row.cells.values() for mark in cell.marks))


def seeds(table: Table, row: Row) -> str:
    """The number of training seeds, and the deviation over them where there are three or more.

    "1 of 3 seeds": three training runs are stated, and one of them was entered.
    """
    if not row.seeds:
        return "-"
    if len(row.seeds) == 1:
        return "single seed"
    if (entered := max(cell.seeds for cell in row.cells.values())) < len(row.seeds):
        return f"{entered} of {len(row.seeds)} seeds"
    spread = [percent(cell.sd) for s in table.splits if (cell := row.cells.get(s)) and cell.sd is not None]
    return f"{len(row.seeds)} seeds" + (f" [sd {' / '.join(spread)}]" if spread else "")


def selection(row: Row) -> str:
    return row.selection or "-"


def level(row: Row) -> str:
    return (row.level or "no") + ("!" if row.findings else "")


def notes(table: Table) -> list[str]:
    """Sentences under a table: who is not ranked and why, and what is missing."""
    why: dict[str, list[str]] = {}
    for row in table.rows:
        reasons = [row.outside] if row.outside else [cell.why for cell in row.cells.values() if cell.why]
        if row.role == "agent" and reasons:
            why.setdefault(reasons[0], []).append(row.name)
    found = [f"Not ranked: {', '.join(names)} ({reason})." for reason, names in why.items()]
    if table.missing:
        plays = "; ".join(f"seedbench eval --agent {name} --env {short(table.env)}" for name in table.missing)
        found.append(f"Nobody has entered {', '.join(table.missing)} here: {plays}.")
    return found


def places(tables: Sequence[Table]) -> int:
    """Entries on the board."""
    return len({ident for table in tables for row in table.rows for ident in row.ids})


def _protocol(table: Table) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in sorted(table.exam.items())]


def _escaped(text: str) -> str:
    """Text as markdown shows it: nothing of it is markup, a link or the end of a cell."""
    spelled = visible(text.replace("\n", " "))
    for character in "\\`*_[]<>|#!&~$":
        spelled = spelled.replace(character, f"\\{character}" if character not in "<>&" else f"&#{ord(character)};")
    return spelled
