"""From trajectories to what is trained on: one row an environment step, as in the papers' code.

A row is a prompt and the completion that was sampled for it, as token ids; nothing is ever encoded again. Only
completion tokens exist for the loss, so there are no masks: a `Batch` packs the N completion tokens of its rows, one
after another, into flat (N,) tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.core import Trajectory, View
from seedbench.policy.packing import pack
from seedbench.policy.prefill import by_budget

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Row:
    """One environment step of a trajectory."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logp_sampled: tuple[float, ...]  # as drawn, by the sampler
    view: View  # what the policy saw
    group: int  # which task of the batch
    trajectory: int  # which episode of the batch
    step: int
    reward: float  # of the whole episode, scaled
    correct: bool  # the episode was won
    format_valid: bool
    advantage: float = 0.0
    logp_old: Sequence[float] = ()
    logp_ref: Sequence[float] = ()
    logp_teacher: Sequence[float] = ()  # empty where hindsight has nothing to say
    last: bool = False  # the episode's last step


def earned(trajectory: Trajectory, reward: str, scale: float) -> float:
    """What an episode is worth in training."""
    return scale * (float(trajectory.success) if reward == "success" else trajectory.score)


def rows_of(trajectories: Sequence[Trajectory], groups: Sequence[int], reward: str, scale: float) -> list[Row]:
    """Rows of every trajectory that ended; one whose environment or agent crashed teaches nothing and has none."""
    rows = []
    for i, (trajectory, group) in enumerate(zip(trajectories, groups, strict=True)):
        if trajectory.ended == "error":
            continue
        worth = earned(trajectory, reward, scale)
        for t, step in enumerate(trajectory.steps):
            tokens = step.reply.tokens
            assert tokens is not None, "a policy's replies carry their tokens"
            rows.append(
                Row(tokens.prompt_ids, tokens.completion_ids, tokens.logprobs, step.view, group, i, t,
                    worth, trajectory.success, step.format_valid, last=t == len(trajectory.steps) - 1)
            )  # fmt: skip
            rows[-1].logp_old = tokens.logprobs
    return rows


@dataclass
class Batch:
    """Rows of one forward and backward pass. Tensors are (N,), N the completion tokens of all rows in order."""

    rows: list[Row]
    row: Tensor  # which row a token belongs to
    advantage: Tensor
    logp_old: Tensor
    logp_sampled: Tensor
    logp_ref: Tensor | None
    logp_teacher: Tensor  # 0 where `taught` is False
    taught: Tensor  # bool: hindsight has scored this token
    total: int  # completion tokens of the whole optimizer step, over all passes and ranks: what a token-mean divides by
    total_taught: int  # those of them with `taught`
    update: int = 0  # how many updates came before

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        return [row.prompt_ids for row in self.rows]

    @property
    def completions(self) -> list[tuple[int, ...]]:
        return [row.completion_ids for row in self.rows]

    def by_row(self, values: Tensor) -> Tensor:
        """(N,) summed over each row's tokens: (R,)."""
        return values.new_zeros(len(self.rows)).index_add(0, self.row, values)


def batch_of(rows: list[Row], total: int, total_taught: int, device: Any, update: int = 0) -> Batch:
    """Pack rows. `total` and `total_taught` are the optimizer step's."""
    import torch

    sizes = [len(row.completion_ids) for row in rows]

    def packed(values: list[Sequence[float]]) -> Tensor:
        return torch.tensor([x for v in values for x in v], dtype=torch.float32, device=device)

    spread = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(sizes)).to(device)
    taught = torch.tensor([bool(row.logp_teacher) for row in rows], device=device)[spread]
    return Batch(
        rows,
        spread,
        torch.tensor([row.advantage for row in rows], dtype=torch.float32, device=device)[spread],
        packed([row.logp_old for row in rows]),
        packed([row.logp_sampled for row in rows]),
        packed([row.logp_ref for row in rows]) if rows and rows[0].logp_ref else None,
        packed([row.logp_teacher or (0.0,) * n for row, n in zip(rows, sizes, strict=True)]),
        taught,
        total,
        total_taught,
        update,
    )


def deal(count: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) which of `parts` mini-batches each row goes to; sizes differ by one at most, so that no left-over gets
    an optimizer step of its own. Drawn over the rows of all ranks alike."""
    part = np.empty(count, np.int64)
    part[rng.permutation(count)] = np.arange(count) % parts
    return part


def passes(rows: Sequence[Row], budget: int, packed: bool = False) -> Iterator[list[Row]]:
    """Rows of alike length together, at most `budget` tokens a pass, padding counted; for the packed layout, whole
    trajectories of alike length, as they are when packed."""
    if packed:
        yield from _trajectories(rows, budget)
        return
    ranked = sorted(rows, key=lambda row: -len(row.prompt_ids) - len(row.completion_ids))
    for part in by_budget([len(row.prompt_ids) + len(row.completion_ids) for row in ranked], budget):
        yield ranked[part]


def _trajectories(rows: Sequence[Row], budget: int) -> Iterator[list[Row]]:
    own: dict[int, list[Row]] = {}
    for row in rows:
        own.setdefault(row.trajectory, []).append(row)
    ranked = []
    for some in own.values():
        packs = pack([r.prompt_ids for r in some], [r.completion_ids for r in some])
        ranked.append((max(len(p.ids) for p in packs), len(packs), some))
    held: list[Row] = []
    longest = count = 0
    for length, packs_, some in sorted(ranked, key=lambda one: -one[0]):
        if held and max(longest, length) * (count + packs_) > budget:
            yield held
            held, longest, count = [], 0, 0
        held, longest, count = held + some, max(longest, length), count + packs_
    if held:
        yield held
