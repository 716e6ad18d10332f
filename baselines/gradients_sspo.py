"""Gradients of SSPO, of its ablations and of its controls, on one and the same batch of episodes.

    pg        GRPO's clipped policy loss
    sspo      the same with a weight for each step of failed episodes
    token     the same with a weight for each token (--granularity token)
    direct    every token's log-likelihood ratio for an advantage, the reward none (--direct)
    shuffled  as `sspo`, the evidence that the teacher is told being that of another task of the batch
    level     as `sspo`, every weight being the mean of them over tokens: failures punished less, all steps alike

each as the training loop has it, and of these the differences `added` = sspo - pg, what the weights change, and
`added_shuffled`, `added_level`, what they would change without evidence for this question, and without telling steps
apart. The teacher has the weights that played, as after a copy is taken, or those of another folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seedbench.baselines import gradients, sspo
from seedbench.baselines.anchors.fair import of_task
from seedbench.baselines.grpo import policy_loss
from seedbench.core import Anchor, SeedbenchError, TextEnv, Trajectory, stream
from seedbench.train import scoring
from seedbench.train.hints import SspoArgs
from seedbench.train.rows import Batch, Row, batch_of

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.baselines.player import Player
    from seedbench.policy.hf import HFPolicy
    from seedbench.train.scoring import Scores

Evidence = Mapping[str, Sequence[Anchor]]  # by the task's id
Advantage = Callable[[Batch], "Tensor"]  # (N,) in the place of the batch's own

TERMS = ("pg", "sspo", "token", "direct", "shuffled", "level")
DIFFERENCES = {f"added{name and '_' + name}": (name or "sspo", "pg") for name in ("", "shuffled", "level")}
BESIDE = ("pg", "added")  # terms whose cosine with each other one is printed
LAMBDAS = (1.0,)


def terms(
    player: Player, args: SspoArgs, played: Sequence[Trajectory], groups: Sequence[int], number: int,
    teacher: HFPolicy | None = None,
) -> tuple[np.ndarray, dict[str, float]]:  # fmt: skip
    """The gradients of TERMS on given episodes, and what these were like."""
    rows = gradients.judged(played, groups, args)
    env, anchors = player.exam.make(), sspo.evidence_of(args)
    own = evidence(env, played) if anchors is None else anchors
    other = dealt(own, [t.task.id for t in played], stream("shuffle", args.seed, number))
    ways = {
        "sspo": args,
        "token": dataclasses.replace(args, granularity="token"),
        "direct": dataclasses.replace(args, direct=True),
        "shuffled": args,
    }

    def scores(of: SspoArgs, told: Evidence) -> Scores:
        hints = scoring.heard(of, rows, sspo.tell(told, of, env, played))
        return scoring.hinted(teacher or player.policy, player.exam.prompt, of, rows, hints)

    teachers = {
        name: scores(ways[name], other if name == "shuffled" else own) for name in ("sspo", "direct", "shuffled")
    }
    heard = teachers | {"token": teachers["sspo"]}
    found = [term(rows, heard[name], args, changed(way)) for name, way in ways.items()]
    mean, figures = weights(rows, heard, ways)
    found.append(term(rows, heard["sspo"], args, levelled(mean)))
    gradient = gradients.gradients(player.policy, args, rows, [gradients.policy_gradient(rows, args), *found])
    return gradient, gradients.described(played, rows, teachers) | figures


def evidence(env: TextEnv, played: Sequence[Trajectory]) -> Evidence:
    """The environment's own, for each task."""
    return {t.task.id: of_task(env, t.task) for t in played}


def dealt(own: Evidence, tasks: Sequence[str], seed: int) -> Evidence:
    """Each task's evidence to another task. Raises SeedbenchError where there is none."""
    order = sorted(set(tasks))
    if len(order) < 2:
        raise SeedbenchError("--tasks is 1: evidence is dealt to other tasks of a batch, so give 2 or more.")
    order = [order[int(i)] for i in np.random.default_rng(seed).permutation(len(order))]
    return {task: own.get(giver, ()) for task, giver in zip(order, order[1:] + order[:1], strict=True)}


def term(rows: Sequence[Row], scores: Scores, args: SspoArgs, advantage: Advantage) -> gradients.Term:
    """GRPO's loss with another advantage, which follows from the teacher's `scores`."""
    return gradients.term(
        rows, scores, lambda logp, batch: policy_loss(logp, batch, args, advantage(batch))[0].sum() / batch.total
    )


def changed(args: SspoArgs) -> Advantage:
    """As SSPO has it."""

    def advantage(batch: Batch) -> Tensor:
        ratio = sspo.delta(batch, args)
        return sspo.weighed(ratio, sspo.weight(ratio, batch.advantage, args), batch, args)

    return advantage


def levelled(weight: float) -> Advantage:
    """With one weight for all tokens of failed episodes."""

    def advantage(batch: Batch) -> Tensor:
        import torch

        failed = torch.tensor([not row.correct for row in batch.rows], device=batch.row.device)[batch.row]
        return torch.where(failed, weight, 1.0) * batch.advantage

    return advantage


def weights(
    rows: Sequence[Row], heard: Mapping[str, Scores], ways: Mapping[str, SspoArgs]
) -> tuple[float, dict[str, float]]:
    """SSPO's mean weight over tokens of failed episodes that have an advantage; figures as training logs them."""
    import torch

    mean, figures = 1.0, dict[str, float]()
    for name in [name for name, way in ways.items() if not way.direct and rows]:
        for row, values in zip(rows, heard[name], strict=True):
            row.logp_teacher = values
        batch = batch_of(list(rows), 1, 0, "cpu")
        ratio = sspo.delta(batch, ways[name])
        w = sspo.weight(ratio, batch.advantage, ways[name])
        if name == "sspo":
            seen = torch.tensor([not row.correct for row in rows])[batch.row] & (batch.advantage != 0)
            mean = float(w[seen].mean()) if bool(seen.any()) else 1.0
        told = sspo.measured(ratio, w, batch, ways[name])
        for figure in ("weight_mean", "weight_capped", "teacher_agrees"):
            total, of = (float(x) for x in told[figure])
            figures[f"{figure}:{name}"] = total / of if of else ways[name].unmeasured.get(figure, 0.0)
    return mean, figures
