"""Gradients of the terms of SEED and of its controls, on one and the same batch of episodes.

    pg        GRPO's clipped policy loss
    own       the distillation term, the teacher reading the present weights' own lesson on the episode (SEED)
    rules     the same with the environment's rule-based lesson
    fixed     the same with the gate at one half and no lesson shown: plain self-imitation, every token taught
    shuffled  the same as `own` with the lesson of an episode of another task

each as the training loop has it, before lambda. At the weights that played, `fixed` is minus half the mean score
function, whose expectation is 0 but for the mean being over however many tokens there were: it shows what an estimate
of no signal looks like.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.baselines.grpo import advantages, policy_loss
from seedbench.baselines.seed import distillation
from seedbench.baselines.skills import hindsight
from seedbench.core import SeedbenchError, Trajectory, stream
from seedbench.rollout import Episode
from seedbench.train.args import Args
from seedbench.train.hints import SeedArgs
from seedbench.train.rows import Row, batch_of, passes, rows_of
from seedbench.train.scoring import Scores, hinted

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.baselines.player import Player
    from seedbench.policy.hf import HFPolicy

TERMS: Sequence[str] = ("pg", "own", "rules", "fixed", "shuffled")
Terms = Callable[..., tuple[np.ndarray, dict[str, float]]]  # (player, args, played, rows, number), as `terms` below


Losses = Callable[["Tensor", list[Row]], Sequence["Tensor"]]  # (N,) log-probabilities of a pass's rows to each term


def gradients(policy: HFPolicy, args: Args, rows: list[Row], terms: int, losses: Losses) -> np.ndarray:
    """(K, P) float32: the gradient of each of the K terms over all rows. One forward pass serves all terms."""
    import torch

    weights = [p for p in policy.model.parameters() if p.requires_grad]
    found = torch.zeros(terms, sum(w.numel() for w in weights))
    for some in passes(rows, args.token_budget):
        logp, _ = policy.score([r.prompt_ids for r in some], [r.completion_ids for r in some], args.temperature)
        for k, loss in enumerate(losses(logp, some)):
            found[k] += _flat(loss, weights)
    if not bool(torch.isfinite(found).all()):
        raise SeedbenchError("A gradient is not finite: the model's weights or its log-probabilities are broken.")
    return found.numpy()


def seed_losses(args: SeedArgs, rows: list[Row], teachers: Mapping[str, Scores]) -> Losses:
    """GRPO's loss, then the distillation term for each teacher; the one named `fixed` has its gate fixed. Rows come
    with their advantages."""
    total = sum(len(row.completion_ids) for row in rows)
    taught = {name: sum(map(len, scores)) for name, scores in teachers.items()}
    place = {id(row): i for i, row in enumerate(rows)}

    def losses(logp: Tensor, some: list[Row]) -> list[Tensor]:
        found = [policy_loss(logp, batch_of(some, total, 0, logp.device), args)[0].sum() / max(total, 1)]
        for name, scores in teachers.items():
            for row in some:
                row.logp_teacher = scores[place[id(row)]]
            gated = dataclasses.replace(args, gate="fixed") if name == "fixed" else args
            found.append(distillation(logp, batch_of(some, total, taught[name], logp.device), gated)[0])
        return found

    return losses


def _flat(loss: Tensor, weights: list[Tensor]) -> Tensor:
    import torch

    parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return torch.cat([
        (torch.zeros_like(w) if g is None else g).flatten().float() for w, g in zip(weights, parts, strict=True)
    ]).cpu()  # fmt: skip


def measure(player: Player, args: Args, number: int, terms: Terms) -> tuple[np.ndarray, dict[str, float]]:
    """Batch `number`, independent of every other: its (K, P) gradients, and what it was like."""
    tasks = player.draw(args.tasks, "signal-tasks", args.seed, number)
    seed = stream("signal", args.seed, number)
    played = player.play([Episode(task, seed, k) for task in tasks for k in range(args.group)])
    rows = rows_of(played, [g for g in range(args.tasks) for _ in range(args.group)], args.reward, args.reward_scale)
    for row, value in zip(rows, advantages(rows, args), strict=True):
        row.advantage = value
    found, figures = terms(player, args, played, rows, number)
    return found, {
        "success": sum(t.success for t in played) / len(played),
        "errors": sum(t.ended == "error" for t in played),
        "rows": len(rows),
        "tokens": sum(len(row.completion_ids) for row in rows),
        "with_advantage": sum(bool(row.advantage) for row in rows) / max(1, len(rows)),
        **figures,
    }


def terms(
    player: Player, args: Any, played: Sequence[Trajectory], rows: list[Row], number: int
) -> tuple[np.ndarray, dict[str, float]]:
    """The gradients of TERMS on given episodes, and what their lessons were like."""
    live = [i for i, t in enumerate(played) if t.ended != "error"]
    some = [played[i] for i in live]
    own, cost = hindsight.analyse(player.policy, some, args.analysis_tokens)
    ruled = hindsight.by_rule(player.exam.make(), some)
    skills = {
        "own": own,
        "rules": ruled,
        "shuffled": hindsight.shuffle(own, some, stream("shuffle", args.seed, number)),
    }
    teachers: dict[str, Scores] = {"fixed": [row.logp_old for row in rows]}
    for name, told in skills.items():
        hints = dict(zip(live, told, strict=True))
        teachers[name] = hinted(
            player.policy, player.exam.prompt, args, rows, [hints.get(row.trajectory) or None for row in rows]
        )
    teachers = {name: teachers[name] for name in TERMS[1:]}
    figures = {"parse_rate": cost["parsed"] / max(1.0, cost["analysed"])} | beside(rows, teachers)
    return gradients(player.policy, args, rows, len(TERMS), seed_losses(args, rows, teachers)), figures


def beside(rows: list[Row], teachers: Mapping[str, Scores]) -> dict[str, float]:
    """Each teacher's share of the tokens, and its mean distance from the student at the weights that played."""
    tokens = sum(len(row.completion_ids) for row in rows)
    figures = {f"coverage:{name}": sum(map(len, scores)) / max(1, tokens) for name, scores in teachers.items()}
    for name, scores in teachers.items():  # at the weights that played the student's log-probability is the sampled one
        gaps = [t - s for row, told in zip(rows, scores, strict=True) if told
                for t, s in zip(told, row.logp_old, strict=True)]  # fmt: skip
        figures[f"gap:{name}"] = float(np.mean(gaps)) if gaps else 0.0
    return figures
