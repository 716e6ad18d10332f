"""A run for human eyes: a table for the terminal, and report.html, one page that needs nothing but itself.

Everything an environment or an agent wrote is untrusted: jinja2 escapes it, control and format characters are spelled
out, and the page forbids itself requests and every script but its own. Neither view holds a time, so that equal runs
give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench import record
from seedbench.results import Results

if TYPE_CHECKING:
    from rich.console import Console

EPISODES_SHOWN = 1000
CHARACTERS_SHOWN = 4000  # of one observation or reply
TEXTS = ("observation", "text", "action")  # of a step
_CUT = re.compile(r" … \d+ characters left out")
PAGE_CHARACTERS = 8_000_000  # of all transcripts of a page, so that it opens on a phone


def print_table(runs: Sequence[Results], console: Console | None = None) -> None:
    """One row an environment, split and run, readable in 80 columns; shares in per cent with one decimal.

    The agent has a column of its own only where several runs stand in one table.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0, show_edge=False)
    named = len(runs) > 1
    if named:
        table.add_column("agent", overflow="ellipsis", max_width=9)
    table.add_column("env", no_wrap=True)
    table.add_column("split", no_wrap=True)
    for name in ("n", "success %, 95 %", "macro", "score", "steps", "invalid", "errors"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [(run, r) for run in runs for r in run.results]
    for run, r in sorted(
        rows, key=lambda pair: (pair[1].env, pair[1].split)
    ):  # agents side by side, in the order given
        success = f"{percent(r.success.mean)} [{percent(r.success.ci[0])}, {percent(r.success.ci[1])}]"
        cells = [
            short(r.env),
            r.split + "*" * r.partial + "~" * (not r.pinned),
            f"{r.success.n}x{r.attempted // r.tasks}".removesuffix("x1"),
            success,
        ]
        cells += [percent(r.macro), percent(r.score.mean), f"{r.steps.mean:.1f}", percent(r.invalid_rate)]
        cells = [str(run.agent.get("spec", "?"))] * named + cells
        table.add_row(*(Text(visible(cell)) for cell in [*cells, str(r.errors)]))  # Text: [x] is no markup here
    console = console or Console()
    console.print(table)
    if any(r.partial for _, r in rows):
        console.print("* partial: only the first tasks of the split were played")
    if not all(r.pinned for _, r in rows):
        console.print("~ unpinned: no committed digest fixes these tasks")


def write_report(run_dir: Path, results: Results, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write `run_dir`/report.html from the results and the trajectory lines (design.md §5), and return its path.

    Up to 1,000 transcripts and 8 million characters of them are shown, failures first, an equal part of each
    environment and split; the page says how many were left out. `lines` is read once, and a bounded number of its
    lines are kept.
    """
    groups, total = _pick(lines)
    shown = [line for group in groups.values() for line in group]
    page = render(
        "report.html",
        results=results,
        groups=groups,
        envs=sorted({short(line["env"]) for line in shown}),
        splits=sorted({line["split"] for line in shown}),
        shown=len(shown),
        total=total,
        more=any(r.tokens or r.pass_k or r.metrics or r.success_at_30 is not None for r in results.results),
        about={
            name: json.dumps(part, indent=1, sort_keys=True, ensure_ascii=False)
            for name, part in (("agent", results.agent), ("protocol", results.protocol), ("software", results.software))
        },
    )
    path = Path(run_dir) / "report.html"
    record.write_text(path, page)
    return path


def render(template: str, *folders: Path, **values: Any) -> str:
    """A page from a template beside this file, or in one of `folders`; every value is escaped.

    The page's one script is named by its hash in the page's policy, so that a browser runs no other, whatever text an
    environment or an agent wrote into the page.
    """
    import jinja2
    import markupsafe

    here = Path(__file__).parent
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here, *folders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters.update(percent=percent, short=short, visible=visible, clip=clip)
    script = (here / "page.js").read_text(encoding="utf-8")
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return engine.get_template(template).render(script=markupsafe.Markup(script), script_sha=sha, **values)


def percent(share: float | None) -> str:
    """A share as per cent with one decimal; "-" for one that is not defined."""
    return "-" if share is None else f"{100 * share:.1f}"


def short(env: str) -> str:
    """The short name of a Gymnasium id: "seedbench/ALFWorld-v0" gives "alfworld"."""
    return re.sub(r"-v\d+$", "", env.rpartition("/")[2]).lower()


def visible(text: str) -> str:
    r"""Text whose control, format (bidi overrides!), surrogate and line-separator characters are spelled as \uXXXX."""
    return re.sub(r"[^\x20-\x7e\n\t\w]", _spell, text)


def clip(text: str) -> str:
    """`visible` text, cut at 4,000 characters, and how many are missing."""
    return visible(_cut(text))


def _cut(text: str) -> str:
    """`text`, or its beginning and how much is missing; a text already cut is left as it is."""
    if len(text) <= CHARACTERS_SHOWN or _CUT.fullmatch(text, CHARACTERS_SHOWN):
        return text
    return f"{text[:CHARACTERS_SHOWN]} … {len(text) - CHARACTERS_SHOWN} characters left out"


def _spell(match: re.Match[str]) -> str:
    character = match.group()
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return f"\\u{ord(character):04x}" if hidden else character


def _pick(lines: Iterable[Mapping[str, Any]]) -> tuple[dict[str, list[Mapping[str, Any]]], int]:
    """The transcripts to show, under "env split", and the number of all. Groups take turns: failures, then the rest.

    A line that would take the page over its limit of characters ends the picking.
    """
    kept: dict[str, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = {}
    room: dict[int, int] = {}  # characters that a part may still take, by its identity: bounds what is held
    total = 0
    for line in lines:
        total += 1
        lost, won = kept.setdefault(f"{short(line['env'])} {line['split']}", ([], []))
        part = won if line["success"] else lost
        if len(part) < EPISODES_SHOWN and room.setdefault(id(part), PAGE_CHARACTERS) > 0:
            part.append(clipped(line))
            room[id(part)] -= _length(part[-1])
    groups: dict[str, list[Mapping[str, Any]]] = {name: [] for name in kept}
    turns = itertools.chain.from_iterable(
        itertools.zip_longest(*([(name, line) for line in pair[i]] for name, pair in kept.items())) for i in (0, 1)
    )
    takes = (take for turn in turns for take in turn if take)
    left = PAGE_CHARACTERS
    for name, line in itertools.islice(takes, EPISODES_SHOWN):
        if (left := left - _length(line)) < 0:
            break
        groups[name].append(line)
    return {name: group for name, group in groups.items() if group}, total


def _length(line: Mapping[str, Any]) -> int:
    return sum(len(step[part]) for step in line["steps"] for part in TEXTS)


def clipped(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """A trajectory line whose long texts are cut as a page shows them, so that a page of them fits in memory."""
    if not any(len(step[part]) > CHARACTERS_SHOWN for step in line["steps"] for part in TEXTS):
        return line
    steps = [{**step, **{part: _cut(step[part]) for part in TEXTS}} for step in line["steps"]]
    return {**line, "steps": steps}
