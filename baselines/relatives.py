"""Relatives of SEED: GRPO with another use of a teacher that re-scores the sampled tokens with a skill in its prompt.

With l, l_old and l_T the log-probabilities of a sampled token by the present weights, the batch's weights, and the
batch's weights that see the skill; d = l - l_T; gap = -d without gradient; means over taught tokens:

    grpo_opsd   L_GRPO + 0.01 mean(l_T - l)                            no gate
    sdar        L_GRPO + 0.01 mean(sigmoid(5 gap) (l_T - l))           SEED's loss with static skills
    opsd        the same without the reward: every advantage is 0
    skill_sd    L_GRPO + 0.001 mean(exp(min(l - l_old, 10)) (exp(-d) - 1 + d))
    rlsd        GRPO with A (1 - w + w clip(exp(sign(A) gap), 0.8, 1.2)) for A, w from 0.5 to 0 over 100 updates

SDAR: arXiv 2605.15155, whose code has OPSD and GRPO + OPSD, too; RLSD: arXiv 2604.03128. Formulas and constants as
published code has them; where nothing marks a factor as free of gradient (Skill-SD's ratio) it has one here.

    seedbench train relatives --method sdar --env alfworld --model tiny --out runs/sdar
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.baselines.grpo import Metrics, advantages, whole_loss
from seedbench.baselines.seed import hindsight
from seedbench.train.hints import RelativesArgs
from seedbench.train.rows import Batch

if TYPE_CHECKING:
    from torch import Tensor

RLSD_CUT, RLSD_UPDATES = 0.2, 100


def term(logp: Tensor, batch: Batch, args: RelativesArgs) -> Tensor:
    """(N,) log-probabilities to the method's own (N,) loss, before its weight and the mean over taught tokens."""
    import torch

    d = logp - batch.logp_teacher
    if args.method == "grpo_opsd":
        return -d
    if args.method == "skill_sd":
        return (logp - batch.logp_old).clamp(max=10).exp() * (torch.exp(-d) - 1 + d)
    return torch.sigmoid(-args.beta_opd * d.detach()) * -d  # sdar, opsd


def rlsd_advantage(logp: Tensor, batch: Batch, args: RelativesArgs) -> Tensor:
    """(N,) advantages of RLSD; those of untaught tokens stay as they are."""
    import torch

    A, gap = batch.advantage, batch.logp_teacher - logp.detach()
    w = args.own_weight * max(0.0, 1 - batch.update / RLSD_UPDATES)
    scale = 1 - w + w * torch.exp(A.sign() * gap).clamp(1 - RLSD_CUT, 1 + RLSD_CUT)
    return torch.where(batch.taught, A * scale, A)


def objective(policy: Any, batch: Batch, args: RelativesArgs) -> tuple[Tensor, Metrics]:
    """The loss of one pass."""
    logp, entropy = policy.score(batch.prompts, batch.completions, args.temperature)
    if args.method == "rlsd":
        return whole_loss(logp, entropy, dataclasses.replace(batch, advantage=rlsd_advantage(logp, batch, args)), args)
    if args.method == "opsd":
        batch = dataclasses.replace(batch, advantage=batch.advantage * 0)
    loss, metrics = whole_loss(logp, entropy, batch, args)
    own, n = term(logp, batch, args)[batch.taught].sum(), batch.taught.sum()
    part = args.own_weight * own / max(batch.total_taught, 1)
    gap = (batch.logp_teacher - logp.detach())[batch.taught].sum()
    return loss + part, metrics | {"opd_loss": (own.detach(), n), "skill_gap": (gap, n), "part": part}


def run(args: RelativesArgs, resume: bool = False) -> Path:
    """Train; returns the folder."""
    from seedbench.train.loop import train

    told = None if args.skills == "none" else hindsight
    return train(args, advantages=advantages, objective=objective, hindsight=told, resume=resume)
