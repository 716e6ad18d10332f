"""Prompts that are too long for a model lose their oldest past steps: never system, task, lesson, observation, actions.

A cut is a function of the view, the prompt, the tokenizer and the limit alone, so an audit that knows the limit makes
the same one. `prompt_sha` stays the digest of the whole rendering: it says what the environment showed, and
tokens.jsonl.gz what the model was fed of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from seedbench.core import Message, SeedbenchError, View
from seedbench.prompts import Prompt


class Encoder(Protocol):
    """What fitting needs of a policy."""

    context: int | None

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]: ...


def limit(context: int | None, most: int | None, new: int) -> int | None:
    """Tokens that a prompt may have: `most`, and what the model's context leaves beside `new` tokens; None: any."""
    bounds = [n for n in (most, None if context is None else context - new) if n is not None]
    return min(bounds) if bounds else None


def fit(policy: Encoder, prompt: Prompt, view: View, most: int | None, new: int) -> tuple[tuple[int, ...], int]:
    """Ids of `view`'s prompt within `limit(policy.context, most, new)`, and how many past steps were left out for it.

    As many of the newest past steps stay as fit (found by halving, as more steps make a longer prompt). Raises
    SeedbenchError where the prompt is too long without any.
    """
    whole = policy.encode(view.messages or prompt.render(view))
    bound = limit(policy.context, most, new)
    if bound is None or len(whole) <= bound:
        return whole, 0
    shown = len(view.history) if prompt.history < 0 else min(prompt.history, len(view.history))

    def encoded(steps: int) -> tuple[int, ...]:
        return policy.encode(dataclasses.replace(prompt, history=steps).render(view))

    best = encoded(0) if shown else whole
    if len(best) > bound:
        raise SeedbenchError(_too_long(len(best), bound, policy.context, most, new))
    fits, fails = 0, shown
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if len(ids := encoded(middle)) <= bound:
            fits, best = middle, ids
        else:
            fails = middle
    return best, shown - fits


def _too_long(size: int, bound: int, context: int | None, most: int | None, new: int) -> str:
    if most is not None and bound == most:
        return f"The prompt has {size} tokens without any past step, and --max-prompt-tokens is {most}: raise it."
    return (
        f"The prompt has {size} tokens without any past step and {new} more are asked for, but the model's context is "
        f"{context}; lower --max-new-tokens, or use a model with a longer context."
    )
