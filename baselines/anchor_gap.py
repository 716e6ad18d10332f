"""The hint gap of SSPO: what does a policy do that is told what the teacher is told, and does it take a shortcut?

    python -m seedbench.baselines.anchor_gap --model tiny --env deepsearch --tasks 150 --seed 0 --out anchor_gap.json

Every task is played once plainly (trial 0), from which come the wrong answers. Then it is played again (trial 1, the
same random streams whatever is shown) plainly and with each text of ARMS in the slot that the teacher reads, and
differences are to that second plain play. Where there is nothing to tell, the plain play stands in. Beside success:
steps and the environment's own measures (searches, visits), which fall where evidence is taken for a shortcut. Of texts
only digests are kept, as what published sets hold may not be written in the clear.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from seedbench.baselines import sspo
from seedbench.baselines.gradients_sspo import dealt, evidence
from seedbench.baselines.hint_gap import BAR, compared
from seedbench.baselines.probe import Options
from seedbench.baselines.report import paired
from seedbench.baselines.skills.parse import clean
from seedbench.core import Anchor, SeedbenchError, TextEnv, Trajectory, stream
from seedbench.prompts import sha256_json
from seedbench.rollout import Episode
from seedbench.train.hints import SspoArgs

if TYPE_CHECKING:
    from seedbench.baselines.player import Player

ARMS = {
    "anchors": "evidence",
    "answer": "evidence and the right answer",
    "teacher": "evidence and the own wrong answer (SSPO's)",
    "other": "evidence of another task",
}
Counts = Mapping[str, Sequence[float]]  # by what is counted, one number a task


def texts(
    env: TextEnv, source: Sequence[Trajectory], own: Mapping[str, Sequence[Anchor]], args: SspoArgs
) -> dict[str, list[str]]:
    """What is shown in each arm, one text an episode; "" for nothing."""
    other = dealt(own, [t.task.id for t in source], stream("anchor-gap-shuffle", args.seed))
    told: dict[str, list[str]] = {arm: [] for arm in ARMS}
    for t in source:
        some = own.get(t.task.id, ())
        anchors = sspo.privileged(some, None, args)
        right = next((clean(answer, sspo.LONGEST) for answer in env.answers(t.task)), "")
        told["anchors"].append(anchors)
        told["answer"].append(f"{anchors}\nThe right answer is: {right}" if anchors and right else "")
        failed = t.ended != "error" and not t.success
        told["teacher"].append(sspo.privileged(some, env.outcome(t), args) if failed else "")
        told["other"].append(sspo.privileged(other[t.task.id], None, args))
    return told


def counts(played: Sequence[Trajectory], measures: Sequence[str]) -> dict[str, list[float]]:
    """Steps and the environment's measures of each episode; 0 of one that broke off before any."""
    return {
        "steps": [float(len(t.steps)) for t in played],
        **{name: [t.measures.get(name, 0.0) for t in played] for name in measures},
    }


def measure(args: SspoArgs, split: str) -> dict[str, Any]:
    """Play all arms; outcomes task by task and the figures that `summary` makes of them."""
    from seedbench.baselines.player import Player

    player, anchors = Player(args, split), sspo.evidence_of(args)
    tasks = player.draw(args.tasks, "anchor-gap", args.seed)
    seed, env = stream("anchor-gap-play", args.seed), player.exam.make()
    source = player.play([Episode(task, seed, 0) for task in tasks])
    plain = player.play([Episode(task, seed, 1) for task in tasks])
    told = texts(env, source, evidence(env, source) if anchors is None else anchors, args)
    played = {"source": source, "plain": plain}
    for arm, some in told.items():
        played[arm] = _with(player, plain, some, seed)
    won = {arm: [t.success for t in some] for arm, some in played.items()}
    counted = {arm: counts(some, env.MEASURES) for arm, some in played.items()}
    shown = {arm: [bool(text) for text in some] for arm, some in told.items()}
    return {
        "settings": json.loads(args.dumps()) | {"split": split},
        "revision": player.policy.describe()["revision"],
        "errors": {arm: sum(t.ended == "error" for t in some) for arm, some in played.items()},
        "tasks": [task.id for task in tasks],
        "texts": {arm: sha256_json(some) for arm, some in told.items()},
        "shown": {arm: "".join(str(int(x)) for x in some) for arm, some in shown.items()},
        "won": {arm: "".join(str(int(w)) for w in some) for arm, some in won.items()},
        "counts": counted,
        "rows": summary(won, counted, shown),
    }


