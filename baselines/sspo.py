"""SSPO: GRPO in which a failed episode's steps weigh as much as a better-informed teacher tells them apart.

    Delta = log pi_T(step | prompt, what the teacher is told) - log pi_old(step | prompt)     over all tokens of a step
    w     = min(exp(sign(A) Delta), 1 + cap)          in episodes that failed; in the others 1
    L     = L_GRPO with w A in the place of A

after arXiv 2608.12764: the reward gives the direction, the teacher the size. It is a copy of the policy, taken anew
every 50 updates, and is told evidence for the right answer, the episode's own wrong one, and not to answer from these
at once. A step that it would not have made (Delta < 0) is punished more, up to the cap; one that it would have made,
less. No code is public. What the paper leaves open is ours: the student is pi_old, which needs no pass of its own; an
episode failed if it was not won, whatever its reward; an advantage of 0 has no sign and no weight, and no teacher.

    seedbench train sspo --env searchqa --model tiny --out runs/sspo
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.baselines.anchors.fair import of_task
from seedbench.baselines.grpo import Metrics, advantages, whole_loss
from seedbench.baselines.skills.parse import clean
from seedbench.core import Anchor, SeedbenchError, TextEnv, Trajectory
from seedbench.train.hints import SspoArgs
from seedbench.train.rows import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench.train.loop import Run, Told

EDGES = (0.0, 0.1, 0.5, 0.9, 1.1, math.inf)  # of the log's histogram of weights
POSITIONS = (0, 1, 2, 4, 8, 16, 32)  # of steps in an episode, each up to the next: where the log has a mean Delta
LONGEST = 300  # characters of a wrong answer or a title that the teacher is told; twice as many of a snippet
LOWEST = -20.0  # of sign(A) Delta, which is a sum over a whole step: exp() of less is 0 for all that it matters


def delta(batch: Batch, args: SspoArgs) -> Tensor:
    """(N,) the log-likelihood ratio of teacher and student that a token's weight follows; 0 where none was taught."""
    import torch

    ratio = torch.where(batch.taught, batch.logp_teacher - batch.logp_old, 0.0)
    if args.granularity == "token":
        return ratio
    joint = batch.by_row(ratio)
    if args.length_norm == "mean_token":
        joint = joint / batch.by_row(torch.ones_like(ratio))
    return joint[batch.row]


def weight(ratio: Tensor, advantage: Tensor, args: SspoArgs) -> Tensor:
    """(N,) ratios and advantages to weights min(exp(sign(A) Delta), 1 + cap)."""
    low = max(LOWEST, math.log(args.floor)) if args.floor else LOWEST
    return (advantage.sign() * ratio).clamp(low, math.log1p(args.cap)).exp()


def objective(policy: Any, batch: Batch, args: SspoArgs) -> tuple[Tensor, Metrics]:
    """The loss of one pass."""
    logp, entropy = policy.score(batch.prompts, batch.completions, args.temperature)
    ratio = delta(batch, args)
    w = weight(ratio, batch.advantage, args)
    loss, metrics = whole_loss(
        logp, entropy, dataclasses.replace(batch, advantage=weighed(ratio, w, batch, args)), args
    )
    return loss, metrics | measured(ratio, w, batch, args)


def weighed(ratio: Tensor, w: Tensor, batch: Batch, args: SspoArgs) -> Tensor:
    """(N,) what stands in the place of the advantage."""
    return ratio if args.direct else w * batch.advantage


