"""Level 1, form: is this a whole, well-formed run whose every figure follows from its episodes? Nothing is played.

Not checked, because no episode holds it: the totals of `tokens`, which are the agent's own count.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.exam import Exam, protocol
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.findings import MAX_FINDINGS, Finding, Options
from seedbench.leaderboard.outcomes import of_lines
from seedbench.leaderboard.run import TOKENS, TRAJECTORIES, Run, place
from seedbench.record import Record, canonical, key
from seedbench.results import Result
from seedbench.rollout import Episode
from seedbench.summarize import EpisodeSummary, summarize

NOT_IN_LINES = {"tokens"}
MAX_WORDS, MAX_PROTOCOL = 2**16, 2**20  # characters of JSON; a protocol holds the lesson


def check_form(run: Run, options: Options) -> list[Finding]:
    """Claims that can be judged by themselves, then every episode and what they add up to."""
    try:
        said = claims(run) or episodes(run)
    except Unreadable as error:
        said = [("", str(error))]
    return [Finding("form", where or run.stated, message) for where, message in said[:MAX_FINDINGS]]


Said = list[tuple[str, str]]  # (where, message)


def claims(run: Run) -> Said:
    """What is wrong with the claims before an episode is read."""
    results = run.results
    if not results.results:
        return [("results", "there is none: the run played nothing")]
    rows = [(r.env, r.split) for r in results.results]
    envs, splits = (list(dict.fromkeys(names)) for names in zip(*rows, strict=True))
    if sorted(rows) != sorted(itertools.product(envs, splits)):
        return [("results", f"{len(rows)} rows are not each split of each environment once")]
    said = _run_json(run) + _free_words(run)
    now = json.loads(json.dumps(protocol(run.configs[0], run.exams)))
    said += [_another_version(d) for d in _differences("protocol", results.protocol, now, "here it is")]
    for exam in run.exams:
        for row in (r for r in results.results if r.env == exam.env_id):
            where = f"results.{row.env}.{row.split}"
            for name, is_so in (("partial", exam.partial), ("pinned", exam.pinned)):
                if getattr(row, name) != is_so[row.split]:
                    said.append((f"{where}.{name}", f"says {getattr(row, name)}, it is {is_so[row.split]}"))
            if row.data != exam.data:
                said.append((f"{where}.data", f"says {row.data}, it is {exam.data}"))
            said += _rising(where, row)
    return said + _entry(run)


def _another_version(said: tuple[str, str]) -> tuple[str, str]:
    """A digest says that something differs and not what: add what may."""
    where, message = said
    if not where.startswith("protocol.environments.") or not where.endswith(".digest"):
        return said
    return where, (
        f"{message}: the run was played in another version of the environment, with other settings or files (--data), "
        "or another search engine (--retriever)"
    )


def _run_json(run: Run) -> Said:
    """run.json, where it is there, tells of the same run."""
    if run.config is None:
        return []
    if run.config.get("status") != "complete":
        return [("run.json", f"the run is not finished: `seedbench eval --resume {run.folder.name}`")]
    same = ("agent", "protocol", "software")
    return [("run.json", f"{k} is not that of results.json") for k in same if run.config.get(k) != _dump(run)[k]]


def _free_words(run: Run) -> Said:
    """What no figure follows from, and the board carries for ever, is short."""
    parts = {name: getattr(run.results, name) for name in ("agent", "software", "protocol", "selection")}
    sizes = {name: len(json.dumps(value)) for name, value in parts.items()}
    most = {name: MAX_WORDS if name != "protocol" else MAX_PROTOCOL for name in sizes}
    return [
        (n, f"is {sizes[n]:,} characters long; at most {most[n]:,} make sense") for n in sizes if sizes[n] > most[n]
    ]


def _dump(run: Run) -> dict[str, Any]:
    return run.results.model_dump(mode="json", by_alias=True)


def _entry(run: Run) -> Said:
    """What an entry says besides its results, where the results say it too."""
    if (entry := run.entry) is None:
        return []
    said = _differences("protocol", entry.protocol.model_dump(), run.digests().model_dump(), "here it is")
    ours = {"kind": run.results.agent.get("kind"), "skills_at_inference": bool(run.results.protocol.get("skill"))}
    said += _differences("agent", {k: getattr(entry.agent, k) for k in ours}, ours, "the results say")
    said += _differences("software", entry.software, run.results.software, "the results say")
    try:
        if entry.outcomes and entry.outcomes != of_lines(run.lines()):
            said.append(("outcomes", f"are not those of {TRAJECTORIES}"))
    except Unreadable:
        raise
    except SeedbenchError as error:
        said.append(("outcomes", str(error)))
    if more := sorted(set(os.listdir(run.folder)) - {"entry.json", TRAJECTORIES, TOKENS}):
        said.append((more[0][:100], "no file of this name belongs to an entry"))
    if run.folder.name != entry.id:
        said.append(("id", f"says {entry.id}, the folder's name is {run.folder.name}"))
    return said


def _rising(where: str, row: Result) -> Said:
    """pass^k is the chance that k trials all succeed: it cannot rise with k."""
    stated = [(k, row.pass_k[k].pass_hat) for k in row.pass_k] if row.pass_k else []
    pairs = itertools.pairwise(stated)
    return [(f"{where}.pass_k", f"pass^{k2} is {b}, above pass^{k1}, {a}") for (k1, a), (k2, b) in pairs if b > a]


def episodes(run: Run) -> Said:
    """Every line against the episode that belongs in its place, and every figure against the lines."""
    said: Said = []
    head, broken = "", False
    rows = {(r.env, r.split): r for r in run.results.results}
    group: list[EpisodeSummary] = []
    now: tuple[str, str] | None = None  # the environment and split that `group` is of
    exams = {exam.env_id: exam for exam in run.exams}
    for number, (line, due) in enumerate(itertools.zip_longest(run.lines(), run.episodes()), 1):
        if line is None or due is None or key(line) != _key(due[1]):
            return said + roll_call(run)
        exam, episode = due
        if now is not None and now != key(line)[:2]:
            said += _figures(rows[now], exams[now[0]], group, run)
            group = []
        now = key(line)[:2]
        where = place(number, key(line))
        said += [(where, fault) for fault in faults(line, episode, exam.protocol["max_steps"])]
        if not broken and (line["prev"] != head or line["hash"] != _hash(line)):
            said.append(
                (
                    where,
                    "prev and hash do not chain it to the line before: it was edited, or a line was moved or left out",
                )
            )
            broken = True
        head = line["hash"]
        group.append(summary(line, episode.task.kind))
        if len(said) > MAX_FINDINGS:
            return said
    if now is not None:
        said += _figures(rows[now], exams[now[0]], group, run)
    if head != run.results.chain_head:
        said.append(("chain_head", f"says {run.results.chain_head or 'nothing'}, the last line's hash is {head}"))
    return said


def _key(e: Episode) -> tuple[str, str, str, int]:
    return e.task.env, e.task.split, e.task.id, e.trial


def _hash(line: Record) -> str:
    bare = {k: v for k, v in line.items() if k not in ("prev", "hash")}
    return hashlib.sha256((line["prev"] + canonical(bare)).encode()).hexdigest()


def faults(line: Record, episode: Episode, max_steps: int) -> Iterator[str]:
    """What cannot be true of one episode, whatever the environment does."""
    steps, ended, failed = len(line["steps"]), line["ended"], line["ended"] == "error"
    if line["seed"] != episode.env_seed:
        yield f"its seed is {line['seed']}; that of this task, trial and run is {episode.env_seed}"
    if steps > max_steps:
        yield f"it has {steps} steps and the limit is {max_steps}"
    if ended == "truncated" and steps < max_steps:
        yield f"it was cut off by the step limit, {max_steps}, and has {steps} steps: some are missing"
    if ended == "terminated" and not steps:
        yield "it ended without a step"
    if failed and (line["success"] or line["score"]):
        yield f"it ended in an error and claims success {line['success']}, score {line['score']}"
    if failed and any(line.get("measures", {}).values()):
        yield f"it ended in an error and claims {line['measures']}"
    if failed != bool(line["error"]):
        yield f"it ended as {ended!r} and its error is {line['error'][:100]!r}"


def summary(line: Record, kind: str) -> EpisodeSummary:
    """What the figures need of a line."""
    invalid = sum(not s["format_valid"] for s in line["steps"])
    told = (line["score"], line["success"], line["ended"], len(line["steps"]), invalid)
    return EpisodeSummary(line["task"], kind, line["trial"], *told, measures=line.get("measures", {}))


def _figures(row: Result, exam: Exam, group: list[EpisodeSummary], run: Run) -> Said:
    """Every figure of a row, computed again."""
    again = summarize(
        row.env,
        row.split,
        row.data,
        [(t.id, t.kind) for t in exam.tasks[row.split]],
        group,
        trials=run.trials,
        max_steps=exam.protocol["max_steps"],
        partial=exam.partial[row.split],
        pinned=exam.pinned[row.split],
    )
    stated, true = (r.model_dump(mode="json", exclude=NOT_IN_LINES) for r in (row, again))
    return _differences(f"results.{row.env}.{row.split}", stated, true, "the episodes give")


def roll_call(run: Run) -> Said:
    """Why the lines are not the episodes that were due: some are missing, doubled, foreign, or out of place."""
    present: Counter[tuple[Any, ...]] = Counter()
    due = {(x.env_id, split): {t.id for t in tasks} for x in run.exams for split, tasks in x.tasks.items()}
    said: Said = []
    for number, line in enumerate(run.lines(), 1):
        env, split, task, trial = at = key(line)
        present[at] += 1
        if task not in due.get((env, split), ()) or not 0 <= trial < run.trials:
            said.append((place(number, at), "no such episode was to be played"))
        elif present[at] == 2:
            said.append((place(number, at), "this episode is there twice"))
        if len(said) > MAX_FINDINGS:
            return said
    for _, episode in run.episodes():
        if _key(episode) not in present:
            said.append((TRAJECTORIES, f"there is no episode of {episode.task.id} ({episode.task.split}, "
                                       f"trial {episode.trial})"))  # fmt: skip
        if len(said) > MAX_FINDINGS:
            return said
    return said or [_out_of_place(run)]


def _out_of_place(run: Run) -> tuple[str, str]:
    for number, (line, (_, due)) in enumerate(zip(run.lines(), run.episodes(), strict=True), 1):
        if key(line) != _key(due):
            return place(number, key(line)), f"it is out of order: {due.task.id}, trial {due.trial}, belongs there"
    raise AssertionError("the lines are in order")


def _differences(where: str, stated: object, true: object, words: str) -> Said:
    """Where two JSON values differ, as dotted paths. Numbers may differ in their last bits."""
    if isinstance(stated, dict) and isinstance(true, dict):
        said: Said = []
        for name in dict.fromkeys((*stated, *true)):
            if name not in true:
                said.append((f"{where}.{name}", "nothing like it belongs there"))
            elif name not in stated:
                said.append((f"{where}.{name}", f"is missing; {words} {_short(true[name])}"))
            else:
                said += _differences(f"{where}.{name}", stated[name], true[name], words)
        return said
    if isinstance(stated, list) and isinstance(true, list) and len(stated) == len(true):
        pairs = enumerate(zip(stated, true, strict=True))
        return [d for i, (a, b) in pairs for d in _differences(f"{where}[{i}]", a, b, words)]
    if type(stated) in (int, float) and type(true) in (int, float):
        same = stated == true or _close(stated, true)  # type: ignore[arg-type]
    else:
        same = type(stated) is type(true) and stated == true
    return [] if same else [(where, f"says {_short(stated)}, {words} {_short(true)}")]


def _close(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # an integer that no float can hold
        return False


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "..."
