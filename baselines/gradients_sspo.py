"""Gradients of SSPO and of its controls, on one and the same batch of episodes.

    pg        GRPO's clipped policy loss
    sspo      the same with the weights of steps
    token     the same with a weight a token (the paper's ablation)
    direct    the log-likelihood ratio in the place of the advantage, over all episodes (OPSD, the paper's ablation)
    shuffled  as sspo, the teacher being told what belongs to an episode of another task
    added     sspo - pg: what the weights change

each as the training loop has it. The teacher is the policy itself, as just after a copy, or another model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.baselines.anchors.fair import of_task
from seedbench.baselines.gradients import Losses, beside, gradients
from seedbench.baselines.grpo import policy_loss
from seedbench.baselines.skills.hindsight import shuffle
from seedbench.baselines.sspo import delta, privileged, weight
from seedbench.core import Trajectory, stream
from seedbench.train.hints import SspoArgs
from seedbench.train.rows import Row, batch_of
from seedbench.train.scoring import Scores, hinted

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.baselines.player import Player
    from seedbench.policy.hf import HFPolicy

TERMS: Sequence[str] = ("pg", "sspo", "token", "direct", "shuffled", "added")


def sspo_losses(args: SspoArgs, rows: list[Row], teachers: Mapping[str, Scores]) -> Losses:
    """GRPO's loss, then those of TERMS but the last. Rows come with their advantages."""
    total = sum(len(row.completion_ids) for row in rows)
    place = {id(row): i for i, row in enumerate(rows)}
    token = dataclasses.replace(args, granularity="token")

    def losses(logp: Tensor, some: list[Row]) -> list[Tensor]:
        plain = batch_of(some, total, 0, logp.device)
        A = plain.advantage
        told = {}
        for name, scores in teachers.items():
            for row in some:
                row.logp_teacher = scores[place[id(row)]]
            told[name] = batch_of(some, total, 0, logp.device)
        weighed = [
            A,
            A * weight(delta(told["sspo"], args), A, args),
            A * weight(delta(told["sspo"], token), A, token),
            delta(told["direct"], args),
            A * weight(delta(told["shuffled"], args), A, args),
        ]
        return [policy_loss(logp, plain, args, advantage)[0].sum() / max(total, 1) for advantage in weighed]

    return losses


def terms(
    player: Player, args: Any, played: Sequence[Trajectory], rows: list[Row], number: int,
    teacher: HFPolicy | None = None,
) -> tuple[np.ndarray, dict[str, float]]:  # fmt: skip
    """The gradients of TERMS on given episodes, and what the teacher made of them."""
    env, policy = player.exam.make(), teacher or player.policy
    hints = ["" if t.ended == "error" else
             privileged(of_task(env, t.task), None if t.success else env.outcome(t), args) for t in played]  # fmt: skip
    lost = ["" if t.success else hint for t, hint in zip(played, hints, strict=True)]
    others = shuffle(lost, played, stream("shuffle", args.seed, number))
    teachers = {
        name: hinted(policy, player.exam.prompt, args, rows,
                     [told[r.trajectory] or None if every or r.advantage else None for r in rows])
        for name, told, every in (("sspo", lost, False), ("direct", hints, True), ("shuffled", others, False))
    }  # fmt: skip
    found = np.zeros((len(TERMS), sum(p.numel() for p in player.policy.model.parameters() if p.requires_grad)), "f4")
    found[:-1] = gradients(player.policy, args, rows, len(TERMS) - 1, sspo_losses(args, rows, teachers))
    found[-1] = found[1] - found[0]
    return found, beside(rows, teachers)