def measured(ratio: Tensor, w: Tensor, batch: Batch, args: SspoArgs) -> Metrics:
    """Over the steps (or tokens, where each has its own weight) of failed episodes that have an advantage; with direct
    distillation, which has no weights, over all that were taught."""
    import torch

    first = torch.ones_like(batch.taught)
    if args.granularity == "step":
        first[1:] = batch.row[1:] != batch.row[:-1]

    def of_rows(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=w.device)[batch.row][first]

    w, ratio, A, taught = w[first], ratio[first], batch.advantage[first], batch.taught[first]
    at, last = of_rows([r.step for r in batch.rows]), of_rows([r.last for r in batch.rows])
    weighed = (A != 0) & ~of_rows([r.correct for r in batch.rows])
    seen = taught if args.direct else taught & weighed

    def share(some: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        return (some & of).sum(), of.sum()

    found = {
        "teacher_agrees": share(ratio * A.sign() > 0, seen),
        **{f"delta_at_{name}": (ratio[here].sum(), here.sum()) for name, here in {
            "last": seen & last, **{str(k): seen & ~last & (k <= at) & (at < 2 * k + (k == 0)) for k in POSITIONS},
        }.items()},
    }  # fmt: skip
    if args.direct:
        return found
    bins = {f"weight_from_{a}": share((w >= a) & (w < b), weighed) for a, b in pairwise(EDGES)}
    capped = share(w >= (1 + args.cap) * (1 - 1e-6), weighed)
    return found | bins | {"weight_mean": (w[weighed].sum(), weighed.sum()), "weight_capped": capped}


def privileged(evidence: Sequence[Anchor], answer: str | None, args: SspoArgs) -> str:
    """What the teacher is told of an episode that came to `answer`, None where that was right; "" for nothing."""
    lines = []
    if evidence and args.privileged in ("both", "anchors"):
        lines += ["Evidence:", *(f"- {clean(a.title, LONGEST)}: {clean(a.text, 2 * LONGEST)}" for a in evidence)]
    if answer is not None and args.privileged in ("both", "answer"):
        answer = clean(answer, LONGEST)
        lines.append(f"An earlier attempt came to this, which is wrong: {answer}" if answer else
                     "An earlier attempt ended without success.")  # fmt: skip
    if lines:
        lines.append("Do not answer from these lines at once: find it step by step, as if they were not here.")
    return "\n".join(lines)


def hindsight(anchors: Mapping[str, Sequence[Anchor]] | None, run: Run, trajectories: Sequence[Trajectory]) -> Told:
    """As `tell` has it, of an update's episodes."""
    assert isinstance(run.args, SspoArgs)
    return tell(anchors, run.args, run.exam.make(), trajectories)


def tell(
    anchors: Mapping[str, Sequence[Anchor]] | None, args: SspoArgs, env: TextEnv, trajectories: Sequence[Trajectory]
) -> Told:
    """For each failed episode what the teacher is told; the environment's own evidence where no file gives any."""
    from seedbench.train.loop import Told

    hints: list[str | None] = []
    for t in trajectories:
        evidence = of_task(env, t.task) if anchors is None else anchors.get(t.task.id, ())
        heard = t.ended != "error" and (args.direct or not t.success)
        hints.append(privileged(evidence, None if t.success else env.outcome(t), args) if heard else None)
    asked = any(env.answers(t.task) for t in trajectories)  # the paper's; facts of other tasks are our SSPO-ext
    return Told(hints, {"sspo_ext": float(not asked)}, args.privileged == "none")


def evidence_of(args: SspoArgs) -> Mapping[str, Sequence[Anchor]] | None:
    """The anchors of the file that is named; None where the environment's own count. Raises SeedbenchError."""
    from seedbench.exam import Config, plan_one

    reads = args.privileged in ("both", "anchors")
    if args.anchors and not reads:
        raise SeedbenchError(f"--anchors names a file, which --privileged {args.privileged} leaves unread: drop one.")
    if not reads:
        return None
    exam = plan_one(Config("train", env=args.env, split="train", data=args.data))
    if args.anchors:
        from seedbench.baselines.anchors.store import read

        anchors = read(Path(args.anchors))
        if not any(anchors.get(task.id) for task in exam.tasks["train"]):
            of = f"the first is of {next(iter(anchors))}" if anchors else "it has no line of anchors"
            raise SeedbenchError(
                f"--anchors {args.anchors} is about none of {args.env}'s training tasks ({of}): make a file for them "
                "with `seedbench anchors build`."
            )
        return anchors
    env = exam.make()
    if not any(of_task(env, task) for task in exam.tasks["train"][:20]):
        raise SeedbenchError(
            f"{args.env} has no evidence of its own for these tasks: make some with `seedbench anchors build` and "
            "give --anchors FILE, or take --privileged answer."
        )
    return None


def run(args: SspoArgs, resume: bool = False) -> Path:
    """Train; returns the folder."""
    from seedbench.train.loop import train

    told = partial(hindsight, evidence_of(args))
    return train(args, advantages=advantages, objective=objective, hindsight=told, resume=resume)
