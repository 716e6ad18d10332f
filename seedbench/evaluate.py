"""evaluate: an agent, some splits, every task exactly once a trial, and a result that anyone can check.

plan     seedbench.exam: environments, splits, tasks, the agent; nothing is written before all of it is loaded
play     seedbench.rollout.play over what the journal does not hold yet
finish   journal -> trajectories.jsonl.gz (ordered, chained) -> results.json -> report.html
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbench import record
from seedbench.agents import load_agent, public_spec
from seedbench.core import Agent, InfrastructureError, SeedbenchError, short_name
from seedbench.exam import Config, Exam, plan, protocol
from seedbench.journal import Journal
from seedbench.provenance import software
from seedbench.rollout import Episode, play
from seedbench.view import visible

RUN_SCHEMA = "seedbench.run/1"
FILES = ("results.json", "trajectories.jsonl.gz", "tokens.jsonl.gz", "report.html")  # what a finished run leaves


def evaluate(config: Config, out: Path | None = None, console: Console | None = None) -> Path:
    """Start a run in a new folder and play it to its end; returns the folder."""
    exams = plan(config)
    agent = _agent(config)
    config = dataclasses.replace(config, agent=public_spec(config.agent))  # no password reaches run.json
    now = datetime.datetime.now(datetime.UTC)
    if out is None:
        name = "".join(c if c.isalnum() or c in "-." else "-" for c in config.agent).strip("-.")[-40:]
        out = Path("runs") / f"{now:%Y%m%d-%H%M%S}_{name}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SeedbenchError(f"--out {out} is, or lies under, a file: name a folder.") from error
    with record.locked(out):
        if (out / "run.json").exists():
            raise SeedbenchError(f"{out} holds a run already: continue it with --resume {out}, or give another --out.")
        run = {
            "schema": RUN_SCHEMA,
            "status": "running",
            "config": dataclasses.asdict(config),
            "agent": _describe(agent),
            "protocol": protocol(config, exams),
            "prompts": {exam.env_id: exam.first_prompt() for exam in exams},
            "software": software(),
            "sessions": [],
        }
        record.write_json(out / "run.json", run)
        _session(run, exams, agent, config, out, console)
    return out


def resume(out: Path, console: Console | None = None, server: str | None = None) -> Path:
    """Finish a run that was stopped, from its folder alone; the bytes become those of an uninterrupted run.

    `server` is where the environment is served now, if it has moved. Raises SeedbenchError when the folder is no run,
    or environment, prompt or agent are not what they were.
    """
    _read_run(out)
    with record.locked(out):
        run = _read_run(out)
        config = Config(**run["config"])
        if run["status"] == "complete" and _whole(out):
            (out / "journal.jsonl").unlink(missing_ok=True)
            return out
        if server is not None:
            if config.server is None:
                raise SeedbenchError(f"{out} was not begun on a server: leave out --server.")
            config = dataclasses.replace(config, server=server)
            run["config"]["server"] = server
        exams = plan(config)
        agent = _agent(config)
        was, now = (run["agent"], run["protocol"]), (_describe(agent), protocol(config, exams))
        for before, after in zip(was, json.loads(json.dumps(now)), strict=True):
            if changed := [k for k in {**before, **after} if before.get(k) != after.get(k)]:
                raise SeedbenchError(
                    f"{out} cannot be continued: {', '.join(changed)} changed since it began; start a new run."
                )
        _session(run, exams, agent, config, out, console)
    return out


def _whole(out: Path) -> bool:
    """Whether the results are there and are those of the trajectories, so that the journal is needed no more."""
    from seedbench import results

    try:
        last = ""
        for line in record.read_lines(out / "trajectories.jsonl.gz"):
            last = line["hash"]
        return results.load(out).chain_head == last
    except (SeedbenchError, KeyError):
        return False


def config_of(out: Path) -> Config:
    """The settings of the run in a folder. Raises SeedbenchError where there is none."""
    return Config(**_read_run(out)["config"])


def _read_run(out: Path) -> dict[str, Any]:
    """run.json, with what the rest relies on checked. Raises SeedbenchError when it is missing or not as written."""
    try:
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        Config(**run["config"])
        if run["status"] not in ("running", "complete") or not isinstance(run["sessions"], list):
            raise ValueError("status and sessions are not as written")
        if not all(isinstance(run[part], dict) for part in ("agent", "protocol", "software")):
            raise ValueError("agent, protocol and software are not as written")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SeedbenchError(
            f"{out} holds no run.json: it is not a run folder, or the run had not begun; start it again."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SeedbenchError) as error:
        raise SeedbenchError(f"{out}/run.json cannot be read ({error}): start the run again.") from error
    return run


def _agent(config: Config) -> Agent:
    options = {
        k: getattr(config, k) for k in ("batch", "device", "dtype", "threads", "chat_template", "max_prompt_tokens")
    }
    return load_agent(config.agent, **options)


def _describe(agent: Agent) -> dict[str, Any]:
    """The agent's own words, and whether it sees more than a view, which is not left to them."""
    return {**agent.describe(), "needs_env": agent.needs_env}


