"""The plan of an experiment, a JSON file that is committed before the first run."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from seedbench.core import SeedbenchError

OURS = {"--agent", "--env", "--seed", "--out", "--model", "--resume", "--quiet", "--dry-run", "--parameters"}


@dataclass(frozen=True)
class Plan:
    """What is run; read from a file that is committed before the first run."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    title: str
    start: str
    env: str
    arms: dict[str, list[str]]
    seeds: list[int]
    eval: list[str]
    control: str = ""
    question: str = ""
    analysis: str = ""
    contrasts: list[list[str]] = field(default_factory=list)
    again: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Read a plan. Raises SeedbenchError."""
        try:
            plan = TypeAdapter(cls).validate_json(path.read_text(encoding="utf-8"), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise SeedbenchError(f"{path} is not a plan of an experiment: {where}: {first['msg']}.") from error
        except (OSError, ValueError, RecursionError) as error:
            raise SeedbenchError(f"{path} is not a plan of an experiment ({error}).") from error
        if not plan.seeds:
            raise SeedbenchError(f"{path}: seeds is empty: name one run at least.")
        if wrong := [seed for seed, n in Counter(plan.seeds).items() if n > 1 or not 0 <= seed < 2**63]:
            raise SeedbenchError(
                f"{path}: the seed {wrong[0]} is there twice, below 0 or too large: give each run one."
            )
        told = [*plan.arms.values(), *plan.again.values(), plan.eval, [plan.start, plan.env]]
        if any(not word.isprintable() for words in told for word in words):
            raise SeedbenchError(f"{path}: an argument holds a character that cannot be printed: type it again.")
        ours = [word for words in told for word in words if word.partition("=")[0].replace("_", "-") in OURS]
        if ours:
            raise SeedbenchError(f"{path}: {ours[0]} is for the runner to give, or for no plan: leave it out.")
        if strange := [arm for arm in plan.arms if not re.fullmatch(r"[\w-]+", arm) or arm == "start"]:
            raise SeedbenchError(f"{path}: an arm is called {strange[0]!r}: take letters, digits, - and _, not start.")
        if idle := [arm for arm, told in plan.arms.items() if not told or told[0] == "sft"]:
            raise SeedbenchError(f"{path}: the arm {idle[0]!r} names no algorithm that plays: begin it with grpo, say.")
        if plan.control and plan.control not in plan.arms:
            raise SeedbenchError(f"{path}: the control {plan.control!r} is none of the arms.")
        named = {arm for pair in plan.contrasts for arm in pair} | set(plan.again) - {"start"}
        if strange := sorted(named - set(plan.arms)):
            raise SeedbenchError(f"{path}: {strange[0]!r} in contrasts or again is none of the arms.")
        if any(len(pair) != 2 for pair in plan.contrasts):
            raise SeedbenchError(f"{path}: each of the contrasts is a pair of arms.")
        return plan

    def train(self, arm: str, seed: int, out: str) -> list[str]:
        """Arguments of the `seedbench` that trains a run."""
        told = ("--env", self.env, "--model", self.start, "--seed", str(seed), "--out", out)
        return ["train", *self.arms[arm], *told]

    def play(self, agent: str, seed: int, out: str, more: Sequence[str] = ()) -> list[str]:
        """Arguments of the `seedbench` that plays one, with those of its second play."""
        told = ("--agent", agent, "--env", self.env, "--seed", str(seed), "--out", out)
        return ["eval", *told, *self.eval, *more, "--quiet"]

    def settings(self, arm: str, seed: int) -> dict[str, Any]:
        """All that the outcome of a run depends on, but for the code: of files and folders that are named, digests."""
        train, again = self.arms.get(arm, []), self.again.get(arm)
        named = {
            word: _digest(word) for word in (self.start, *train, *self.eval, *(again or ())) if Path(word).exists()
        }
        return {"start": self.start, "env": self.env, "seed": seed, "train": train, "eval": self.eval, "again": again,
                "digests": named}  # fmt: skip

    def check_commands(self) -> None:
        """Read every command that the plan will give, so that a slip in the last arm costs no hours. Raises
        SeedbenchError with what `seedbench` says of the first that is wrong."""
        from seedbench.exam import plan
        from seedbench.policy.loading import find_folder

        if self.start not in ("tiny", "fresh"):
            find_folder(self.start)
        seed = self.seeds[0]
        for arm in self.arms:
            _read(f"arm {arm!r}", self.train(arm, seed, "x"), _trainable)
        played = [("eval", ()), *((f"again of {arm!r}", more) for arm, more in self.again.items())]
        for what, more in played:
            _read(what, self.play(self.start, seed, "x", more), lambda command: plan(command.config()))


def _trainable(command: Any) -> None:
    """Raises SeedbenchError for settings that name what is not there, or that make no update."""
    args = command.command.chosen(command.command.args.page, command.command.args)
    if not args.updates:
        raise SeedbenchError("--updates is 0, and then there is no curve")
    for flag, path in args.reads.items():
        if not Path(path).is_file():
            raise SeedbenchError(f"--{flag} {path} is no file")


def _digest(name: str) -> str:
    """Of a file, or of the files of a folder, by name."""
    from seedbench.policy.weights import sha256_files

    path = Path(name)
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    return sha256_files(files)


def _read(what: str, args: Sequence[str], check: Callable[[Any], Any]) -> None:
    from seedbench import cli

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            check(cli.read(args))
    except (SystemExit, SeedbenchError) as error:
        why = " ".join(re.sub(r"[^ -~]+", " ", said.getvalue()).split()) if isinstance(error, SystemExit) else error
        raise SeedbenchError(f"{what} of the plan is no command: seedbench {' '.join(args)}: {why}") from error
