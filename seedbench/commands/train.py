"""`seedbench train`: the algorithms of baselines/, one subcommand a page."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from seedbench.commands.common import OptFloat, OptPath, OptStr, lazy, told
from seedbench.core import SeedbenchError
from seedbench.train import recipes
from seedbench.train.args import Args
from seedbench.train.hints import RelativesArgs, SeedArgs, SkillGrpoArgs, SspoArgs
from seedbench.train.sft import SftArgs


@dataclass(frozen=True)
class _Common:
    resume: OptPath = None
    """Go on with the killed run in this folder; every other option is restored from it."""
    recipe: OptStr = None
    """A recipe that ships (help lists them), or a JSON file of settings; options given here win."""
    dry_run: bool = False
    """Say what the run would do and the memory it needs, and stop."""
    parameters: OptFloat = None
    """With --dry-run: how many the model has (3.09e9, say), where its config.json is not at hand."""

    def run(self, page: str, given_args: Any) -> None:
        """Put the settings together and run the page of baselines/ that is named."""
        if self.recipe == "help":
            print("\n".join(recipes.names(page)))
            return
        if self.parameters is not None and not self.dry_run:
            raise SeedbenchError("--parameters is for --dry-run alone: leave it out.")
        args = self.chosen(page, given_args)
        if self.dry_run:
            print(lazy("seedbench.train.dry", "describe")(args, page, self.parameters))
            return
        out = lazy(f"seedbench.baselines.{page}", "run")(args, resume=self.resume is not None)
        print(f"{out}: a model folder for `seedbench eval --agent {out}`, metrics.jsonl, curves.png")

    def chosen(self, page: str, given_args: Any) -> Any:
        """The settings that the call means: of a run that is resumed, of a recipe, or the defaults; with what is given.
        Raises SeedbenchError."""
        kind = type(given_args)
        given = {f.name: getattr(given_args, f.name) for f in dataclasses.fields(kind)
                 if told(f.name) or getattr(given_args, f.name) != f.default}  # fmt: skip
        if self.resume is not None:
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
                raise SeedbenchError(f"--resume restores every option from the run folder: leave out {flags}.")
            _of_page(self.resume, page)
            return dataclasses.replace(kind.load(self.resume / "train.json"), out=str(self.resume))
        base = kind.load(recipes.find(self.recipe), "--recipe") if self.recipe is not None else kind()
        args = dataclasses.replace(base, **given)
        return dataclasses.replace(args, **_found_again(args))


def _found_again(args: Any) -> dict[str, str]:
    """Folders and files that settings name, as --resume finds them from any folder."""
    paths = {"data": args.data} if args.data != "mini" else {}
    if os.path.isdir(args.model) and args.model not in ("fresh", "tiny"):
        paths["model"] = args.model
    if isinstance(args, Args):
        paths |= args.reads
    return {name: os.path.abspath(path) for name, path in paths.items()}


def _of_page(run: Path, page: str) -> None:
    """Raises SeedbenchError unless `run` is the folder of a run of this algorithm."""
    try:
        was = json.loads((run / "train.json").read_text(encoding="utf-8")).get("page", page)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SeedbenchError(
            f"--resume {run} holds no train.json: it is no folder of `seedbench train`, or the run had not begun; "
            "start it again."
        ) from error
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise SeedbenchError(f"{run}/train.json cannot be read ({error}): start the run again.") from error
    if was != page:
        raise SeedbenchError(f"{run} is a run of {was}: go on with `seedbench train {was} --resume {run}`.")


@dataclass(frozen=True)
class Sft(_Common):
    """Supervised fine-tuning on the expert's episodes: the warm start that the other algorithms begin from.

    For example:

      seedbench train sft --env alfworld --model fresh --out runs/sft
      seedbench train sft --model tiny --demonstrations 0 --examples sft.jsonl --updates 400 --lr 7e-4 --out runs/one
      seedbench train sft --resume runs/sft
    """

    args: OmitArgPrefixes[SftArgs] = dataclasses.field(default_factory=SftArgs)

    def __call__(self) -> None:
        args = self.args
        if args.examples:  # found again from any folder
            args = dataclasses.replace(args, examples=os.path.abspath(args.examples))
        self.run("sft", args)


@dataclass(frozen=True)
class Grpo(_Common):
    """GRPO: play groups of episodes, raise what did better than its group, with the ratio clipped.

    For example:

      seedbench train grpo --env alfworld --model runs/sft --out runs/grpo
      seedbench train grpo --resume runs/grpo
    """

    args: OmitArgPrefixes[Args] = dataclasses.field(default_factory=Args)

    def __call__(self) -> None:
        self.run("grpo", self.args)


@dataclass(frozen=True)
class SkillGrpo(_Common):
    """Skill-GRPO: GRPO whose actor reads a skill at every step; to be evaluated with that skill and without.

    For example:

      seedbench train skill_grpo --env alfworld --model tiny --out runs/skill_grpo
      seedbench eval --agent runs/skill_grpo --env alfworld --skill static
      seedbench eval --agent runs/skill_grpo --env alfworld
    """

    args: OmitArgPrefixes[SkillGrpoArgs] = dataclasses.field(default_factory=SkillGrpoArgs)

    def __call__(self) -> None:
        self.run("skill_grpo", self.args)


@dataclass(frozen=True)
class Seed(_Common):
    """SEED, stage 2: GRPO, and distillation from the same policy that has read its own lesson on each episode.

    For example:

      seedbench train seed --env alfworld --model tiny --out runs/seed
      seedbench train seed --recipe seed-qwen2.5-3b-alfworld --data DIR --dry-run
    """

    args: OmitArgPrefixes[SeedArgs] = dataclasses.field(default_factory=SeedArgs)

    def __call__(self) -> None:
        self.run("seed", self.args)


@dataclass(frozen=True)
class Relatives(_Common):
    """Relatives of SEED (OPSD, GRPO + OPSD, SDAR, Skill-SD, RLSD): other uses of a teacher that sees a skill.

    For example:

      seedbench train relatives --method sdar --env alfworld --model tiny --out runs/sdar
    """

    args: OmitArgPrefixes[RelativesArgs] = dataclasses.field(default_factory=RelativesArgs)

    def __call__(self) -> None:
        self.run("relatives", self.args)


@dataclass(frozen=True)
class Sspo(_Common):
    """SSPO: GRPO whose failed episodes weigh each step by a teacher that knows evidence and the wrong answer.

    For example:

      seedbench train sspo --env searchqa --model tiny --out runs/sspo
      seedbench train sspo --env searchqa --model tiny --privileged answer --granularity token --out runs/token
    """

    args: OmitArgPrefixes[SspoArgs] = dataclasses.field(default_factory=SspoArgs)

    def __call__(self) -> None:
        self.run("sspo", self.args)


@dataclass(frozen=True)
class Train:
    """Train a policy; every algorithm is one page in baselines/."""

    command: OmitSubcommandPrefixes[
        Annotated[Sft, subcommand("sft")]
        | Annotated[Grpo, subcommand("grpo")]
        | Annotated[SkillGrpo, subcommand("skill_grpo")]
        | Annotated[Seed, subcommand("seed")]
        | Annotated[Relatives, subcommand("relatives")]
        | Annotated[Sspo, subcommand("sspo")]
    ]

    def __call__(self) -> None:
        self.command()