def _session(
    run: dict[str, Any], exams: list[Exam], agent: Agent, config: Config, out: Path, console: Console | None
) -> None:
    """Play what is left and finish. Each session's times are kept, whether or not it gets to the end."""
    began = datetime.datetime.now(datetime.UTC)
    journal = Journal(out / "journal.jsonl").open()
    held = len(journal.offsets)
    try:
        unplayed = _play(exams, agent, config, journal, console or Console(stderr=True))
        if unplayed:
            raise InfrastructureError(
                f"{len(unplayed)} episodes were not played ({unplayed[0]}): "
                f"mend that, then `seedbench eval --resume {out}`."
            )
        _finish(run, exams, config, journal, out)
        run["status"] = "complete"
    except KeyboardInterrupt as stop:
        kept = f"stopped; {len(journal.offsets)} finished episodes are kept: `seedbench eval --resume {out}` goes on."
        raise KeyboardInterrupt(" ".join(filter(None, (str(stop), kept)))) from stop
    finally:
        journal.close()
        ended = datetime.datetime.now(datetime.UTC)
        times = {"began": began.isoformat(timespec="seconds"), "seconds": round((ended - began).total_seconds(), 3)}
        run["sessions"].append({**times, "episodes": len(journal.offsets) - held})
        record.write_json(out / "run.json", run)
    journal.path.unlink()


def _play(exams: list[Exam], agent: Agent, config: Config, journal: Journal, console: Console) -> list[str]:
    """Play every episode that the journal lacks; returns what kept the others from being played."""
    unplayed: list[str] = []
    errors: list[str] = []

    def leave(episode: Episode, error: InfrastructureError) -> None:
        unplayed.append(f"{episode.task.id}: {error}")

    with _progress(console, agent.interactive) as progress:
        for exam in exams:
            agent.sampling, agent.prompt, agent.env = exam.sampling, exam.prompt, exam.env_id
            bars = {}
            for split, tasks in exam.tasks.items():
                name = f"{short_name(exam.env_id)} {split}"
                bars[split] = progress.add_task(name, total=len(tasks) * config.trials, won="")
            todo, counts = [], dict.fromkeys(exam.tasks, (0, 0))
            for e in exam.episodes(config):
                if (exam.env_id, e.task.split, e.task.id, e.trial) in journal.offsets:
                    progress.advance(bars[e.task.split])
                else:
                    todo.append(e)
            slots = 1 if agent.interactive else exam.slots
            for t in play(
                exam.make, todo, agent, slots=slots, prompt=exam.prompt, mode=config.parse, on_unplayed=leave
            ):
                journal.append(t)
                if t.ended == "error":
                    errors.append(f"{t.task.id}: {t.error}")
                won, n = counts[t.task.split]
                counts[t.task.split] = won, n = won + t.success, n + 1
                progress.update(bars[t.task.split], advance=1, won=f"{100 * won / n:.0f} % won")
    if errors:
        said = f"{len(errors)} episodes ended in an error and count as failures, the first {errors[0]}"
        console.print(visible(said), markup=False, highlight=False)
    return unplayed


def _progress(console: Console, hidden: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[won]}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return Progress(*columns, *times, console=console, disable=hidden)


def _finish(run: dict[str, Any], exams: list[Exam], config: Config, journal: Journal, out: Path) -> None:
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
