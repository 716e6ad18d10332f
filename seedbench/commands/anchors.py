"""`seedbench anchors`: per task a few snippets of evidence, for SSPO's teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from seedbench.commands.common import OptInt, OptStr, Terms, lazy

ANCHORS = "seedbench.baselines.anchors"


@dataclass(frozen=True)
class Build:
    """Write anchors for every task of some splits: from gold evidence, or for other questions from passages that a
    search finds, chosen by a model behind an OpenAI-compatible endpoint.

    The same command goes on after a kill, an outage or a used-up budget. A file that holds anchors of more tasks is
    never replaced.

    For example:

      seedbench anchors build --env searchqa --out anchors.jsonl
      seedbench anchors build --env searchqa --data DIR --retriever INDEX --by openai:MODEL@URL --out anchors.jsonl
    """

    env: str = "searchqa"
    """Which environment, by its short name."""
    out: Path = Path("anchors.jsonl")
    """File to write, JSON lines."""
    data: str = "mini"
    """mini, or the folder of published files."""
    split: str = "train"
    """Splits, as a comma list."""
    limit: OptInt = None
    """The first so many tasks of each split."""
    retriever: OptStr = None
    """Search engine, as in `seedbench eval`."""
    by: str = "gold"
    """gold: the environment's own evidence. openai:MODEL@URL: asked for each task, its key in OPENAI_API_KEY; every
    snippet that it names is looked for in the passage it names."""
    mask: Literal["answers", "nothing"] = "answers"
    """answers: an answer in a snippet becomes [ANSWER]. nothing: it stays, and the last of several is left out."""
    passages: int = 10
    """With an endpoint: passages that it chooses from."""
    retry_refused: bool = False
    """Ask once more what the endpoint refused, as too long, say, while it answered other questions."""
    terms: OmitArgPrefixes[Terms] = field(default_factory=Terms)

    def __call__(self) -> None:
        lazy(f"{ANCHORS}.build", "run")(self)


@dataclass(frozen=True)
class Validate:
    """Check a file of anchors: at most 6 a task, of at most 64 words, each found word for word in the source that it
    names, none that says next to nothing beside the answer, and never the whole way to it. Exit 1 if a task's anchors
    fall short.
    """

    file: Positional[Path]
    """File of anchors."""
    env: str = "searchqa"
    """Which environment, by its short name."""
    data: str = "mini"
    """mini, or the folder of published files."""
    split: str = "train"
    """Splits whose tasks the file may hold, as a comma list."""
    retriever: OptStr = None
    """Search engine, as in `seedbench eval`."""

    def __call__(self) -> None:
        lazy(f"{ANCHORS}.validate", "run")(self)


@dataclass(frozen=True)
class Anchors:
    """Evidence anchors for `seedbench train sspo --anchors FILE`."""

    command: OmitSubcommandPrefixes[Annotated[Build, subcommand("build")] | Annotated[Validate, subcommand("validate")]]

    def __call__(self) -> None:
        self.command()
