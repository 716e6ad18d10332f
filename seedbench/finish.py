"""The end of an evaluation: journal -> trajectories.jsonl.gz (ordered, chained) -> results.json -> report.html."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench import record
from seedbench.exam import Config, Exam
from seedbench.journal import Journal


def finish(run: dict[str, Any], exams: list[Exam], config: Config, journal: Journal, out: Path) -> None:
    """Everything that is derived from the journal, each file written in one step."""
    from seedbench import view
    from seedbench.results import Results
    from seedbench.summarize import summarize

    order = [(x.env_id, e.task.split, e.task.id, e.trial) for x in exams for e in x.episodes(config)]
    head = record.write_chained(out / "trajectories.jsonl.gz", (e["record"] for e in journal.entries(order)))
    if any(e["tokens"] for e in journal.entries(order)):
        record.write_gzip_lines(out / "tokens.jsonl.gz", map(_token_line, journal.entries(order)))
    run["cut_prompts"] = sum((e.get("usage") or {}).get("cut_prompts", 0) for e in journal.entries(order))
    results = []
    for exam in exams:
        for split, tasks in exam.tasks.items():
            keys = [(exam.env_id, split, t.id, trial) for t in tasks for trial in range(config.trials)]
            kinds = {t.id: t.kind for t in tasks}
            results.append(
                summarize(
                    exam.env_id,
                    split,
                    exam.data,
                    [(t.id, t.kind) for t in tasks],
                    (_summary(e, kinds) for e in journal.entries(keys)),
                    trials=config.trials,
                    max_steps=exam.protocol["max_steps"],
                    partial=exam.partial[split],
                    pinned=exam.pinned[split],
                )
            )
    whole = Results(
        agent=run["agent"],
        protocol=run["protocol"],
        software=run["software"],
        chain_head=head,
        selection=config.selection,
        results=results,
    )
    record.write_text(out / "results.json", whole.dumps())
    view.write_report(out, whole, record.read_lines(out / "trajectories.jsonl.gz"))


def _token_line(entry: dict[str, Any]) -> dict[str, Any]:
    line = entry["record"]
    return {**{k: line[k] for k in ("env", "split", "task", "trial")}, "steps": entry["tokens"]}


def _summary(entry: dict[str, Any], kinds: dict[str, str]) -> Any:
    from seedbench.summarize import EpisodeSummary

    line, steps, usage = entry["record"], entry["tokens"], entry.get("usage")
    if usage is None:  # an agent that keeps its tokens and counts none
        ids = {"prompt_tokens": "prompt_ids", "completion_tokens": "completion_ids"}
        usage = {k: sum(len(s.get(v, ())) for s in steps) for k, v in ids.items()} if steps else {}
    return EpisodeSummary(
        task=line["task"],
        kind=kinds[line["task"]],
        trial=line["trial"],
        score=line["score"],
        success=line["success"],
        ended=line["ended"],
        steps=len(line["steps"]),
        invalid=sum(not s["format_valid"] for s in line["steps"]),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        measures=line.get("measures", {}),
    )
