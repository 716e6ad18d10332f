"""The hint gap: is there anything in a lesson that the policy, as it is, can use and does not know?

    python -m seedbench.baselines.hint_gap --model tiny --env alfworld --tasks 150 --seed 0 --out hint_gap.json

Every task is played once plainly (trial 0), and lessons are written on those episodes. Then it is played again (trial
1, the same random streams whatever is shown) without a lesson and with one of each kind; differences are to that second
plain play, so the luck of the episode that a lesson was written on is in neither side. Where there is no lesson (an
answer that cannot be read, say) the plain play stands in its place: what a policy with its own lessons would get.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from seedbench import stats
from seedbench.baselines.probe import Options
from seedbench.core import SeedbenchError, Task, Trajectory, stream
from seedbench.rollout import Episode
from seedbench.train.hints import SeedArgs

if TYPE_CHECKING:
    from seedbench.baselines.player import Player

BAR = 0.20  # below it there is little to distil: change the data or the warm start (issue of this experiment)
ARMS = {
    "rule": "own trajectory's lesson, by rule",
    "own": "own trajectory's lesson, by the policy",
    "other": "own lessons of other tasks (rule, shuffled)",
    "new": "lesson of another won task of kind and family",
    "static": "static bank",
}


def donors(tasks: Sequence[Task], won: Sequence[bool], lessons: Sequence[str], seed: int) -> list[int | None]:
    """For each task another one, drawn among those of its kind and family that were won and have a lesson; None where
    there is none."""
    rng = np.random.default_rng(stream("hint-gap-donors", seed))
    cells: dict[tuple[str, str], list[int]] = {}
    for i, task in enumerate(tasks):
        if won[i] and lessons[i]:
            cells.setdefault(_cell(task), []).append(i)
    found: list[int | None] = []
    for i, task in enumerate(tasks):
        others = [j for j in cells.get(_cell(task), ()) if j != i]
        found.append(others[int(rng.integers(len(others)))] if others else None)
    return found


def _cell(task: Task) -> tuple[str, str]:
    return task.kind, str(task.options.get("family", ""))


def lessons_of(player: Player, played: Sequence[Trajectory], args: SeedArgs) -> tuple[dict[str, list[str]], float]:
    """The lessons of each arm but `new`, one an episode ("" for none), and how many of the policy's own were read."""
    from seedbench.baselines.skills import hindsight
    from seedbench.baselines.skills.bank import static

    live = [i for i, t in enumerate(played) if t.ended != "error"]
    some = [played[i] for i in live]

    def spread(told: Sequence[str]) -> list[str]:
        known = dict(zip(live, told, strict=True))
        return [known.get(i, "") for i in range(len(played))]

    rule = hindsight.by_rule(player.exam.make(), some)
    own, cost = hindsight.analyse(player.policy, some, args.analysis_tokens)
    other = hindsight.shuffle(rule, some, stream("hint-gap-shuffle", args.seed))
    told = {"rule": spread(rule), "own": spread(own), "other": spread(other)}
    return told | {"static": [static(t.task) for t in played]}, cost["parsed"] / max(1.0, cost["analysed"])


def measure(args: SeedArgs, split: str) -> dict[str, Any]:
    """Play all arms; outcomes task by task and the figures that `summary` makes of them."""
    from seedbench.baselines.player import Player

    player = Player(args, split)
    tasks = player.draw(args.tasks, "hint-gap", args.seed)
    seed = stream("hint-gap-play", args.seed)
    source = player.play([Episode(task, seed, 0) for task in tasks])
    plain = player.play([Episode(task, seed, 1) for task in tasks])
    skills, parsed = lessons_of(player, source, args)
    won = [t.success for t in source]
    giver = donors(tasks, won, skills["rule"], args.seed)
    skills["new"] = ["" if j is None else skills["rule"][j] for j in giver]
    outcomes: dict[str, list[bool]] = {"source": won, "plain": [t.success for t in plain]}
    for arm in ARMS:
        hinted = [Episode(task, seed, 1, skill) for task, skill in zip(tasks, skills[arm], strict=True) if skill]
        again = {t.task.id: t.success for t in player.play(hinted)}
        outcomes[arm] = [again.get(task.id, p.success) for task, p in zip(tasks, plain, strict=True)]
    readable = [(a, b) for a, b in zip(skills["own"], skills["rule"], strict=True) if a]
    ended = [t.ended for t in source]
    return {
        "settings": json.loads(args.dumps()) | {"split": split},
        "revision": player.policy.describe()["revision"],
        "parse_rate": parsed,
        "equal_to_rule": sum(a == b for a, b in readable) / len(readable) if readable else None,
        "errors": ended.count("error") + sum(t.ended == "error" for t in plain),
        "tasks": [task.id for task in tasks],
        "donors": [None if j is None else tasks[j].id for j in giver],
        "skills": {arm: skills[arm] for arm in ("rule", "own")},
        "won": {arm: "".join(str(int(w)) for w in some) for arm, some in outcomes.items()},
        "rows": summary(outcomes, skills),
    }


