"""evaluate: an agent, some splits, every task exactly once a trial, and a result that anyone can check.

plan     seedbench.exam: environments, splits, tasks, the agent; nothing is written before all of it is loaded
play     seedbench.playing: what the journal does not hold yet, on one process or dealt out over several
finish   seedbench.finish: journal -> trajectories.jsonl.gz (ordered, chained) -> results.json -> report.html
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from seedbench import record
from seedbench.agents import load_agent, public_spec
from seedbench.core import Agent, InfrastructureError, SeedbenchError
from seedbench.exam import Config, Exam, plan, protocol
from seedbench.finish import finish
from seedbench.journal import Journal
from seedbench.playing import Tally, play_share, say_errors
from seedbench.provenance import software
from seedbench.shard import Place, Team, place

RUN_SCHEMA = "seedbench.run/1"
FILES = ("results.json", "trajectories.jsonl.gz", "tokens.jsonl.gz", "report.html")  # what a finished run leaves


def evaluate(config: Config, out: Path | None = None, console: Console | None = None) -> Path:
    """Start a run in a new folder and play it to its end; returns the folder."""
    here = place()
    exams = plan(config)
    agent = _agent(config, here, exams)
    config = dataclasses.replace(config, agent=public_spec(config.agent))  # no password reaches run.json
    out = _named(config) if out is None else out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SeedbenchError(f"--out {out} is, or lies under, a file: name a folder.") from error
    if here.rank:
        return _join(exams, agent, config, out, here, console)
    with record.locked(out):
        if (out / "run.json").exists():
            raise SeedbenchError(f"{out} holds a run already: continue it with --resume {out}, or give another --out.")
        run = {
            "schema": RUN_SCHEMA,
            "status": "running",
            "config": dataclasses.asdict(config),
            "agent": _describe(agent),
            "protocol": protocol(config, exams),
            "prompts": {exam.env_id: exam.written_prompt() for exam in exams},
            "software": software(),
            "sessions": [],
        }
        record.write_json(out / "run.json", run)
        _session(run, exams, agent, config, out, here, console)
    return out


def resume(out: Path, console: Console | None = None, server: str | None = None) -> Path:
    """Finish a run that was stopped, from its folder alone; the bytes become those of an uninterrupted run, with
    whatever number of processes it goes on.

    `server` is where the environment is served now, if it has moved. Raises SeedbenchError when the folder is no run,
    or environment, prompt or agent are not what they were.
    """
    here = place()
    run = _read_run(out)
    if here.rank:
        if run["status"] == "complete" and _whole(out):
            return out
        config = _moved(Config(**run["config"]), out, server)
        return _join(plan(config), _agent(config, here), config, out, here, console)
    with record.locked(out):
        run = _read_run(out)
        if run["status"] == "complete" and _whole(out):
            (out / "journal.jsonl").unlink(missing_ok=True)
            return out
        config = _moved(Config(**run["config"]), out, server)
        run["config"]["server"] = config.server
        exams = plan(config)
        agent = _agent(config, here)
        _same(run, exams, agent, config, out)
        _session(run, exams, agent, config, out, here, console)
    return out


def _join(exams: list[Exam], agent: Agent, config: Config, out: Path, here: Place, console: Console | None) -> Path:
    """The part of a rank other than 0: play a share of the run that rank 0 keeps, and wait for its end."""
    with Team(out, here) as team:
        team.gather()
        _same(_read_run(out), exams, agent, config, out, "is not what rank 0 plays with; give every machine the same")
        done = Journal(out / "journal.jsonl")
        done.scan()
        share = Journal(team.journal).open()
        try:
            play_share(exams, agent, config, done.offsets, share.append, team, console or Console(stderr=True))
        finally:
            share.close()
        team.wait()
    return out


def _named(config: Config) -> Path:
    """The default of --out."""
    name = "".join(c if c.isalnum() or c in "-." else "-" for c in config.agent).strip("-.")[-40:]
    return Path("runs") / f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}_{name}"


def _moved(config: Config, out: Path, server: str | None) -> Config:
    if server is None:
        return config
    if config.server is None:
        raise SeedbenchError(f"{out} was not begun on a server: leave out --server.")
    return dataclasses.replace(config, server=server)


def _same(
    run: dict[str, Any],
    exams: list[Exam],
    agent: Agent,
    config: Config,
    out: Path,
    else_: str = "changed since it began; start a new run",
) -> None:
    """Raises SeedbenchError unless agent and environments are those that the run began with. (Which GPU of several
    plays does not matter.)"""
    was, now = (run["agent"], run["protocol"]), (_describe(agent), protocol(config, exams))
    for before, after in zip(was, json.loads(json.dumps(now)), strict=True):
        if changed := [k for k in {**before, **after} if _plain(k, before.get(k)) != _plain(k, after.get(k))]:
            raise SeedbenchError(f"{out} cannot be continued: {', '.join(changed)} {else_}.")


def _plain(name: str, value: Any) -> Any:
    return value.partition(":")[0] if name == "device" and isinstance(value, str) else value


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


def _agent(config: Config, here: Place, exams: Sequence[Exam] = ()) -> Agent:
    options = {
        k: getattr(config, k) for k in ("batch", "device", "dtype", "threads", "chat_template", "max_prompt_tokens")
    }
    agent = load_agent(config.agent, **options)
    if agent.interactive and here.world > 1:
        raise SeedbenchError(f"--agent {config.agent} sits at one keyboard: start one process, without a launcher.")
    for exam in exams:
        agent.plays(exam.env_id)
    return agent


def _describe(agent: Agent) -> dict[str, Any]:
    """The agent's own words, and whether it sees more than a view, which is not left to them."""
    return {**agent.describe(), "needs_env": agent.needs_env}


