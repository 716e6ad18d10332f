"""Log-probabilities of what was sampled: by the reference model, and by the teacher that is told a hint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seedbench.core import SeedbenchError
from seedbench.policy import adapter
from seedbench.policy.fit import fit
from seedbench.policy.hf import HFPolicy
from seedbench.prompts import Prompt
from seedbench.train.args import Args
from seedbench.train.rows import Row
from seedbench.train.sampler import rescore

if TYPE_CHECKING:
    from seedbench.train.loop import Run, Told

Scores = Sequence[Sequence[float]]  # log-probabilities of each row's tokens; () for a row that is not scored


def score(run: Run, rows: list[Row]) -> dict[str, float]:
    """The reference model's log-probabilities, where there is one; logp_old is what the policy itself recorded as it
    sampled, or where an engine did, what the policy makes of it: returned is how far those two are apart."""
    with run.whole():
        apart = rescore(rows, run.sampler, run.policy, run.args.temperature)
    if not run.args.kl:
        return apart
    reference = run.reference or run.policy
    with run.whole(reference), adapter.without_adapter(run.policy.model):
        scored = reference.logprobs(
            [r.prompt_ids for r in rows], [r.completion_ids for r in rows], temperature=run.args.temperature
        )
    for row, values in zip(rows, scored, strict=True):
        row.logp_ref = values
    return apart


def teach(run: Run, rows: list[Row], told: Told) -> dict[str, float]:
    """Score the same sampled tokens after the prompt with the trajectory's hint in its slot, with the teacher's frozen
    weights. A row that does not fit with its hint, even without past steps, is left untaught and counted."""
    hints = heard(run.args, rows, told)
    for row, values in zip(rows, hinted(run.policy, run.exam.prompt, run.args, rows, hints), strict=True):
        row.logp_teacher = values
    long = sum(hint is not None and not row.logp_teacher for row, hint in zip(rows, hints, strict=True))
    taught = [r for r in rows if r.logp_teacher]
    tokens = run.ranks.sum([sum(len(r.completion_ids) for r in some) for some in (taught, rows)] + [long])
    return dict(told.figures) | {"coverage": tokens[0] / max(tokens[1], 1.0), "rescore_too_long": tokens[2]}


def heard(args: Args, rows: Sequence[Row], told: Told) -> list[str | None]:
    """Each row's hint, None where it is not to be scored again."""
    given = [told.hints[row.trajectory] if args.hears(row.advantage) else None for row in rows]
    return [hint if hint or told.empty else None for hint in given]


def hinted(policy: HFPolicy, prompt: Prompt, args: Args, rows: Sequence[Row], hints: Sequence[str | None]) -> Scores:
    """Each row's own tokens scored after its prompt with its hint in the slot, where the actor may have seen another or
    none; cut as the actor's prompt is, but beside the tokens that are scored. () where the hint is None, or where the
    prompt is too long with it even without past steps."""
    prompts, taught = [], []
    for i, (row, hint) in enumerate(zip(rows, hints, strict=True)):
        if hint is not None:
            view = dataclasses.replace(row.view, hint=hint, messages=())
            try:
                prompts.append(fit(policy, prompt, view, args.max_prompt_tokens, len(row.completion_ids))[0])
                taught.append(i)
            except SeedbenchError:
                continue
    scored = policy.logprobs(prompts, [rows[i].completion_ids for i in taught], temperature=args.temperature)
    found: list[Sequence[float]] = [()] * len(rows)
    for i, values in zip(taught, scored, strict=True):
        found[i] = values
    return found
