"""Questions to a model behind an OpenAI-compatible endpoint, batch by batch, within a budget.

Answers are kept in a file by a digest of what was asked, so that nothing is paid for twice, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from seedbench.agents.endpoint import Endpoint
from seedbench.baselines.skills.store import Lines
from seedbench.commands.common import Terms
from seedbench.core import InfrastructureError, Message, Reply, Sampling, SeedbenchError, View, stream
from seedbench.prompts import sha256_json

TEMPLATE = 64  # tokens that a chat template may add to a prompt
Row = dict[str, Any]  # of the file of answers


def check(terms: Terms) -> None:
    """Raises SeedbenchError for terms that make no sense."""
    for name, low in (("concurrency", 1), ("retries", 0), ("max_new_tokens", 1), ("price_in", 0), ("price_out", 0),
                      ("budget", 0), ("budget_tokens", 0)):  # fmt: skip
        value = getattr(terms, name)
        if value is not None and not low <= value < float("inf"):
            raise SeedbenchError(f"--{name.replace('_', '-')} is {value}: it must be {low} or more.")
    if not 0 < terms.deadline < float("inf"):
        raise SeedbenchError(f"--deadline is {terms.deadline}: give a number of seconds above 0.")
    if terms.budget is not None and not (terms.price_in or terms.price_out):
        raise SeedbenchError("--budget is money, which needs --price-in and --price-out; or give --budget-tokens.")


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


class Asking:
    """Asks the endpoint `spec` (openai:MODEL@URL); `file` holds the answers so far and takes the new ones."""

    def __init__(self, spec: str, options: Terms, file: Path, things: str):
        """`things` is what the questions are about, in the plural: episodes, say."""
        self.options, self.things = options, things
        self.endpoint = Endpoint(spec, batch=options.concurrency, retries=options.retries, deadline=options.deadline)
        self.endpoint.sampling = Sampling(options.temperature, 1.0, options.max_new_tokens)
        self.name = self.endpoint.name
        self.answers = Lines(file)
        self.known = {row["digest"]: row for row in self.answers.rows}
        self.spent = Spent(options.price_in, options.price_out)
        for row in self.answers.rows:
            if row["analyzer"] == self.name:
                self._count(row)

    def run(self, asked: Mapping[str, list[Message]], keep: Callable[[list[str], Row], None]) -> str:
        """Ask all, named by keys, and `keep(keys, row)` each answer with the keys that asked for it. Returns why some
        are left, or ""."""
        said: dict[str, list[Message]] = {}
        waiting: dict[str, list[str]] = {}
        for key, messages in asked.items():
            said.setdefault(digest := self._digest(messages), messages)
            waiting.setdefault(digest, []).append(key)
        before, left = len(self.answers.rows), ""
        with Progress(console=Console(stderr=True)) as bar:
            shown = bar.add_task("asking", total=len(said))
            for digest in [d for d in said if d in self.known]:
                keep(waiting.pop(digest), self.known[digest])
                bar.advance(shown)
            while waiting and not left:
                batch = self._affordable(list(waiting), said)
                if not batch:
                    left = self._used_up(sum(map(len, waiting.values())))
                    break
                left = self._ask({d: said[d] for d in batch})
                for digest in batch:
                    if digest in self.known:
                        keep(waiting.pop(digest), self.known[digest])
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

    def _affordable(self, digests: Sequence[str], asked: Mapping[str, list[Message]]) -> list[str]:
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

    def _used_up(self, left: int) -> str:
        flag, most = ("--budget", self.options.budget) if self.options.budget is not None else (
            "--budget-tokens", self.options.budget_tokens)  # fmt: skip
        return f"{left} {self.things} are left, as another request could go beyond {flag} {most}: raise it to go on."
