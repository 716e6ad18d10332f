"""GRPO for agents: group-relative advantages, clipped policy gradient.

    A_i = (R_i - mean of the group) / (standard deviation of the group + 1e-6)
    l   = max(-A r, -A clip(r, 1 - eps, 1 + eps)),  r = pi(token) / pi_old(token);  for A < 0 at most -A c (dual clip)
    L   = mean over all sampled tokens of  l + beta k3 - entropy_weight H

after Shao et al. 2024 (DeepSeekMath) and, for episodes of many steps, the code that SEED (arXiv 2607.14777) builds on:
each environment step is a row, and every token of an episode has that episode's advantage.

    seedbench train grpo --env alfworld --model tiny --out runs/grpo
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.train.args import Args
from seedbench.train.rows import Batch, Row

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, Any]  # sums over the batch's tokens; the loop divides by the token count


def advantages(rows: Sequence[Row], args: Args) -> list[float]:
    """One advantage a row, relative to its group (the episodes of one task).

    traj: mean and deviation (n - 1) over the group's episodes; the penalty for an unreadable reply is taken off after
    the division, so that a group without spread cannot blow it up. rows: everything over step rows, as published.
    A group of one has mean 0 and deviation 1.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.group].append(i)
    result = [0.0] * len(rows)
    for members in groups.values():
        penalty = {i: 0.0 if rows[i].format_valid else args.invalid_penalty for i in members}
        if args.adv_scope == "rows":
            earned = {i: rows[i].reward - penalty[i] for i in members}
            sample = list(earned.values())
        else:
            earned = {i: rows[i].reward for i in members}
            sample = list({rows[i].trajectory: rows[i].reward for i in members}.values())
        mean, deviation = (0.0, 1.0) if len(sample) == 1 else (float(np.mean(sample)), float(np.std(sample, ddof=1)))
        for i in members:
            centred = earned[i] - mean
            result[i] = centred / (deviation + 1e-6) if args.adv_norm == "mean_std" else centred
            if args.adv_scope == "traj":
                result[i] -= penalty[i]
    return result


def policy_loss(logp: Tensor, batch: Batch, args: Args, advantage: Tensor | None = None) -> tuple[Tensor, Metrics]:
    """(N,) log-probabilities to the (N,) clipped policy-gradient loss, before the mean over tokens."""
    import torch

    A = batch.advantage if advantage is None else advantage
    ratio = torch.exp(logp - batch.logp_old)
    high = args.clip if args.clip_high is None else args.clip_high
    loss = torch.max(-A * ratio, -A * ratio.clamp(1 - args.clip, 1 + high))
    if args.dual_clip:
        loss = torch.where(A < 0, torch.min(loss, -A * args.dual_clip), loss)
    if args.importance_cap:
        loss = loss * torch.exp(batch.logp_old - batch.logp_sampled).clamp(max=args.importance_cap)
    clipped = ((ratio < 1 - args.clip) & (A < 0)) | ((ratio > 1 + high) & (A > 0))
    return loss, {
        "clip_fraction": clipped.float().sum(),
        "gap": (logp.detach() - batch.logp_sampled).abs().sum(),
        "kl": kl_k3(logp.detach(), batch.logp_old).sum(),  # to the policy that played, where there is no reference
    }


def kl_k3(logp: Tensor, logp_ref: Tensor) -> Tensor:
    """(N,) estimate of KL(pi || ref), never negative; cut at 10 as published."""
    d = logp_ref - logp
    return (d.exp() - d - 1).clamp(-10, 10)


def objective(policy: Any, batch: Batch, args: Args) -> tuple[Tensor, Metrics]:
    """The loss of one pass."""
    logp, entropy = policy.score(batch.prompts, batch.completions, args.temperature)
    return whole_loss(logp, entropy, batch, args)


def whole_loss(logp: Tensor, entropy: Tensor, batch: Batch, args: Args) -> tuple[Tensor, Metrics]:
    """(N,) log-probabilities and entropies to a sum over them, divided by the tokens of the whole optimizer step."""
    loss, metrics = policy_loss(logp, batch, args)
    metrics["entropy"] = entropy.detach().sum()
    if batch.logp_ref is not None:
        kl = kl_k3(logp, batch.logp_ref)
        loss, metrics["kl"] = loss + args.kl * kl, kl.detach().sum()
    loss = loss - args.entropy * entropy
    return loss.sum() / batch.total, metrics


def run(args: Args, resume: bool = False) -> Path:
    """Train; returns the folder."""
    from seedbench.train.loop import train

    return train(args, advantages=advantages, objective=objective, resume=resume)
