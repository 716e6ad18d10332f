"""`seedbench skills`: from episodes to lessons, and from lessons to what a model learns to write them from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from seedbench.commands.common import OptFloat, OptInt, OptPath, OptStr, Terms, lazy
from seedbench.core import SeedbenchError

SKILLS = "seedbench.baselines.skills"


@dataclass(frozen=True)
class Collect:
    """Play train tasks, as many of each kind, into a project folder. A killed run goes on with --resume DIR.

    For example:

      seedbench skills collect --env alfworld --agent tiny --out runs/skills
      seedbench skills collect --resume runs/skills
    """

    env: OptStr = None
    """alfworld, webshop, searchqa or deepsearch."""
    agent: OptStr = None
    """Who plays, as in `seedbench eval`. SEED: the base policy that is to be trained."""
    out: OptPath = None
    """Project folder."""
    resume: OptPath = None
    """Go on with the project in this folder; every other option is restored from it."""
    tasks: int = 180
    """Train tasks (SEED: 180), as many of each kind."""
    trials: int = 8
    """Episodes of each (SEED: 8)."""
    data: str = "mini"
    """mini, or the folder of published or generated files."""
    seed: int = 0
    """Seed of the choice of tasks and of every episode."""
    preset: str = "seedbench"
    """A protocol by name, as in `seedbench eval`."""
    retriever: OptStr = None
    """search-QA's search engine, as in `seedbench eval`."""
    max_steps: OptInt = None
    """Step limit of an episode. Default: the preset's."""
    temperature: OptFloat = None
    """Sampling temperature. Default 0.4 (SEED: 0.4)."""
    max_new_tokens: OptInt = None
    """Longest reply, in tokens. Default 512 (SEED: 512)."""
    batch: int = 64
    """Episodes under way at a time."""
    device: str = "auto"
    """Where a local model runs."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses."""

    def __call__(self) -> None:
        from seedbench.commands.common import index_or_url
        from seedbench.exam import Config

        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        if self.resume is not None:
            if given - {"resume"}:
                flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given - {"resume"}))
                raise SeedbenchError(f"--resume restores every option from the project: leave out {flags}.")
            return lazy(f"{SKILLS}.collect", "resume")(self.resume)
        for name in ("env", "agent", "out"):
            if getattr(self, name) is None:
                raise SeedbenchError(f"--{name} is missing: see `seedbench skills collect --help`.")
        if self.env == "all" or "," in str(self.env):
            raise SeedbenchError("--env names one environment: a project is of one.")
        if self.tasks < 1:
            raise SeedbenchError(f"--tasks is {self.tasks}: it must be at least 1.")
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Config) if f.name in vars(self)}
        if os.path.isdir(str(self.agent)):
            options["agent"] = os.path.abspath(str(self.agent))
        if self.data != "mini":
            options["data"] = os.path.abspath(self.data)
        options["retriever"] = index_or_url(self.retriever)
        lazy(f"{SKILLS}.collect", "run")(self.out, Config(split="train", **options), self.tasks)


@dataclass(frozen=True)
class Annotate:
    """Write a lesson for every collected episode: by rule, or by a model behind an OpenAI-compatible endpoint.

    What was asked before is not asked again. The same command goes on after a kill, an outage or a used-up budget.

    For example:

      seedbench skills annotate runs/skills
      seedbench skills annotate runs/skills --analyzer openai:my-model@http://localhost:8000/v1
      seedbench skills annotate runs/skills --analyzer openai:MODEL@URL --price-in 0.6 --price-out 2.2 --budget 5
    """

    project: Positional[Path]
    """Project folder."""
    analyzer: str = "rule"
    """rule (offline, of the environment's own) | openai:MODEL@URL, its key in OPENAI_API_KEY (SEED: GLM-5.2)."""
    retry_refused: bool = False
    """Ask once more about episodes that the endpoint refused, as too long, say, while it answered others."""
    terms: OmitArgPrefixes[Terms] = field(default_factory=Terms)

    def __call__(self) -> None:
        lazy(f"{SKILLS}.annotate", "run")(self)


@dataclass(frozen=True)
class Validate:
    """Check every lesson: it could be read (SEED's check), it has a sensible length, and it gives nothing away.

    With --utility the tasks are played again, with and without the skill in the prompt, by an agent of your choice.
    """

    project: Positional[Path]
    """Project folder."""
    analyzer: OptStr = None
    """Whose lessons; by default the analyzer that annotated last."""
    least_words: int = 5
    """Shortest skill. Texts without spaces are not counted in words."""
    most_words: int = 60
    """Longest skill."""
    utility: bool = False
    """Also play each valid skill's task again, with it and without."""
    agent: OptStr = None
    """Who plays for --utility; by default the agent that was collected from."""
    trials: int = 1
    """Episodes of each for --utility."""
    min_gain: OptFloat = None
    """With --utility: also reject a skill that raises the success on its task by less than this."""
    batch: int = 64
    """Episodes under way at a time."""
    device: str = "auto"
    """Where a local model runs."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses."""

    def __call__(self) -> None:
        lazy(f"{SKILLS}.validate", "run")(self)


@dataclass(frozen=True)
class Export:
    """Write valid lessons as rows of messages and completion: sft.jsonl, for `seedbench train sft --examples`, and
    sft_val.jsonl, which is held out.
    """

    project: Positional[Path]
    """Project folder."""
    keep: Literal["valid", "parsed"] = "valid"
    """valid: what passed every check; parsed: all that could be read, as SEED does."""
    val: float = 0.1
    """Share of the tasks whose rows are held out (SEED: 0.1 of the rows)."""

    def __call__(self) -> None:
        lazy(f"{SKILLS}.export", "run")(self.project, self.keep, self.val)


@dataclass(frozen=True)
class Skills:
    """Skills from episodes, step by step: collect, annotate, validate, export; each can be stopped and resumed."""

    command: OmitSubcommandPrefixes[
        Annotated[Collect, subcommand("collect")]
        | Annotated[Annotate, subcommand("annotate")]
        | Annotated[Validate, subcommand("validate")]
        | Annotated[Export, subcommand("export")]
    ]

    def __call__(self) -> None:
        self.command()