def _session(
    run: dict[str, Any],
    exams: list[Exam],
    agent: Agent,
    config: Config,
    out: Path,
    here: Place,
    console: Console | None,
) -> None:
    """Play what is left and finish. Each session's times are kept, whether or not it gets to the end."""
    began = datetime.datetime.now(datetime.UTC)
    console = console or Console(stderr=True)
    journal = Journal(out / "journal.jsonl").open()
    held = len(journal.offsets)
    try:
        for share in journal.shares():  # of a sharded session that was killed
            journal.absorb(share)
        held = len(journal.offsets)
        with Team(out, here) if here.world > 1 else contextlib.nullcontext() as team:
            tally = _play(exams, agent, config, journal, team, console)
            say_errors(tally, console)
            if tally.unplayed:
                raise InfrastructureError(
                    f"{tally.unplayed} episodes were not played ({tally.reason}): "
                    f"mend that, then `seedbench eval --resume {out}`."
                )
            finish(run, exams, config, journal, out)
            run["status"] = "complete"
            if team is not None:
                team.leave()
    except KeyboardInterrupt as stop:
        kept = f"stopped; {_kept(journal)} finished episodes are kept: `seedbench eval --resume {out}` goes on."
        raise KeyboardInterrupt(" ".join(filter(None, (str(stop), kept)))) from stop
    finally:
        journal.close()
        ended = datetime.datetime.now(datetime.UTC)
        times = {"began": began.isoformat(timespec="seconds"), "seconds": round((ended - began).total_seconds(), 3)}
        run["sessions"].append({**times, "episodes": _kept(journal) - held, "processes": here.world})
        record.write_json(out / "run.json", run)
    journal.path.unlink()


def _play(
    exams: list[Exam], agent: Agent, config: Config, journal: Journal, team: Team | None, console: Console
) -> Tally:
    """All that the journal lacks; afterwards it lacks nothing that was played."""
    if team is None:
        return play_share(exams, agent, config, journal.offsets, journal.append, None, console)
    team.gather()
    share = Journal(team.journal).open()
    try:
        tally = play_share(exams, agent, config, journal.offsets, share.append, team, console)
    finally:
        share.close()
    for path in journal.shares():
        journal.absorb(path)
    return tally


def _kept(journal: Journal) -> int:
    """Episodes in the journal and in the ranks' shares of it."""
    keys = set(journal.offsets)
    for path in journal.shares():
        share = Journal(path)
        share.scan()
        keys |= set(share.offsets)
    return len(keys)
