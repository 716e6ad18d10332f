"""Questions to a model behind an OpenAI-compatible endpoint, batch by batch, within a budget.

Answers are kept in a file by a digest of what was asked, so that nothing is paid for twice, whatever happens. After a
refusal the endpoint is asked what nothing can be wrong with. If it answers, the refused question was at fault (too
long, say), which is kept too; if not, the model, the key or an option is, and the run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from rich.console import Console
from rich.progress import Progress
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.baselines.lines import Lines, Row
from seedbench.baselines.metered import Metered
from seedbench.baselines.skills.rows import LOOSE
from seedbench.commands.common import Terms
from seedbench.core import InfrastructureError, Message, Reply, Sampling, SeedbenchError, View, stream
from seedbench.prompts import sha256_json

TEMPLATE = 64  # tokens that a chat template may add to a prompt
CONTROL: list[Message] = [{"role": "user", "content": "Say yes."}]
SHOWN = 5  # refusals that are named
Count = Annotated[int, Field(ge=0, lt=2**53)]


class Answer(TypedDict):
    """A line of the file of answers; without a digest it says what a request cost that brought none."""

    __pydantic_config__ = LOOSE  # type: ignore[misc]
    digest: str
    analyzer: str
    text: str
    usage: tuple[Count, Count]
    error: str


ANSWER: TypeAdapter[Any] = TypeAdapter(Answer)


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


def tell_refused(things: str, refused: Mapping[str, str]) -> None:
    """Print what an endpoint refused by name, with its words; nothing where it refused nothing."""
    if not refused:
        return
    print(f"{things} that the endpoint refused, and --retry-refused asks about once more: {len(refused)}")
    for name, words in list(refused.items())[:SHOWN]:
        print(f"  {name}: {words}")
    if len(refused) > SHOWN:
        print(f"  and {len(refused) - SHOWN} more")


@dataclass
class Spent:
    """Tokens of answers, and what they cost."""

    price_in: float
    price_out: float
    prompt: int = 0
    answer: int = 0

    def add(self, prompt: int, answer: int) -> None:
        self.prompt, self.answer = self.prompt + prompt, self.answer + answer

    @property
    def money(self) -> float:
        return (self.prompt * self.price_in + self.answer * self.price_out) / 1e6


class Asking:
    """Asks the endpoint `spec` (openai:MODEL@URL); `file` holds the answers so far and takes the new ones."""

    def __init__(self, spec: str, options: Terms, file: Path, things: str, flag: str, retry_refused: bool = False):
        """`things` is what the questions are about, in the plural: episodes, say; `flag` the option that gave `spec`;
        with `retry_refused` a refusal that was kept is no answer. Raises SeedbenchError."""
        self.options, self.things, self.flag = options, things, flag
        try:
            self.endpoint = Metered(spec, self._pay_for_nothing, self._may_retry, batch=options.concurrency,
                                    retries=options.retries, deadline=options.deadline)  # fmt: skip
        except SeedbenchError as error:
            raise SeedbenchError(f"{self._worded(error)}.") from error
        self.endpoint.sampling = Sampling(options.temperature, 1.0, options.max_new_tokens)
        self.name = self.endpoint.name
        self.answers = Lines(file, ANSWER)
        self.known = {row["digest"]: row for row in self.answers.rows}
        if retry_refused:
            self.known = {digest: row for digest, row in self.known.items() if not row["error"]}
        self.bought = 0
        self.spent = Spent(options.price_in, options.price_out)
        self.lost = Spent(options.price_in, options.price_out)  # requests that brought no answer
        self.under_way = Spent(options.price_in, options.price_out)  # at most
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
        left = ""
        with Progress(console=Console(stderr=True)) as bar:
            shown = bar.add_task("asking", total=len(said))
            for digest in [d for d in said if d in self.known]:
                keep(waiting.pop(digest), self.known[digest])
                bar.advance(shown)
            while waiting and not left:
                batch = self._affordable(list(waiting), said)
                left = self._ask({d: said[d] for d in batch}) if batch else self._used_up
                for digest in batch:
                    if digest in self.known:
                        keep(waiting.pop(digest), self.known[digest])
                        bar.advance(shown)
        self._tell()
        return f"{sum(map(len, waiting.values()))} {self.things} are left: {left}" if left else ""

    def _digest(self, said: list[Message]) -> str:
        how = self.endpoint.sampling
        return sha256_json([self.name, said, how.temperature, how.top_p, how.max_new_tokens])

    def _most(self, said: Sequence[Message]) -> tuple[int, int]:
        """The most tokens that a request can take: no tokenizer makes more of them than there are bytes."""
        size = sum(len(m["content"].encode("utf-8", "replace")) for m in said)
        return size + TEMPLATE, self.options.max_new_tokens

    def _affordable(self, digests: Sequence[str], asked: Mapping[str, list[Message]]) -> list[str]:
        """As many of the next requests as cannot go beyond the budget together, which are under way from then on."""
        batch: list[str] = []
        self.under_way.prompt = self.under_way.answer = 0
        for digest in digests[: self.options.concurrency]:
            if not self._fits(*(most := self._most(asked[digest]))):
                break
            self.under_way.add(*most)
            batch.append(digest)
        return batch

    def _fits(self, prompt: int = 0, answer: int = 0) -> bool:
        """Whether some tokens more, beside what is spent and under way, are within the budget."""
        tally = Spent(self.options.price_in, self.options.price_out, prompt, answer)
        for part in (self.spent, self.lost, self.under_way):
            tally.add(part.prompt, part.answer)
        most, tokens = self.options.budget, self.options.budget_tokens
        return (most is None or tally.money <= most) and (tokens is None or tally.prompt + tally.answer <= tokens)

    def _may_retry(self) -> None:
        """Called before a further try, which is under way as the first was. Raises InfrastructureError."""
        if not self._fits():
            raise InfrastructureError(self._used_up)

    def _pay_for_nothing(self, said: Sequence[Message]) -> None:
        """Called after a try that brought no answer and may be billed all the same."""
        self._write("", "", self._most(said), "no answer")

    def _ask(self, asked: dict[str, list[Message]]) -> str:
        """Send a batch and keep its answers; returns why the run cannot go on, or ""."""
        failed, refused = "", dict[str, str]()
        for (digest, said), reply in zip(asked.items(), self._replies(asked), strict=True):
            if isinstance(reply, Reply):
                self._keep(digest, said, reply)
            elif isinstance(reply, InfrastructureError):
                failed = failed or f"{self._worded(reply)}; the same command goes on."
            else:
                refused[digest] = self._worded(reply)
        if refused and not failed:
            failed = self._control()
        if not failed:
            for digest, words in refused.items():
                self._write(digest, "", (0, 0), words)
        return failed

    def _replies(self, asked: Mapping[str, Sequence[Message]]) -> list[Reply | SeedbenchError]:
        """A reply to each; InfrastructureError where there is none yet, another SeedbenchError where it is refused."""
        views = [View("", "", (), (), stream=stream("annotate", digest), messages=tuple(said))
                 for digest, said in asked.items()]  # fmt: skip
        replies: list[Reply | SeedbenchError] = []
        for reply in self.endpoint.act(views):
            if not isinstance(reply, Reply | SeedbenchError):
                raise reply
            replies.append(reply)
        return replies

    def _control(self) -> str:
        """Ask what any chat model answers; returns why it does not, or ""."""
        self.under_way.prompt = self.under_way.answer = 0
        if not self._fits(*(most := self._most(CONTROL))):
            return self._used_up
        self.under_way.add(*most)
        (reply,) = self._replies({"": CONTROL})
        if isinstance(reply, SeedbenchError):
            return f"{self._worded(reply)}; mend that and run the same command again: what was answered is kept."
        self._keep("", CONTROL, reply)
        return ""

    def _keep(self, digest: str, said: Sequence[Message], reply: Reply) -> None:
        most = self._most(said)  # what is counted where the server does not say
        usage = reply.usage.get("prompt_tokens", most[0]), reply.usage.get("completion_tokens", most[1])
        text = reply.text.encode("utf-8", "replace").decode()  # JSON may spell lone surrogates, which no file can hold
        self._write(digest, text, usage, "")
        self.bought += bool(digest)

    def _write(self, digest: str, text: str, usage: tuple[int, int], error: str) -> None:
        row = {"digest": digest, "analyzer": self.name, "text": text, "usage": usage, "error": error}
        self.answers.append(row)
        self.known[digest] = row
        self._count(row)

    def _count(self, row: Row) -> None:
        (self.spent if row["digest"] else self.lost).add(*row["usage"])

    def _worded(self, error: Exception) -> str:
        """An error of the endpoint in the words of this command's options."""
        return str(error).rstrip(".").replace("--agent", self.flag).replace("--batch", "--concurrency")

    @property
    def _used_up(self) -> str:
        flag, most = ("--budget", self.options.budget) if self.options.budget is not None else (
            "--budget-tokens", self.options.budget_tokens)  # fmt: skip
        return f"another request could go beyond {flag} {most}: raise it to go on."

    def _tell(self) -> None:
        print(f"{self.bought} answers bought; all of {self.name}: {self.spent.prompt:,} prompt and "
              f"{self.spent.answer:,} answer tokens, cost {self.spent.money:.4f}")  # fmt: skip
        if self.lost.prompt:
            print(f"requests that brought none took at most {self.lost.prompt:,} and {self.lost.answer:,} more, cost "
                  f"{self.lost.money:.4f}")  # fmt: skip
