"""What is kept of the runs of an experiment's arm, as figures by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.core import SeedbenchError
from seedbench.train.log import read

AREA = "area under the training curve"
FINAL = "all splits"
LATE = {"grad_norm": "gradient norm", "entropy": "entropy"}  # of metrics.jsonl: means over the last updates
LAST = 5  # of those


class Split(TypedDict):
    """What outcomes.json holds of a split."""

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)  # type: ignore[misc]
    won: Annotated[str, Field(pattern="^[01]+$")]
    score: float
    steps: float
    invalid_rate: float
    trials: NotRequired[Annotated[int, Field(ge=1)]]
    metrics: NotRequired[dict[str, float]]


class Arm:
    """The finished runs of an arm, by seed: of the plan's seeds, where they are given."""

    def __init__(self, folder: Path, seeds: Sequence[int] | None = None):
        self.runs: dict[int, dict[str, Split]] = {}
        self.curves: dict[int, list[float]] = {}
        self.late: dict[int, dict[str, float]] = {}
        runs = [run for run in folder.glob("*") if run.name.isdecimal() and run.name == str(int(run.name))]
        runs = [run for run in runs if seeds is None or int(run.name) in seeds]
        for run in sorted(runs, key=lambda p: int(p.name)):
            if (run / "outcomes.json").is_file():
                self.runs[int(run.name)] = _outcomes(run / "outcomes.json")
                if (run / "metrics.jsonl").is_file():
                    lines = _lines(run / "metrics.jsonl")
                    self.curves[int(run.name)] = [line["success"] for line in lines]
                    found = {name: [x[name] for x in lines[-LAST:] if type(x.get(name)) is float] for name in LATE}
                    self.late[int(run.name)] = {name: float(np.mean(some)) for name, some in found.items() if some}

    def rates(self, split: str) -> dict[int, float]:
        """Success by seed; of AREA, the mean success over all updates' episodes; of FINAL, over all splits' tasks."""
        if split == AREA:
            return {seed: float(np.mean(curve)) for seed, curve in self.curves.items()}
        if split == FINAL:
            won = {seed: "".join(f["won"] for name, f in run.items() if "*" not in name)
                   for seed, run in self.runs.items()}  # fmt: skip
        else:
            won = {seed: run[split]["won"] for seed, run in self.runs.items()}
        return {seed: w.count("1") / len(w) for seed, w in won.items()}

    def plays(self, seed: int) -> list[Split]:
        """What is kept of each split of a run, second plays apart."""
        return [figures for name, figures in self.runs[seed].items() if "*" not in name]

    def described(self, name: str) -> dict[int, float]:
        """By seed, of the runs that have it: a figure of LATE, or a measure of the environment over all episodes."""
        if name in LATE:
            return {seed: told[name] for seed, told in self.late.items() if name in told}
        found = {}
        for seed in self.runs:
            plays = self.plays(seed)
            if all(name in play.get("metrics", {}) for play in plays):
                values, n = [p["metrics"][name] for p in plays], [len(p["won"]) for p in plays]
                found[seed] = float(np.average(values, weights=n))
        return found


def _outcomes(file: Path) -> dict[str, Split]:
    try:
        told = TypeAdapter(dict[str, Split]).validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise SeedbenchError(
            f"{file} is not what an experiment keeps of a run ({'.'.join(map(str, first['loc'])) or 'the whole'}: "
            f"{first['msg']}): remove the folder, and the experiment makes it again from its work folder."
        ) from error
    return told


def _lines(file: Path) -> list[dict[str, Any]]:
    lines = read(file)
    whole = [n for n, line in enumerate(lines, 1)
             if line["update"] == n and type(x := line.get("success")) is float and 0 <= x <= 1]  # fmt: skip
    if not whole or len(whole) < len(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        raise SeedbenchError(
            f"{file} is no whole log of a training run (good up to line {len(whole)}): remove the folder, and the "
            "experiment makes it again from its work folder."
        )
    return lines


def check(arms: Mapping[str, Arm]) -> None:
    """Raises SeedbenchError unless the start has played, every run the start's splits, tasks and trials, and every arm
    has curves of all its runs."""
    if not arms["start"].runs:
        raise SeedbenchError("nothing is kept of the start: run the experiment first.")
    sizes = _sizes(next(iter(arms["start"].runs.values())))
    for name, arm in arms.items():
        for seed, run in arm.runs.items():
            if _sizes(run) != sizes:
                raise SeedbenchError(
                    f"{name}, seed {seed}, played {_sizes(run)} (episodes, trials), the start {sizes}."
                )
            if name != "start" and seed not in arm.curves:
                raise SeedbenchError(f"{name}, seed {seed}, has no metrics.jsonl: put it back, or remove the folder.")


def _sizes(run: Mapping[str, Split]) -> dict[str, tuple[int, int]]:
    return {name: (len(split["won"]), split.get("trials", 1)) for name, split in run.items() if "*" not in name}


def measured(arms: Mapping[str, Arm]) -> list[str]:
    """Names of what every run has beside success: measures of the environment; of trained runs, figures of LATE."""
    seen = dict.fromkeys(k for arm in arms.values() for seed in arm.runs for p in arm.plays(seed)
                         for k in p.get("metrics", {}))  # fmt: skip
    own = [name for name in seen if all(len(arm.described(name)) == len(arm.runs) for arm in arms.values())]
    trained = [arm for arm in arms.values() if arm.curves]
    return own + [n for n in LATE if trained and all(len(arm.described(n)) == len(arm.runs) for arm in trained)]
