"""The episodes of an update: their tasks, groups drawn again where they teach nothing, and what was played."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.agents.local import LocalAgent
from seedbench.core import Sampling, SeedbenchError, Task, Trajectory, stream
from seedbench.prompts import prompt_sha, sha256_json
from seedbench.rollout import Episode, play
from seedbench.train.args import Args
from seedbench.train.rows import Row, earned

if TYPE_CHECKING:
    from seedbench.train.loop import Context, Run


@dataclass
class Played:
    """A rank's episodes of one update, in order of group and trial."""

    trajectories: list[Trajectory]
    groups: list[int]
    replaced: list[Trajectory]  # of groups without spread, which others stand in for
    drawn_again: int = 0  # how many groups those were


def _tasks(run: Run, n: int) -> list[Task]:
    """The next `n` training tasks; every task comes once before any comes twice, in an order drawn by the seed."""
    pool: Sequence[Task] = run.exam.tasks["train"]
    if run.args.task_share < 1:
        mixed = np.random.default_rng(stream("train-part", run.args.seed)).permutation(len(pool))
        pool = [pool[int(k)] for k in mixed[: math.ceil(run.args.task_share * len(pool))]]
    chosen = []
    for k in range(run.cursor, run.cursor + n):
        epoch, at = divmod(k, len(pool))
        order = np.random.default_rng(stream("train-order", run.args.seed, epoch)).permutation(len(pool))
        chosen.append(pool[int(order[at])])
    run.cursor += n
    return chosen


def rollout(run: Run, context: Context) -> Played:
    """This rank's share of the update's groups. For `resample` rounds those without spread are drawn again; every rank
    knows of all of them, so that the next tasks are the same everywhere."""
    drawn: list[Task] = []  # of the update, over all ranks and rounds: a task that comes twice has trials of its own
    wanted = list(range(run.args.tasks))
    kept: dict[int, list[Trajectory]] = {}
    replaced: list[Trajectory] = []
    again = 0
    for extra in range(run.args.resample + 1):
        mine = wanted[run.ranks.rank :: run.ranks.world]
        new = _play_groups(run, context, wanted, mine, drawn)
        replaced += [t for g in new for t in kept.get(g, ())]
        kept |= new
        if extra == run.args.resample:
            break
        wanted = sorted(run.ranks.gather([g for g in mine if _flat(kept[g], run.args)]))
        if not wanted:
            break
        again += len(wanted)
    order = sorted(kept)
    _some_ended(run, [*replaced, *(t for g in order for t in kept[g])])
    return Played([t for g in order for t in kept[g]], [g for g in order for _ in kept[g]], replaced, again)


def _play_groups(
    run: Run, context: Context, wanted: Sequence[int], mine: Sequence[int], drawn: list[Task]
) -> dict[int, list[Trajectory]]:
    """A new task for each `wanted` group (added to `drawn`) and the episodes of those that are `mine`, by trial."""
    args = run.args
    agent = LocalAgent("policy", run.sampler, batch=args.slots, max_prompt_tokens=args.max_prompt_tokens)
    agent.sampling, agent.prompt = Sampling(args.temperature, 1.0, args.max_new_tokens), run.exam.prompt
    seed = stream("train", args.seed, run.update)
    place: dict[tuple[str, int], int] = {}
    episodes = []
    for g, task in zip(wanted, _tasks(run, len(wanted)), strict=True):
        first = args.group * sum(t.id == task.id for t in drawn)
        drawn.append(task)
        if g not in mine:
            continue
        hint = context(task)
        for trial in range(first, first + args.group):
            place[task.id, trial] = g
            episodes.append(Episode(task, seed, trial, hint))
    groups: dict[int, list[Trajectory]] = {g: [] for g in mine}
    for t in play(run.exam.make, episodes, agent, slots=args.slots, prompt=run.exam.prompt):
        groups[place[t.task.id, t.trial]].append(t)
    return {g: sorted(some, key=lambda t: t.trial) for g, some in groups.items()}


def _flat(group: Sequence[Trajectory], args: Args) -> bool:
    """Whether the rewards of a task's episodes are all alike (crashed ones, which teach nothing, left out)."""
    return len({earned(t, args.reward, args.reward_scale) for t in group if t.ended != "error"}) < 2


def _some_ended(run: Run, trajectories: list[Trajectory]) -> None:
    """Raises SeedbenchError when no episode of any rank came to its end: then nothing can be learned, now or later."""
    lost = [t for t in trajectories if t.ended == "error"]
    everyone, errors = run.ranks.sum([len(trajectories), len(lost)])
    if everyone == errors:
        first = f", the first {lost[0].task.id}: {lost[0].error.rstrip('.')}" if lost else ""
        raise SeedbenchError(
            f"At update {run.update + 1} all {everyone:.0f} episodes ended in an error{first}; the last checkpoint "
            "stands: mend that and go on from it with --resume."
        )


def figures(run: Run, batch: Played, rows: list[Row]) -> dict[str, Any]:
    """What the update's episodes were like, over all ranks. Success, score, reward and steps are those of every
    episode that was played, replaced ones too: groups that are chosen for their spread would flatter or slander."""
    args, trajectories = run.args, batch.trajectories + batch.replaced
    rewards = [earned(t, args.reward, args.reward_scale) for t in trajectories if t.ended != "error"]
    steps_taken = [step for t in trajectories for step in t.steps]
    spread: dict[int, set[float]] = {}
    for row in rows:
        spread.setdefault(row.group, set()).add(row.reward)
    mine = [
        len(trajectories), sum(t.success for t in trajectories), math.fsum(t.score for t in trajectories),
        len(steps_taken), len(rows), sum(not s.format_valid for s in steps_taken),
        math.fsum(rewards), len(set(batch.groups)),
        sum(len(s) == 1 for s in spread.values()), sum(t.ended == "error" for t in trajectories),
        sum(s.reply.usage.get("cut_prompts", 0) for s in steps_taken),
    ]  # fmt: skip
    n, won, score, steps, trained, invalid, reward, of, flat, errors, cut = run.ranks.sum(mine)
    prompts = run.ranks.gather([(r.group, r.trajectory, r.step, prompt_sha(r.view.messages)) for r in rows])
    return {
        "success": won / n, "score": score / n, "reward": reward / n, "episode_steps": steps / n,
        "invalid_rate": invalid / max(steps, 1), "flat_groups": flat / of, "errors": errors, "rows": trained,
        "resampled": batch.drawn_again, "cut_prompts": cut,
        "prompt_digest": sha256_json([sha for _, _, _, sha in sorted(prompts)]),
    }  # fmt: skip
