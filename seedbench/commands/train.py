"""`seedbench train`: the algorithms of baselines/, one subcommand a page."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from seedbench.commands.common import OptPath, lazy
from seedbench.core import SeedbenchError
from seedbench.train.args import Args


@dataclass(frozen=True)
class _Train:
    args: OmitArgPrefixes[Args]
    resume: OptPath = None
    """Go on with the killed run in this folder; every other option is restored from it."""
    recipe: OptPath = None
    """A JSON file of settings (baselines/recipes); options given here win."""
    dry_run: bool = False
    """Say what the run would do, and stop."""

    page = ""  # the module of baselines/

    def __call__(self) -> None:
        given = {f.name: getattr(self.args, f.name) for f in dataclasses.fields(Args)
                 if getattr(self.args, f.name) != f.default}  # fmt: skip
        if self.resume is not None:
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
                raise SeedbenchError(f"--resume restores every option from the run folder: leave out {flags}.")
            args = dataclasses.replace(Args.load(self.resume / "train.json"), out=str(self.resume))
        else:
            base = Args.load(self.recipe, "--recipe") if self.recipe is not None else Args()
            args = dataclasses.replace(base, **given)
            if args.data != "mini":
                args = dataclasses.replace(args, data=os.path.abspath(args.data))
        if self.dry_run:
            print(lazy("seedbench.train.dry", "describe")(args, type(self).page))
            return
        out = lazy(f"seedbench.baselines.{type(self).page}", "run")(args, resume=self.resume is not None)
        print(f"{out}: a model folder for `seedbench eval --agent {out}`, metrics.jsonl, curves.png")


@dataclass(frozen=True)
class Grpo(_Train):
    """GRPO: play groups of episodes, raise what did better than its group, with the ratio clipped.

    For example:

      seedbench train grpo --env alfworld --model tiny --out runs/grpo
      seedbench train grpo --resume runs/grpo
    """

    page = "grpo"


@dataclass(frozen=True)
class Train:
    """Train a policy; every algorithm is one page in baselines/."""

    command: OmitSubcommandPrefixes[Annotated[Grpo, subcommand("grpo")]]

    def __call__(self) -> None:
        self.command()


