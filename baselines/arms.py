"""What is kept of the runs of an experiment's arm, as figures by seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.train.log import read

AREA = "area under the training curve"
FINAL = "all splits"
LATE = {"grad_norm": "gradient norm", "entropy": "entropy"}  # of metrics.jsonl: means over the last updates
LAST = 5  # of those


class Arm:
    """All finished runs of an arm, by seed."""

    def __init__(self, folder: Path):
        self.runs: dict[int, dict[str, Any]] = {}
        self.curves: dict[int, list[float]] = {}
        self.late: dict[int, dict[str, float]] = {}
        for run in sorted(folder.glob("*"), key=lambda p: int(p.name)):
            if (run / "outcomes.json").is_file():
                self.runs[int(run.name)] = json.loads((run / "outcomes.json").read_text(encoding="utf-8"))
                if (run / "metrics.jsonl").is_file():
                    lines = read(run / "metrics.jsonl")
                    self.curves[int(run.name)] = [line["success"] for line in lines]
                    found = {name: [x[name] for x in lines[-LAST:] if name in x] for name in LATE}
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

    def plays(self, seed: int) -> list[dict[str, Any]]:
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


def measured(arms: Mapping[str, Arm]) -> list[str]:
    """Names of what every run has beside success: measures of the environment; of trained runs, figures of LATE."""
    seen = dict.fromkeys(k for arm in arms.values() for seed in arm.runs for p in arm.plays(seed)
                         for k in p.get("metrics", {}))  # fmt: skip
    own = [name for name in seen if all(len(arm.described(name)) == len(arm.runs) for arm in arms.values())]
    trained = [arm for arm in arms.values() if arm.curves]
    return own + [n for n in LATE if trained and all(len(arm.described(n)) == len(arm.runs) for arm in trained)]
