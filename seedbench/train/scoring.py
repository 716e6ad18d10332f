"""Log-probabilities of what was sampled: by the reference model, and by the teacher that is told a hint."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from seedbench.core import SeedbenchError
from seedbench.policy import adapter
from seedbench.policy.fit import fit
from seedbench.train.rows import Row
from seedbench.train.sampler import rescore

if TYPE_CHECKING:
    from seedbench.train.loop import Run, Told


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
    """Score the same sampled tokens after the prompt with the trajectory's hint in its slot, with the batch's frozen
    weights. A row that does not fit with its hint, even without past steps, is left untaught and counted."""
    started = time.perf_counter()
    prompts, taught, long = [], [], 0
    for row in rows:
        if hint := told.hints[row.trajectory]:
            try:
                prompts.append(_hinted(run, row, hint))
                taught.append(row)
            except SeedbenchError:
                long += 1
    scored = run.policy.logprobs(prompts, [r.completion_ids for r in taught], temperature=run.args.temperature)
    for row, values in zip(taught, scored, strict=True):
        row.logp_teacher = values
    tokens = run.ranks.sum([sum(len(r.completion_ids) for r in some) for some in (taught, rows)] + [long])
    return dict(told.figures) | {
        "coverage": tokens[0] / max(tokens[1], 1.0), "rescore_too_long": tokens[2],
        "rescore_seconds": time.perf_counter() - started,
    }  # fmt: skip


def _hinted(run: Run, row: Row, hint: str) -> tuple[int, ...]:
    """The row's prompt with `hint` in its slot, where the actor may have seen another or none; cut as the actor's is,
    but beside the tokens that are to be scored."""
    view = dataclasses.replace(row.view, hint=hint, messages=())
    return fit(run.policy, run.exam.prompt, view, run.args.max_prompt_tokens, len(row.completion_ids))[0]
