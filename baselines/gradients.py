"""Gradients of terms on one and the same batch of episodes: what all pages share, and those of SEED and its controls.

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
from typing import TYPE_CHECKING

import numpy as np

from seedbench.baselines.grpo import advantages, policy_loss
from seedbench.baselines.seed import distillation
from seedbench.baselines.skills import hindsight
from seedbench.core import SeedbenchError, Trajectory, stream
from seedbench.train.args import Args
from seedbench.train.hints import SeedArgs
from seedbench.train.rows import Batch, Row, batch_of, passes, rows_of
from seedbench.train.scoring import Scores, hinted

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.baselines.player import Player
    from seedbench.policy.hf import HFPolicy

Term = Callable[["Tensor", list[Row]], "Tensor"]  # log-probabilities and rows of a pass to its part of a loss
TERMS = ("pg", "own", "rules", "fixed", "shuffled")
DIFFERENCES: dict[str, tuple[str, str]] = {}
BESIDE = ("pg", "fixed")  # terms whose cosine with each other one is printed
LAMBDAS = (0.01, 0.1, 1.0)


def gradients(policy: HFPolicy, args: Args, rows: list[Row], terms: Sequence[Term]) -> np.ndarray:
    """(K, P) float32: the gradient of each term over all rows; one forward pass serves all terms."""
    import torch

    weights = [p for p in policy.model.parameters() if p.requires_grad]
    found = torch.zeros(len(terms), sum(w.numel() for w in weights))
    for some in passes(rows, args.token_budget):
        logp, _ = policy.score([r.prompt_ids for r in some], [r.completion_ids for r in some], args.temperature)
        for k, term in enumerate(terms):
            found[k] += _flat(term(logp, some), weights)
    if not bool(torch.isfinite(found).all()):
        raise SeedbenchError("A gradient is not finite: the model's weights or its log-probabilities are broken.")
    return found.numpy()


def _flat(loss: Tensor, weights: list[Tensor]) -> Tensor:
    import torch

    parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return torch.cat([
        (torch.zeros_like(w) if g is None else g).flatten().float() for w, g in zip(weights, parts, strict=True)
    ]).cpu()  # fmt: skip


def term(rows: Sequence[Row], scores: Scores, loss: Callable[[Tensor, Batch], Tensor]) -> Term:
    """The part of a pass in a loss over all rows, whose teacher's log-probabilities are `scores`."""
    place = {id(row): i for i, row in enumerate(rows)}
    total, taught = max(1, sum(len(row.completion_ids) for row in rows)), sum(map(len, scores))

    def part(logp: Tensor, some: list[Row]) -> Tensor:
        for row in some:
            row.logp_teacher = scores[place[id(row)]]
        return loss(logp, batch_of(some, total, taught, logp.device))

    return part


def policy_gradient(rows: Sequence[Row], args: Args) -> Term:
    """GRPO's."""
    return term(rows, [()] * len(rows), lambda logp, batch: policy_loss(logp, batch, args)[0].sum() / batch.total)


def judged(played: Sequence[Trajectory], groups: Sequence[int], args: Args) -> list[Row]:
    """Rows with their advantages."""
    rows = rows_of(played, groups, args.reward, args.reward_scale)
    for row, value in zip(rows, advantages(rows, args), strict=True):
        row.advantage = value
    return rows


def described(played: Sequence[Trajectory], rows: Sequence[Row], teachers: Mapping[str, Scores]) -> dict[str, float]:
    """What a batch was like; of each teacher the share of tokens that it scored, and how far it is from the student."""
    tokens = sum(len(row.completion_ids) for row in rows)
    figures = {
        "success": sum(t.success for t in played) / len(played),
        "errors": sum(t.ended == "error" for t in played),
        "rows": len(rows),
        "tokens": tokens,
        "with_advantage": sum(bool(row.advantage) for row in rows) / max(1, len(rows)),
    }
    for name, scores in teachers.items():  # at the weights that played the student's log-probability is the sampled one
        gaps = [t - s for row, told in zip(rows, scores, strict=True) if told
                for t, s in zip(told, row.logp_old, strict=True)]  # fmt: skip
        figures[f"coverage:{name}"] = len(gaps) / max(1, tokens)
        figures[f"gap:{name}"] = float(np.mean(gaps)) if gaps else 0.0
    return figures


def terms(
    player: Player, args: SeedArgs, played: Sequence[Trajectory], groups: Sequence[int], number: int
) -> tuple[np.ndarray, dict[str, float]]:
    """The gradients of TERMS on given episodes, and what these were like."""
    rows = judged(played, groups, args)
    live = [i for i, t in enumerate(played) if t.ended != "error"]
    some = [played[i] for i in live]
    own, cost = hindsight.analyse(player.policy, some, args.analysis_tokens)
    skills = {
        "own": own,
        "rules": hindsight.by_rule(player.exam.make(), some),
        "shuffled": hindsight.shuffle(own, some, stream("shuffle", args.seed, number)),
    }
    teachers: dict[str, Scores] = {"fixed": [row.logp_old for row in rows]}
    for name, told in skills.items():
        hints = dict(zip(live, told, strict=True))
        teachers[name] = hinted(
            player.policy, player.exam.prompt, args, rows, [hints.get(row.trajectory) or None for row in rows]
        )
    teachers = {name: teachers[name] for name in TERMS[1:]}

    def taught(name: str) -> Term:
        gated = dataclasses.replace(args, gate="fixed") if name == "fixed" else args
        return term(rows, teachers[name], lambda logp, batch: distillation(logp, batch, gated)[0])

    found = gradients(player.policy, args, rows, [policy_gradient(rows, args), *map(taught, teachers)])
    figures = described(played, rows, teachers) | {"parse_rate": cost["parsed"] / max(1.0, cost["analysed"])}
    return found, figures
