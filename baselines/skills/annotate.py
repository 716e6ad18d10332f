"""A lesson for every collected episode: by the environment's own rule, or by a model behind an endpoint.

SEED asks GLM-5.2 (arXiv 2607.14777, stage 1) at temperature 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.agents import public_spec
from seedbench.baselines.asking import Asking, check, tell_refused
from seedbench.baselines.lines import Lines, Row
from seedbench.baselines.skills.analysis import dumps, messages
from seedbench.baselines.skills.parse import parse
from seedbench.baselines.skills.rows import LESSON
from seedbench.baselines.skills.store import Key, episodes_of, exam_of, key, trajectories
from seedbench.core import InfrastructureError, SeedbenchError, Trajectory
from seedbench.record import locked

if TYPE_CHECKING:
    from seedbench.commands.skills import Annotate

RULE = "rule"
NO_STEP, NO_LESSON = "the episode has no step", "the rule has no lesson"


def run(options: Annotate) -> None:
    """Annotate what is not annotated yet. Raises InfrastructureError, after all that could be done, for what is left:
    requests that failed, or a budget that is used up. The same call goes on."""
    check(options.terms)
    if options.analyzer != RULE and not options.analyzer.startswith("openai:"):
        raise SeedbenchError(f"--analyzer {options.analyzer} is not known: give rule, or openai:MODEL@URL.")
    with locked(options.project) if options.project.is_dir() else _no_project(options.project):
        played = list(trajectories(options.project))
        if not played:
            raise SeedbenchError(f"{options.project} holds no episode: `seedbench skills collect` first.")
        lessons = Lines(options.project / "lessons.jsonl", LESSON)
        if options.analyzer == RULE:
            _by_rule(options, played, lessons)
            left = ""
        else:
            left = _ask(options, played, lessons)
    said = _said(lessons, public_spec(options.analyzer))
    mine = [said[key(t)] for t in played if key(t) in said]
    print(f"{options.project}: {len(mine)} of {len(played)} episodes annotated by {public_spec(options.analyzer)}, "
          f"{sum(bool(row['skill']) for row in mine)} with a skill")  # fmt: skip
    tell_refused("episodes", {f"{row['task']}, trial {row['trial']}": row["error"] for row in mine if _refused(row)})
    if left:
        raise InfrastructureError(left)


def _no_project(project: Path) -> Any:
    raise SeedbenchError(f"{project} is no skills project: begin with `seedbench skills collect`.")


def line(t: Trajectory, analyzer: str, text: str, error: str = "") -> dict[str, Any]:
    """A line of lessons.jsonl; `skill` is "" where none could be read out of `text`."""
    lesson = parse(text)
    skill, summary = (lesson.skill, lesson.summary) if lesson else ("", "")
    return {"task": t.task.id, "trial": t.trial, "analyzer": analyzer, "text": text, "summary": summary,
            "skill": skill, "error": error}  # fmt: skip


def _said(lessons: Lines, analyzer: str) -> dict[Key, Row]:
    """An analyzer's last line on each episode."""
    return {(row["task"], row["trial"]): row for row in lessons.rows if row["analyzer"] == analyzer}


def _refused(row: Row) -> bool:
    return row["error"] not in ("", NO_STEP, NO_LESSON)


def _by_rule(options: Annotate, played: Sequence[Trajectory], lessons: Lines) -> None:
    exam = exam_of(options.project)
    env = exam.make()
    if type(env).lesson.__qualname__.startswith("TextEnv."):
        raise SeedbenchError(f"{played[0].task.env} has no rule that writes lessons: give --analyzer openai:MODEL@URL.")
    done = _said(lessons, RULE)
    for t in (t for k, t in episodes_of(options.project, exam).items() if k not in done):
        lesson = env.lesson(t)
        lessons.append(line(t, RULE, dumps(lesson) if lesson else "", "" if lesson else NO_LESSON))


def _ask(options: Annotate, played: Sequence[Trajectory], lessons: Lines) -> str:
    """Ask the endpoint for what is missing; returns why some are left, or ""."""
    asking = Asking(options.analyzer, options.terms, options.project / "answers.jsonl", "episodes", "--analyzer",
                    options.retry_refused)  # fmt: skip
    done = {k for k, row in _said(lessons, asking.name).items() if not (options.retry_refused and _refused(row))}
    todo: dict[str, Trajectory] = {}
    for t in (t for t in played if key(t) not in done):
        if t.steps:
            todo[f"{t.trial} {t.task.id}"] = t
        else:
            lessons.append(line(t, asking.name, "", NO_STEP))

    def keep(keys: list[str], row: Row) -> None:
        for name in keys:
            lessons.append(line(todo[name], asking.name, row["text"], row["error"]))

    return asking.run({name: messages(t) for name, t in todo.items()}, keep)
