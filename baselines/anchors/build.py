"""`seedbench anchors build`: from an environment's gold evidence, or from what a model behind an endpoint picks.

Only words that stand in a passage become an anchor: what the model made up is dropped and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.agents import public_spec
from seedbench.baselines.anchors.fair import fair, mask, of_task, quoted, says_little
from seedbench.baselines.anchors.store import LONGEST, MOST, line_of, read
from seedbench.baselines.asking import Asking, check, tell_refused
from seedbench.baselines.lines import Row, write_lines
from seedbench.baselines.skills.parse import LONGEST_TEXT, OCCURRENCES, WINDOW
from seedbench.commands.common import index_or_url
from seedbench.core import Anchor, InfrastructureError, Message, Passage, SeedbenchError, Task, TextEnv
from seedbench.exam import Config, plan_one
from seedbench.prompts import without_thoughts
from seedbench.record import locked

if TYPE_CHECKING:
    from seedbench.commands.anchors import Build

GOLD = "gold"
Anchors = Mapping[str, tuple[Anchor, ...]]  # by task
SHOWN = 8000  # characters of a passage that the model sees
ASK = (
    "Below are a question, its right answer and some passages. Pick the snippets that show, step by step, how one gets "
    f"from the question to the answer, {MOST} at most, in the order in which one would come upon them. Copy each word "
    "for word from its passage, one or two sentences of it. Leave out what the answer does not rest on. Answer with "
    'JSON alone: [{"passage": 1, "text": "the words"}].'
)


def run(options: Build) -> None:
    """Write the file anew, where that takes no task's anchors from it. Raises InfrastructureError, after all that could
    be done, for what is left; the same call goes on, and pays for nothing twice."""
    check(options.terms)
    if options.passages < 1:
        raise SeedbenchError(f"--passages is {options.passages}: it must be at least 1.")
    if options.by != GOLD and not options.by.startswith("openai:"):
        raise SeedbenchError(f"--by {options.by} is not known: give gold, or openai:MODEL@URL.")
    exam = plan_one(Config("anchors", env=options.env, data=options.data, split=options.split, limit=options.limit,
                           retriever=index_or_url(options.retriever)))  # fmt: skip
    env, tasks = exam.make(), [task for of_split in exam.tasks.values() for task in of_split]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with locked(options.out.parent):
        there = _there(options.out)
        _lose_none(options.out, there - {task.id for task in tasks})  # before anything is paid for
        found, left = _gold(env, tasks, options), ""
        if options.by != GOLD:
            found, left = _Picked(env, tasks, options).run()
        lines = [line_of(task, public_spec(options.by), some) for task, some in found.items() if some]
        n, lost = len(lines), there - {line["task"] for line in lines}
        if not left:
            _lose_none(options.out, lost)
        if n and not lost:
            write_lines(options.out, lines)
    print(f"{options.out}: anchors of {n} of {len(tasks)} tasks, {sum(map(len, found.values())) / max(n, 1):.2f} each"
          + (f"; not written yet, as the file there has {len(lost)} tasks more" if lost else ""))  # fmt: skip
    if left:
        raise InfrastructureError(left)
    if not n:
        raise SeedbenchError("No task has anchors, so that no file is written: try another --by, or more --passages.")


def _there(out: Path) -> set[str]:
    """Tasks that a file there has anchors of. Raises SeedbenchError for another file."""
    try:
        return set(read(out)) if out.exists() else set()
    except SeedbenchError as error:
        raise SeedbenchError(f"--out is there and cannot be read, so it is left alone: {error}") from error


def _lose_none(out: Path, lost: Collection[str]) -> None:
    if lost:
        raise SeedbenchError(
            f"{out} has anchors of {len(lost)} tasks that would be lost ({min(lost)}): move it away, and run the same "
            "command again, which pays for nothing twice; or name another --out."
        )


def _gold(env: TextEnv, tasks: Sequence[Task], options: Build) -> Anchors:
    if options.by != GOLD:
        return {}
    found = {
        task.id: tuple(a for a in of_task(env, task, options.mask == "answers") if not says_little(a.text))
        for task in tasks
    }
    if not any(found.values()):
        raise SeedbenchError(f"{options.env} has no gold evidence for these tasks: give --by openai:MODEL@URL.")
    return found


class _Picked:
    """Anchors that a model picks out of passages."""

    def __init__(self, env: TextEnv, tasks: Sequence[Task], options: Build):
        self.env, self.options = env, options
        self.tasks = {task.id: task for task in tasks if env.answers(task)}
        if not self.tasks or not hasattr(env, "retriever"):
            raise SeedbenchError(f"{options.env} asks no questions of a search engine: give --by gold.")
        self.passages: dict[str, list[Passage]] = {}
        self.found: dict[str, tuple[Anchor, ...]] = {}
        self.made_up = self.little = 0
        self.refused: dict[str, str] = {}

    def run(self) -> tuple[Anchors, str]:
        """Anchors by task, in the tasks' order, and why some are left, or ""."""
        cache = self.options.out.with_name(self.options.out.name + ".answers")
        asking = Asking(self.options.by, self.options.terms, cache, "questions", "--by", self.options.retry_refused)
        left = asking.run({name: self._question(task) for name, task in self.tasks.items()}, self._keep)
        print(f"{self.made_up} snippets were not in the passage that they named, and are left out")
        if self.little:
            print(f"{self.little} snippets said too little beside the answer, and are left out")
        tell_refused("questions", self.refused)
        return {name: self.found[name] for name in self.tasks if name in self.found}, left

    def _question(self, task: Task) -> list[Message]:
        _, info = self.env.reset(seed=0, options={"task": task.id})
        answers, search = self.env.answers(task), partial(self.env.retriever.search, k=self.options.passages)  # type: ignore[attr-defined]
        hits = search([info["goal"], f"{info['goal']} {answers[0]}"])
        kept = list({hit.id: hit for some in zip(*hits, strict=False) for hit in some}.values())
        self.passages[task.id] = kept = kept[: self.options.passages]
        shown = "\n\n".join(f"[{n}] {p.title}\n{p.text[:SHOWN]}" for n, p in enumerate(kept, 1))
        return [{"role": "user", "content": f"{ASK}\n\nQuestion: {info['goal']}\nAnswer: {answers[0]}\n\n{shown}"}]

    def _keep(self, names: list[str], row: Row) -> None:
        for name in names:
            picked, answers = [], self.env.answers(self.tasks[name])
            for anchor, passage in self._read(row["text"], self.passages[name]):
                if not quoted(anchor.text, passage.text):
                    self.made_up += 1
                elif says_little(mask(anchor.text, answers)):
                    self.little += 1
                else:
                    picked.append(anchor)
            self.found[name] = fair(list(dict.fromkeys(picked)), answers, self.options.mask == "answers")
            if row["error"]:
                self.refused[name] = row["error"]

    def _read(self, text: str, passages: Sequence[Passage]) -> Iterator[tuple[Anchor, Passage]]:
        for one in picks(text):
            number, said = one.get("passage"), one.get("text")
            if type(number) is int and 0 < number <= len(passages) and isinstance(said, str) and said.strip():
                passage = passages[number - 1]
                yield Anchor(passage.title, passage.id, " ".join(said.split()[:LONGEST])), passage


def picks(text: str) -> list[dict[str, Any]]:
    """The objects of the last JSON list in an answer, whatever stands around it; [] where there is none among the last
    OCCURRENCES places where one may begin, or none within WINDOW characters of its beginning."""
    said = without_thoughts(text[-LONGEST_TEXT:])
    for start in [m.start() for m in re.finditer(r"\[\s*\{", said)][: -OCCURRENCES - 1 : -1]:
        try:
            found, _ = json.JSONDecoder(strict=False).raw_decode(said[start : start + WINDOW])
        except (ValueError, RecursionError):
            continue
        if isinstance(found, list):
            return [one for one in found if isinstance(one, dict)]
    return []
