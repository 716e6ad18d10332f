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

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbench.core import Reply, SeedbenchError, Step, Task, Trajectory, View
from seedbench.exam import Config, Exam, plan
from seedbench.record import canonical, record

Key = tuple[str, int]  # task id and trial
FORMAT = 1


class Lines:
    """An append-only file of JSON objects."""

    def __init__(self, path: Path):
        """Read what is there; a torn last line goes when the next is written, so that reading changes no file. Raises
        SeedbenchError for a complete line that is no object."""
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._good: int | None = None  # where whole lines end, until something is written
        good = 0
        if path.exists():
            with path.open("rb") as f:
                for number, raw in enumerate(f, 1):
                    if not raw.endswith(b"\n"):
                        break
                    self.rows.append(_object(path, number, raw))
                    good += len(raw)
            self._good = good

    def append(self, row: dict[str, Any]) -> None:
        """Write one line and hand it to the operating system; after a full disk nothing is half-written."""
        if self._good is not None and self.path.exists():
            os.truncate(self.path, self._good)
        self._good = None
        at = self.path.stat().st_size if self.path.exists() else 0
        try:
            with self.path.open("ab") as f:
                f.write(canonical(row).encode() + b"\n")
        except OSError:
            if self.path.exists():
                os.truncate(self.path, at)
            raise
        self.rows.append(row)


def _object(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SeedbenchError(f"{path}, line {number}, is damaged: delete that line to have it made again.")
    return value


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write a file of JSON lines whole or not at all; returns how many."""
    part, n = path.with_name(path.name + ".part"), 0
    with part.open("w", encoding="utf-8", newline="\n") as f:
        for row in rows:
            f.write(canonical(row) + "\n")
            n += 1
    os.replace(part, path)
    return n


def begin(out: Path, config: Config, tasks: int) -> None:
    """Write project.json, or check that the one there says the same. Raises SeedbenchError where it does not."""
    settings = {"format": FORMAT, "config": asdict(config), "tasks": tasks}
    path = out / "project.json"
    if path.exists():
        was = {**settings_of(out)["config"], "tasks": settings_of(out)["tasks"]}
        now = {**settings["config"], "tasks": tasks}  # type: ignore[dict-item]
        if changed := sorted(k for k in now if was.get(k) != now[k]):
            flags = ", ".join("--" + k.replace("_", "-") for k in changed)
            raise SeedbenchError(f"{out} was begun with another {flags}: give --resume {out}, or a new --out.")
        return
    if out.exists() and not out.is_dir():
        raise SeedbenchError(f"--out {out} is a file: name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def settings_of(project: Path) -> dict[str, Any]:
    """What project.json holds. Raises SeedbenchError where there is none, or it is not as written."""
    try:
        settings = json.loads((project / "project.json").read_text(encoding="utf-8"))
        Config(**settings["config"])
        if settings["format"] != FORMAT or not isinstance(settings["tasks"], int):
            raise ValueError("another format")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SeedbenchError(f"{project} is no skills project: begin with `seedbench skills collect`.") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SeedbenchError(f"{project}/project.json cannot be read ({error}): begin another project.") from error
    return dict(settings)


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
    """All episodes of a project in the order of tasks and trials, whatever order they ended in."""
    try:
        rows = Lines(project / "trajectories.jsonl").rows
        yield from sorted(map(trajectory_of, rows), key=key)
    except (KeyError, TypeError, ValueError) as error:
        raise SeedbenchError(f"{project}/trajectories.jsonl holds lines of another shape ({error}).") from error


def key(t: Trajectory) -> Key:
    """Which episode of the project a trajectory is."""
    return t.task.id, t.trial
