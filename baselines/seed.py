"""SEED, stage 2: GRPO, and distillation from the same policy that has read its own lesson on the episode.

    s    = the present weights' lesson on their own episode (greedy, after it ended; none that can be read: no teacher)
    gap  = log pi_old(token | prompt with s) - log pi(token | prompt), for the very tokens that were sampled
    gate = sigmoid(beta gap), without gradient
    L    = L_GRPO + lambda * mean over taught tokens of  gate (log pi_old(token | prompt with s) - log pi(token))

after arXiv 2607.14777, section 3.3, and its code: the teacher is the frozen weights of the batch, scored once before
the update, the gate uses the present log-probability, and gradient flows through the last term alone. Episodes that
succeeded and that failed are taught alike; the actor, in training and in evaluation, sees no lesson. Stage 1 is
`seedbench skills` and `seedbench train sft`.

    seedbench train seed --env alfworld --model tiny --out runs/seed
    seedbench eval --agent runs/seed --env alfworld
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.baselines.grpo import Metrics, advantages, whole_loss
from seedbench.core import Trajectory, stream
from seedbench.train.hints import HindsightArgs, SeedArgs
from seedbench.train.rows import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.train.loop import Run, Told


def distillation(logp: Tensor, batch: Batch, args: SeedArgs) -> tuple[Tensor, Metrics]:
    """(N,) log-probabilities to this pass's part of the mean over the step's taught tokens, and what is measured."""
    import torch

    gap = batch.logp_teacher - logp.detach()
    gate = torch.sigmoid(args.beta_opd * gap) if args.gate == "learned" else torch.full_like(gap, 0.5)
    taught, n = batch.taught, batch.taught.sum()
    loss = (gate * (batch.logp_teacher - logp))[taught].sum()
    return loss / max(batch.total_taught, 1), {
        "opd_loss": (loss.detach(), n),
        "gate_mean": (gate[taught].sum(), n),
        "gate_above_half": ((gate[taught] > 0.5).sum(), n),
        "skill_gap": (gap[taught].sum(), n),
    }


def objective(policy: Any, batch: Batch, args: SeedArgs) -> tuple[Tensor, Metrics]:
    """The loss of one pass. `part` is the term whose gradient --share-every measures."""
    logp, entropy = policy.score(batch.prompts, batch.completions, args.temperature)
    loss, metrics = whole_loss(logp, entropy, batch, args)
    part, more = distillation(logp, batch, args)
    part = args.lambda_opd * part
    return loss + part, metrics | more | {"part": part}


def hindsight(run: Run, trajectories: Sequence[Trajectory]) -> Told:
    """A skill for every episode that is to be taught, and what getting it took."""
    from seedbench.baselines.skills import hindsight as source
    from seedbench.train.loop import Told

    args = run.args
    assert isinstance(args, HindsightArgs)
    on = args.scheduled(run.update)
    chosen = [i for i, t in enumerate(trajectories)
              if on and t.ended != "error" and not (args.failed_only and t.success)]  # fmt: skip
    some = [trajectories[i] for i in chosen]
    cost: dict[str, float] = {}
    if args.skills == "static":
        from seedbench.baselines.skills.bank import static

        skills = [static(t.task) for t in some]
    elif args.skills == "rules":
        skills = source.by_rule(run.exam.make(), some)
    else:
        skills, cost = source.analyse(run.policy, some, args.analysis_tokens)
        if args.skills == "shuffled":
            skills = source.shuffle(skills, some, stream("shuffle", args.seed, run.update, run.ranks.rank))
    hints = [""] * len(trajectories)
    for i, skill in zip(chosen, skills, strict=True):
        hints[i] = skill
    return Told(hints, source.over_ranks(run.ranks, cost))


def run(args: SeedArgs, resume: bool = False) -> Path:
    """Train; returns the folder."""
    from seedbench.train.loop import train

    told = None if args.skills == "none" else hindsight
    return train(args, advantages=advantages, objective=objective, hindsight=told, resume=resume)
