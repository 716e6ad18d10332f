"""What evidence in the prompt does to a policy: success, steps and tool calls, before SSPO's teacher is built on it.

    python -m seedbench.baselines.anchor_gap --model tiny --env deepsearch --tasks 150 --seed 0 --out anchor_gap.json

Every task is played plainly, with its evidence anchors in the slot of the hint as SSPO's teacher has them, and with the
answer besides: the paper's own table of shortcuts (arXiv 2608.12764: anchors lift a teacher's success and cut its
steps, the answer cuts them further). The same random streams in all three. A teacher that evidence does not help has
nothing to tell a step's worth by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from seedbench.baselines.hint_gap import compared
from seedbench.core import SeedbenchError, Trajectory, stream
from seedbench.rollout import Episode
from seedbench.train import folder
from seedbench.train.hints import SspoArgs

ARMS = ("plain", "anchors", "anchors and answer")


def measure(args: SspoArgs, split: str) -> dict[str, Any]:
    """Play all arms; their figures, and the outcomes task by task."""
    from seedbench.baselines.anchors.fair import of_task
    from seedbench.baselines.player import Player
    from seedbench.baselines.sspo import privileged

    player = Player(args, split)
    env, seed = player.exam.make(), stream("anchor-gap-play", args.seed)
    tasks = player.draw(args.tasks, "anchor-gap", args.seed)
    told = [privileged(of_task(env, task), None, args) for task in tasks]
    if not all(told):
        raise SeedbenchError(f"{args.env} has no evidence for some of these tasks: take mini's.")
    answers = [
        f"{hint}\nThe answer is {' or '.join(env.answers(task))}." for task, hint in zip(tasks, told, strict=True)
    ]
    if not all(env.answers(task) for task in tasks):
        raise SeedbenchError(f"{args.env} asks for no answer: take searchqa or deepsearch.")
    hints = dict(zip(ARMS, ([""] * len(tasks), told, answers), strict=True))
    played = {
        arm: player.play([Episode(task, seed, 0, hint) for task, hint in zip(tasks, some, strict=True)])
        for arm, some in hints.items()
    }
    plain = [t.success for t in played["plain"]]
    rows = []
    for arm, some in played.items():
        pairs = [(t.success, p) for t, p in zip(some, plain, strict=True)]
        rows.append(compared(arm, "all", pairs) | {"steps": float(np.mean([len(t.steps) for t in some]))} | means(some))
    return {
        "settings": json.loads(args.dumps()) | {"split": split},
        "revision": player.policy.describe()["revision"],
        "tasks": [task.id for task in tasks],
        "won": {arm: "".join(str(int(t.success)) for t in some) for arm, some in played.items()},
        "rows": rows,
    }


def means(played: list[Trajectory]) -> dict[str, float]:
    """The environment's own figures (searches, visits, evidence) that every episode has."""
    names = sorted(set.intersection(*(set(t.measures) for t in played)))
    return {name: float(np.mean([t.measures[name] for t in played])) for name in names}


def text(result: dict[str, Any]) -> str:
    """The result as a table."""
    first = result["rows"][0]
    more = [k for k in first if isinstance(first[k], float) and k not in ("success", "plain", "difference", "p")]
    lines = [f"{'in the prompt':20} {'success':>7} {'difference, 95 %, p':34} " + " ".join(f"{k:>9}" for k in more)]
    for r in result["rows"]:
        low, high = r["difference_interval"]
        gap = "" if r["arm"] == "plain" else f"{r['difference']:+.3f} [{low:+.3f}, {high:+.3f}] {r['p']:.2g}"
        lines.append(f"{r['arm']:20} {r['success']:7.3f} {gap:34} " + " ".join(f"{r[k]:9.2f}" for k in more))
    return "\n".join(lines)


def main(
    model: str,
    out: Path,
    env: str = "deepsearch",
    split: str = "train",
    data: str = "mini",
    tasks: int = 150,
    seed: int = 0,
    max_new_tokens: int = 64,
    max_steps: int | None = None,
    slots: int = 64,
    device: str = "auto",
    threads: int = 0,
) -> None:
    """Success, steps and tool calls at temperature 1: plain, with evidence anchors, with these and the answer.

    Args:
        model: fresh, tiny, a folder or a hub id.
        out: JSON file to write.
        env: deepsearch or searchqa.
        split: Which split's tasks.
        data: mini, or the folder of published files.
        tasks: How many tasks, drawn by the seed.
        seed: Seed of tasks and sampled tokens.
        max_new_tokens: Longest reply.
        max_steps: Step limit of an episode; by default the environment's.
        slots: Episodes under way at a time.
        device: auto, cpu or cuda.
        threads: PyTorch's CPU threads; 0 chooses.
    """
    args = SspoArgs(model=model, env=env, data=data, tasks=tasks, seed=seed, max_new_tokens=max_new_tokens,
                    max_steps=max_steps, slots=slots, device=device, threads=threads)  # fmt: skip
    folder.make(out.parent)  # before the play, whose figures would be lost
    result = measure(args, split)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(text(result))


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except SeedbenchError as error:
        sys.exit(f"error: {error}")