def _with(player: Player, plain: Sequence[Trajectory], told: Sequence[str], seed: int) -> list[Trajectory]:
    hinted = [Episode(p.task, seed, 1, text) for p, text in zip(plain, told, strict=True) if text]
    again = {t.task.id: t for t in player.play(hinted)}
    return [again.get(p.task.id, p) for p in plain]


def summary(
    won: Mapping[str, Sequence[bool]], counted: Mapping[str, Counts], shown: Mapping[str, Sequence[bool]]
) -> list[dict[str, Any]]:
    """One row a comparison with the plain play: all tasks, and those on which something was shown if fewer."""
    every = range(len(won["plain"]))
    rows = []
    for arm in ARMS:
        some = [i for i in every if shown[arm][i]]
        parts: dict[str, Sequence[int]] = {"all": every} | ({"shown": some} if 0 < len(some) < len(every) else {})
        for part, places in parts.items():
            row = compared(arm, part, [(won[arm][i], won["plain"][i]) for i in places])
            row["counts"] = {}
            for name, values in counted[arm].items():
                a, b = ([each[i] for i in places] for each in (values, counted["plain"][name]))
                gap = paired(a, b)
                row["counts"][name] = {"shown": float(np.mean(a)), "plain": float(np.mean(b)), "difference": gap.mean,
                                       "interval": [gap.low, gap.high] if np.isfinite(gap.p) else None}  # fmt: skip
            rows.append(row)
    return rows


def text(result: dict[str, Any]) -> str:
    """The result as a table, and whether the gap is as large as an experiment needs."""
    n = len(result["tasks"])
    lines = [f"plain success at temperature 1: {result['won']['plain'].count('1') / n:.3f} of {n} tasks (the episodes "
             f"that wrong answers are of: {result['won']['source'].count('1') / n:.3f})"]  # fmt: skip
    for row in result["rows"]:
        low, high = row["difference_interval"]
        lines += ["", f"{ARMS[row['arm']]}, {row['tasks']} ({row['n']} tasks)",
                  f"  {'success':10} {row['plain']:7.3f} -> {row['success']:7.3f}  {row['difference']:+.3f} "
                  f"[{low:+.3f}, {high:+.3f}] p {row['p']:.2g}"]  # fmt: skip
        for name, told in row["counts"].items():
            around = "" if told["interval"] is None else " [{:+.3f}, {:+.3f}]".format(*told["interval"])
            lines.append(f"  {name:10} {told['plain']:7.3f} -> {told['shown']:7.3f}  {told['difference']:+.3f}{around}")
    gap = next(r["difference"] for r in result["rows"] if r["arm"] == "anchors")
    lines += ["", f"hint gap, {ARMS['anchors']}: {gap:+.3f}, which {'reaches' if gap >= BAR else 'is below'} "
                  f"the bar of {BAR:.2f}"]  # fmt: skip
    return "\n".join(lines)


@dataclass(frozen=True)
class AnchorOptions(Options):
    """Success, steps, searches and visits at temperature 1 plainly, with evidence, and with evidence and an answer."""

    env: str = "deepsearch"
    """Which environment, by its short name."""
    split: str = "train"
    """Which split's tasks."""
    anchors: str = ""
    """File of anchors; by default the environment's own evidence."""


def main(options: AnchorOptions) -> None:
    """Measure, write and print."""
    args = options.settings(SspoArgs, anchors=options.anchors)
    options.writable()
    result = measure(args, options.split)
    options.write(result, indent=1)
    print(text(result))


if __name__ == "__main__":
    try:
        main(tyro.cli(AnchorOptions))
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