def summary(outcomes: Mapping[str, Sequence[bool]], skills: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """One row a comparison with the plain play, over all tasks and over parts of them."""
    every = range(len(outcomes["plain"]))
    rows = []
    for arm in ARMS:
        shown = [i for i in every if skills[arm][i]]
        parts: dict[str, Sequence[int]] = {"all": every}
        if arm in ("rule", "own"):
            parts |= {"after a success": [i for i in shown if outcomes["source"][i]],
                      "after a failure": [i for i in shown if not outcomes["source"][i]]}  # fmt: skip
        if arm == "new":
            parts = {"with a donor": shown}
        elif len(shown) < len(every):
            parts |= {"with a lesson": shown}
        rows += [compared(arm, part, [(outcomes[arm][i], outcomes["plain"][i]) for i in some])
                 for part, some in parts.items() if some]  # fmt: skip
    return rows


def compared(arm: str, part: str, pairs: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Success of both sides (Wilson), the paired difference (Newcombe) and the exact McNemar test."""
    table = [pairs.count((a, b)) for a, b in ((True, True), (True, False), (False, True), (False, False))]
    n, first, second = len(pairs), table[0] + table[1], table[0] + table[2]
    return {
        "arm": arm,
        "tasks": part,
        "n": n,
        "success": first / n,
        "success_interval": stats.wilson(first, n),
        "plain": second / n,
        "difference": (first - second) / n,
        "difference_interval": stats.newcombe_paired(*table),
        "p": stats.mcnemar_exact(table[1], table[2]),
    }


def text(result: dict[str, Any]) -> str:
    """The result as a table, and whether the gap is as large as an experiment needs."""
    source, plain = (result["won"][k].count("1") / len(result["tasks"]) for k in ("source", "plain"))
    equal = result["equal_to_rule"]
    lines = [
        f"plain success at temperature 1: {plain:.3f} (the episodes that lessons were written on: {source:.3f})",
        f"the policy's own lessons: {result['parse_rate']:.3f} readable, of those "
        + ("none" if equal is None else f"{equal:.3f}") + " word for word the rule's",
        "",
        f"{'lesson shown':46} {'tasks':16} {'n':>4} {'plain':>6} {'shown':>6} difference, 95 %, p",
    ]  # fmt: skip
    for r in result["rows"]:
        low, high = r["difference_interval"]
        lines.append(f"{ARMS[r['arm']]:46} {r['tasks']:16} {r['n']:4} {r['plain']:6.3f} {r['success']:6.3f} "
                     f"{r['difference']:+.3f} [{low:+.3f}, {high:+.3f}] {r['p']:.2g}")  # fmt: skip
    for arm in ("rule", "own"):
        gap = next(r["difference"] for r in result["rows"] if r["arm"] == arm and r["tasks"] == "all")
        reached = "reaches" if gap >= BAR else "is below"
        lines.append(f"hint gap, {ARMS[arm]}: {gap:+.3f}, which {reached} the bar of {BAR:.2f}")
    return "\n".join(lines)


@dataclass(frozen=True)
class GapOptions(Options):
    """Success at temperature 1 without a lesson, with the lesson of the own episode, of another's, and of the bank."""

    split: str = "train"
    """Which split's tasks."""
    analysis_tokens: int = 128
    """Longest lesson that the policy writes."""


def main(options: GapOptions) -> None:
    """Measure, write and print."""
    args = options.settings(SeedArgs, analysis_tokens=options.analysis_tokens)
    options.writable()
    result = measure(args, options.split)
    options.write(result, indent=1)
    print(text(result))


if __name__ == "__main__":
    try:
        main(tyro.cli(GapOptions))
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
