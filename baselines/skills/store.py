"""The folder of a skills project: what was played, what was learnt from it, and how each step goes on after a kill.

    project.json         how the episodes are played: restored by everything that comes after `collect`
    trajectories.jsonl   one line an episode                                    (collect)
    answers.jsonl        one line an answer of an endpoint, by what it was asked (annotate)
    lessons.jsonl        one line an episode and analyzer                        (annotate)
    utility.jsonl        one line an episode played again, plain or with a skill (validate --utility)
    validated.jsonl      one line a lesson, with the reasons against it          (validate)
    sft.jsonl, sft_val.jsonl   rows for `seedbench train sft --examples`         (export)

Lines are appended as they come. A kill loses what was under way, and a torn last line is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.baselines.lines import Lines, once, problem
from seedbench.baselines.skills.rows import COLLECTED
from seedbench.core import Reply, SeedbenchError, Step, Task, Trajectory, View
from seedbench.exam import Config, Exam, plan
from seedbench.record import record, write_json

Key = tuple[str, int]  # task id and trial
FORMAT = 1


class Settings(TypedDict):
    """project.json."""

    format: Literal[1]
    config: Config
    tasks: Annotated[int, Field(ge=1)]


SETTINGS: TypeAdapter[Any] = TypeAdapter(Settings)


def begin(out: Path, config: Config, tasks: int) -> None:
    """Write project.json into a folder that is locked, or check that the one there says the same. Raises SeedbenchError
    where it does not."""
    settings = {"format": FORMAT, "config": asdict(config), "tasks": tasks}
    path = out / "project.json"
    if not path.exists():
        return write_json(path, settings)
    there = settings_of(out)
    was, now = {**there["config"], "tasks": there["tasks"]}, {**asdict(config), "tasks": tasks}
    if changed := sorted(k for k in now if was.get(k) != now[k]):
        flags = ", ".join("--" + k.replace("_", "-") for k in changed)
        raise SeedbenchError(f"{out} was begun with another {flags}: give --resume {out}, or a new --out.")


def settings_of(project: Path) -> dict[str, Any]:
    """What project.json holds. Raises SeedbenchError where there is none, or it is not as written."""
    path = project / "project.json"
    try:
        settings = SETTINGS.validate_json(path.read_bytes(), strict=True)
        if settings["config"].split != "train":
            raise SeedbenchError("its split is not train")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SeedbenchError(f"{project} is no skills project: begin with `seedbench skills collect`.") from error
    except (OSError, ValueError, SeedbenchError) as error:
        why = problem(error) if isinstance(error, ValidationError) else str(error).rstrip(".")
        raise SeedbenchError(f"{path} cannot be read ({why}): mend it, or begin another project.") from error
    return {**settings, "config": asdict(settings["config"])}


def exam_of(project: Path) -> Exam:
    """The environment that a project's episodes are played in, as they are played."""
    return plan(Config(**settings_of(project)["config"]))[0]


def line_of(t: Trajectory) -> dict[str, Any]:
    """A trajectory as a line: its record, the task, and what a record leaves out and an analyzer is told."""
    return {
        "record": record(t),
        "kind": t.task.kind,
        "options": dict(t.task.options),
        "goal": t.steps[0].view.goal if t.steps else "",
        "accepted": [s.action_valid for s in t.steps],
        "reasons": [[s.reason, s.invalid_reason] for s in t.steps],
    }


def trajectory_of(line: dict[str, Any]) -> Trajectory:
    """The trajectory of a line, but for what was admissible, the rendered prompts and token ids."""
    r = line["record"]
    task = Task(r["task"], r["env"], r["split"], line["kind"], line["options"])
    steps: list[Step] = []
    past: tuple[tuple[str, str], ...] = ()
    for s, accepted, (reason, why) in zip(r["steps"], line["accepted"], line["reasons"], strict=True):
        view = View(line["goal"], s["observation"], (), past)
        past = (*past, (s["observation"], s["action"]))
        told = (s["action"], s["format_valid"], reason, s["reward"], accepted, why, s["prompt_sha"])
        steps.append(Step(view, Reply(s["text"]), *told))
    ended = (r["score"], r["success"], r["ended"], r["error"], r.get("measures", {}))
    return Trajectory(task, r["seed"], r["trial"], tuple(steps), *ended)


def trajectories(project: Path) -> Iterator[Trajectory]:
    """All episodes of a project in the order of tasks and trials, whatever order they ended in. Raises SeedbenchError
    for a line of another shape, and for an episode that is there twice."""
    path = project / "trajectories.jsonl"
    played = list(map(trajectory_of, Lines(path, COLLECTED).rows))
    once(path, map(key, played))
    yield from sorted(played, key=key)


def episodes_of(project: Path, exam: Exam) -> dict[Key, Trajectory]:
    """The episodes of `trajectories`, each with its task as the environment has it today. Raises SeedbenchError for an
    episode of no task of the exam."""
    tasks = {task.id: task for of_split in exam.tasks.values() for task in of_split}
    found = {}
    for t in trajectories(project):
        if t.task.id not in tasks:
            raise SeedbenchError(
                f"{project}/trajectories.jsonl has an episode of {t.task.id}, which is no train task of {exam.env_id} "
                "with the project's data: put back the data that it was collected from, or delete that line."
            )
        found[key(t)] = replace(t, task=tasks[t.task.id])
    return found


def key(t: Trajectory) -> Key:
    """Which episode of the project a trajectory is."""
    return t.task.id, t.trial
