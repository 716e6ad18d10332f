"""Boards for tests: entries of one small run each, made from real runs of the scripted agents."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from seedbench import record
from seedbench.evaluate import evaluate
from seedbench.exam import Config, make_env
from seedbench.leaderboard import outcomes
from seedbench.results import Results, load
from seedbench.summarize import EpisodeSummary, summarize

Line = dict[str, Any]


def entry(ident: str, results: Results, lines: Sequence[Line] = (), **changes: Any) -> dict[str, Any]:
    """The JSON object of an entry; keys of `changes` are of agent, training or verification, or the entry's own."""
    made: dict[str, Any] = {
        "schema": "seedbench.entry/1",
        "id": ident,
        "agent": {"name": changes.pop("name", ident), "kind": str(results.agent["kind"])},
        "training": {},
        "protocol": {"split": {}, "env": {}, "prompt": {}},
        "software": {},
        "results": results.model_dump(by_alias=True, mode="json"),
        "outcomes": [o.model_dump() for o in outcomes.of_lines(lines)],
    }
    for key, value in changes.items():
        part = next((p for p in ("agent", "training") if key in FIELDS[p]), None)
        if part:
            made[part][key] = value
        else:
            made[key] = value
    return made


FIELDS = {
    "agent": {"model", "revision", "base_model", "params", "license", "url", "scaffold"},
    "training": {"algorithm", "seeds", "selection", "hardware"},
}


def board(path: Path, entries: Sequence[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"schema": "seedbench.board/1", "entries": list(entries)}))
    return path


def replayed(run: Path, won: Callable[[Line], bool], spec: str = "model", **agent: Any) -> tuple[Results, list[Line]]:
    """A run's results and lines as they were, had `won` decided every episode: an agent between floor and ceiling."""
    base = load(run)
    lines = []
    for line in record.read_lines(run / "trajectories.jsonl.gz"):
        bare = {k: v for k, v in line.items() if k not in ("prev", "hash")}
        win = won(line)
        lines.append({**bare, "success": win, "score": float(win), "ended": "terminated" if win else "truncated"})
    rows = []
    for r in base.results:
        kinds = {t.id: t.kind for t in make_env(r.env).tasks(r.split)}
        mine = [x for x in lines if (x["env"], x["split"]) == (r.env, r.split)]
        episodes = [
            EpisodeSummary(x["task"], kinds[x["task"]], x["trial"], x["score"], x["success"], x["ended"], 3, 0)
            for x in mine
        ]
        tasks = list(dict.fromkeys((x["task"], kinds[x["task"]]) for x in mine))
        how = {"trials": r.attempted // r.tasks, "max_steps": 14, "partial": r.partial, "pinned": r.pinned}
        rows.append(summarize(r.env, r.split, r.data, tasks, episodes, **how))
    whole = {"agent": {"spec": spec, "kind": "local", "needs_env": False} | agent, "results": rows}
    return base.model_copy(update=whole), lines


def write_run(folder: Path, results: Results, lines: Sequence[Line]) -> Path:
    """A run folder with these figures and episodes."""
    folder.mkdir(parents=True)
    head = record.write_chained(folder / "trajectories.jsonl.gz", lines)
    record.write_text(folder / "results.json", results.model_copy(update={"chain_head": head}).dumps())
    return folder


def scripted(folder: Path, agent: str, **config: Any) -> Path:
    """The run folder of a scripted agent on the first tasks of both splits."""
    return evaluate(Config(agent=agent, **config), folder / agent, Console(file=io.StringIO()))
