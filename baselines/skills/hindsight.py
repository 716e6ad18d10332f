"""Skills for episodes that were just played: by the policy itself, by rule, from the bank, or mixed up as a control."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from seedbench.baselines.skills.analysis import messages
from seedbench.baselines.skills.parse import parse
from seedbench.core import SeedbenchError, TextEnv, Trajectory

if TYPE_CHECKING:
    from seedbench.policy.hf import HFPolicy
    from seedbench.train.ranks import Ranks

Figures = dict[str, float]  # counts, to be added up over ranks, and seconds


def analyse(policy: HFPolicy, trajectories: Sequence[Trajectory], max_new_tokens: int) -> tuple[list[str], Figures]:
    """The policy's own skill for each episode, decoded greedily; "" where its answer holds none that can be used.

    An episode too long for the model's context has none either (`unanswered`). No text is asked for twice.
    """
    started = time.perf_counter()
    prompts = [policy.encode(messages(t)) for t in trajectories]
    answers = policy.generate(prompts, streams=[0] * len(prompts), temperature=0, max_new_tokens=max_new_tokens)
    skills, written, unanswered = [], 0, 0
    for answer in answers:
        if isinstance(answer, SeedbenchError):
            unanswered += 1
            skills.append("")
            continue
        written += len(answer.completion_ids)
        lesson = parse(policy.decode(answer.completion_ids))
        skills.append(lesson.skill if lesson else "")
    return skills, {
        "analysed": len(prompts), "parsed": sum(map(bool, skills)), "unanswered": unanswered,
        "analyzer_tokens": written, "analyzer_prompt_tokens": sum(map(len, prompts)),
        "analyzer_seconds": time.perf_counter() - started,
    }  # fmt: skip


def over_ranks(ranks: Ranks, cost: Figures) -> Figures:
    """What `analyse` counted on every rank, with the share that could be parsed; nothing where nothing was analysed."""
    if not cost:
        return {}
    total = dict(zip(cost, ranks.sum(list(cost.values())), strict=True))
    total["parse_rate"] = total.pop("parsed") / max(total["analysed"], 1.0)
    total["analyzer_seconds"] /= ranks.world
    return total


def by_rule(env: TextEnv, trajectories: Sequence[Trajectory]) -> list[str]:
    """The environment's own lesson on each episode. Raises SeedbenchError where it has no rule."""
    if type(env).lesson is TextEnv.lesson:
        name = type(env).__name__
        raise SeedbenchError(f"{name} has no rule-based lessons: take --skills own or static, or another --env.")
    lessons = [env.lesson(t) for t in trajectories]
    return [lesson.skill if lesson else "" for lesson in lessons]


def shuffle(skills: Sequence[str], trajectories: Sequence[Trajectory], seed: int) -> list[str]:
    """The same skills dealt to episodes of other tasks: a permutation of those there are, drawn by `seed`.

    Skills lie task by task and each moves on by the largest task's count, which leads out of every task that holds at
    most half of them; of a task that holds more, some stay with its episodes.
    """
    rng = np.random.default_rng(seed)
    lot = {t.task.id: float(rng.random()) for t in trajectories}
    order = sorted((i for i in rng.permutation(len(skills)).tolist() if skills[i]),
                   key=lambda i: (lot[trajectories[i].task.id], trajectories[i].task.id))  # fmt: skip
    sizes = [len(list(same)) for _, same in groupby(order, key=lambda i: trajectories[i].task.id)]
    result = [""] * len(skills)
    for k, i in enumerate(order):
        result[order[(k + max(sizes)) % len(order)]] = skills[i]
    return result
