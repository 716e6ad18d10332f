"""A lesson for every collected episode: by the environment's own rule, or by a model behind an endpoint.

SEED asks GLM-5.2 (arXiv 2607.14777, stage 1) at temperature 0. Answers are kept by a digest of what was asked, so that
nothing is paid for twice, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from seedbench.agents import public_spec
from seedbench.agents.endpoint import Endpoint
from seedbench.baselines.skills.analysis import dumps, messages
from seedbench.baselines.skills.parse import parse
from seedbench.baselines.skills.store import Lines, exam_of, key, trajectories
from seedbench.core import InfrastructureError, Message, Reply, Sampling, SeedbenchError, Trajectory, View, stream
from seedbench.prompts import sha256_json
from seedbench.record import locked

if TYPE_CHECKING:
    from seedbench.commands.skills import Annotate

RULE = "rule"
TEMPLATE = 64  # tokens that a chat template may add to a prompt
NO_STEP = "the episode has no step"


def run(options: Annotate) -> None:
    """Annotate what is not annotated yet. Raises InfrastructureError, after all that could be done, for what is left:
    requests that failed, or a budget that is used up. The same call goes on."""
    _check(options)
    with locked(options.project) if options.project.is_dir() else _no_project(options.project):
        played = list(trajectories(options.project))
        if not played:
            raise SeedbenchError(f"{options.project} holds no episode: `seedbench skills collect` first.")
        lessons = Lines(options.project / "lessons.jsonl")
        if options.analyzer == RULE:
            _by_rule(options, played, lessons)
            left = ""
        else:
            left = _Asking(options, lessons).run(played)
    mine = [row for row in lessons.rows if row["analyzer"] == _name(options)]
    print(f"{options.project}: {len(mine)} of {len(played)} episodes annotated by {_name(options)}, "
          f"{sum(bool(row['skill']) for row in mine)} with a skill")  # fmt: skip
    if left:
        raise InfrastructureError(left)


def _no_project(project: Path) -> Any:
    raise SeedbenchError(f"{project} is no skills project: begin with `seedbench skills collect`.")


def _check(options: Annotate) -> None:
    for name, low in (("concurrency", 1), ("retries", 0), ("max_new_tokens", 1), ("price_in", 0), ("price_out", 0),
                      ("budget", 0), ("budget_tokens", 0)):  # fmt: skip
        value = getattr(options, name)
        if value is not None and not low <= value < float("inf"):
            raise SeedbenchError(f"--{name.replace('_', '-')} is {value}: it must be {low} or more.")
    if not 0 < options.deadline < float("inf"):
        raise SeedbenchError(f"--deadline is {options.deadline}: give a number of seconds above 0.")
    if options.budget is not None and not (options.price_in or options.price_out):
        raise SeedbenchError("--budget is money, which needs --price-in and --price-out; or give --budget-tokens.")
    if options.analyzer != RULE and not options.analyzer.startswith("openai:"):
        raise SeedbenchError(f"--analyzer {options.analyzer} is not known: give rule, or openai:MODEL@URL.")


def _name(options: Annotate) -> str:
    return public_spec(options.analyzer)


def line(t: Trajectory, analyzer: str, text: str, error: str = "") -> dict[str, Any]:
    """A line of lessons.jsonl; `skill` is "" where none could be read out of `text`."""
    lesson = parse(text)
    skill, summary = (lesson.skill, lesson.summary) if lesson else ("", "")
    return {"task": t.task.id, "trial": t.trial, "analyzer": analyzer, "text": text, "summary": summary,
            "skill": skill, "error": error}  # fmt: skip


def _todo(played: Sequence[Trajectory], lessons: Lines, analyzer: str) -> Iterator[Trajectory]:
    done = {(row["task"], row["trial"]) for row in lessons.rows if row["analyzer"] == analyzer}
    return (t for t in played if key(t) not in done)


def _by_rule(options: Annotate, played: Sequence[Trajectory], lessons: Lines) -> None:
    env = exam_of(options.project).make()
    if type(env).lesson.__qualname__.startswith("TextEnv."):
        raise SeedbenchError(f"{played[0].task.env} has no rule that writes lessons: give --analyzer openai:MODEL@URL.")
    for t in _todo(played, lessons, RULE):
        lesson = env.lesson(t)
        lessons.append(line(t, RULE, dumps(lesson) if lesson else "", "" if lesson else "the rule has no lesson"))


@dataclass
class Spent:
    """Tokens of answers, and what they cost."""

    price_in: float
    price_out: float
    prompt: int = 0
    answer: int = 0

    def money(self, prompt: int = 0, answer: int = 0) -> float:
        """What was spent, with some tokens more."""
        return ((self.prompt + prompt) * self.price_in + (self.answer + answer) * self.price_out) / 1e6


class _Asking:
    """Asks an endpoint, batch by batch, within the budget."""

    def __init__(self, options: Annotate, lessons: Lines):
        self.options, self.lessons = options, lessons
        self.endpoint = Endpoint(options.analyzer, batch=options.concurrency, retries=options.retries,
                                 deadline=options.deadline)  # fmt: skip
        self.endpoint.sampling = Sampling(options.temperature, 1.0, options.max_new_tokens)
        self.name = self.endpoint.name
        self.answers = Lines(options.project / "answers.jsonl")
        self.known = {row["digest"]: row for row in self.answers.rows}
        self.spent = Spent(options.price_in, options.price_out)
        for row in self.answers.rows:
            if row["analyzer"] == self.name:
                self._count(row)

    def run(self, played: Sequence[Trajectory]) -> str:
        """Annotate all; returns why some are left, or ""."""
        asked: dict[str, list[Message]] = {}
        waiting: dict[str, list[Trajectory]] = {}
        for t in _todo(played, self.lessons, self.name):
            if not t.steps:
                self.lessons.append(line(t, self.name, "", NO_STEP))
                continue
            said = messages(t)
            asked.setdefault(digest := self._digest(said), said)
            waiting.setdefault(digest, []).append(t)
        before, left = len(self.answers.rows), ""
        with Progress(console=Console(stderr=True)) as bar:
            shown = bar.add_task("annotate", total=len(asked))
            for digest in [d for d in asked if d in self.known]:
                self._keep(digest, waiting.pop(digest))
                bar.advance(shown)
            while waiting and not left:
                batch = self._affordable(list(waiting), asked)
                if not batch:
                    left = self._used_up(sum(map(len, waiting.values())))
                    break
                left = self._ask({d: asked[d] for d in batch})
                for digest in batch:
                    if digest in self.known:
                        self._keep(digest, waiting.pop(digest))
                        bar.advance(shown)
        print(f"{len(self.answers.rows) - before} answers bought; all of {self.name}: {self.spent.prompt:,} prompt and "
              f"{self.spent.answer:,} answer tokens, cost {self.spent.money():.4f}")  # fmt: skip
        return left

    def _digest(self, said: list[Message]) -> str:
        how = self.endpoint.sampling
        return sha256_json([self.name, said, how.temperature, how.top_p, how.max_new_tokens])

    def _most(self, said: list[Message]) -> tuple[int, int]:
        """The most tokens that a request can take: no tokenizer makes more of them than there are bytes."""
        size = sum(len(m["content"].encode("utf-8", "replace")) for m in said)
        return size + TEMPLATE, self.options.max_new_tokens

    def _affordable(self, digests: list[str], asked: dict[str, list[Message]]) -> list[str]:
        """As many of the next requests as cannot go beyond the budget together."""
        batch: list[str] = []
        prompt = answer = 0
        for digest in digests[: self.options.concurrency]:
            more = self._most(asked[digest])
            prompt, answer = prompt + more[0], answer + more[1]
            tokens = self.spent.prompt + self.spent.answer + prompt + answer
            if self.options.budget_tokens is not None and tokens > self.options.budget_tokens:
                break
            if self.options.budget is not None and self.spent.money(prompt, answer) > self.options.budget:
                break
            batch.append(digest)
        return batch

    def _ask(self, asked: dict[str, list[Message]]) -> str:
        """Send a batch and keep its answers; returns the first failure that another call may mend, or ""."""
        views = [View("", "", (), (), stream=stream("annotate", digest), messages=tuple(said))
                 for digest, said in asked.items()]  # fmt: skip
        failed = ""
        for (digest, said), reply in zip(asked.items(), self.endpoint.act(views), strict=True):
            if isinstance(reply, InfrastructureError):
                failed = failed or f"{reply}; the same command goes on."
            elif isinstance(reply, Reply):
                self._answer(digest, said, reply)
            elif isinstance(reply, SeedbenchError):  # a prompt that is too long: another try would not change that
                row = {"digest": digest, "analyzer": self.name, "text": "", "usage": [0, 0], "error": str(reply)}
                self.answers.append(row)
                self.known[digest] = row
            else:
                raise reply
        return failed

    def _answer(self, digest: str, said: list[Message], reply: Reply) -> None:
        most = self._most(said)  # what is counted where the server does not say
        usage = [reply.usage.get("prompt_tokens", most[0]), reply.usage.get("completion_tokens", most[1])]
        text = reply.text.encode("utf-8", "replace").decode()  # JSON may spell lone surrogates, which no file can hold
        row = {"digest": digest, "analyzer": self.name, "text": text, "usage": usage, "error": ""}
        self.answers.append(row)
        self.known[digest] = row
        self._count(row)

    def _count(self, row: dict[str, Any]) -> None:
        self.spent.prompt += row["usage"][0]
        self.spent.answer += row["usage"][1]

    def _keep(self, digest: str, episodes: Sequence[Trajectory]) -> None:
        row = self.known[digest]
        for t in episodes:
            self.lessons.append(line(t, self.name, row["text"], row["error"]))

    def _used_up(self, left: int) -> str:
        flag, most = ("--budget", self.options.budget) if self.options.budget is not None else (
            "--budget-tokens", self.options.budget_tokens)  # fmt: skip
        return f"{left} episodes are left, as another request could go beyond {flag} {most}: raise it to go on."
