"""Skill-GRPO: GRPO whose actor reads a skill under the task line, at every step of every episode.

The loss is GRPO's, on the prompts that were played, so the old, new and reference log-probabilities all see the skill.
After SDAR (arXiv 2605.15155, main_skill_grpo), whose figures SEED's table repeats. The policy may come to lean on the
skill: the papers report it with the skill in the prompt (Skill-GRPO*) and without, and so do we:

    seedbench train skill_grpo --env alfworld --model tiny --out runs/skill_grpo
    seedbench eval --agent runs/skill_grpo --env alfworld --skill static --out runs/skill_grpo_with
    seedbench eval --agent runs/skill_grpo --env alfworld --out runs/skill_grpo_without

--skill hindsight has the policy write the skills itself, as SEED's analyzer does: of each kind of task in a batch, one
episode is analysed after the update's play, a success where there is one, and what it says is read by every later
episode of that kind until a newer one takes its place. A failure's skill never replaces a success's. The first batch
has none. The skills so far are in every checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seedbench import record
from seedbench.baselines.grpo import advantages, objective
from seedbench.core import Trajectory
from seedbench.train.hints import SkillGrpoArgs

if TYPE_CHECKING:
    from seedbench.train.checkpoint import Memory
    from seedbench.train.loop import Context, Hindsight, Run, Told


def remember(memory: Memory, run: Run, trajectories: Sequence[Trajectory]) -> Told:
    """Analyse one episode a kind; keep, by kind, whether it was won and what it says. No teacher is told anything."""
    from seedbench.baselines.skills.hindsight import analyse, over_ranks
    from seedbench.train.loop import Told

    args = run.args
    assert isinstance(args, SkillGrpoArgs)
    chosen: dict[str, Trajectory] = {}
    for t in trajectories:
        known = memory[t.task.kind][0] if t.task.kind in memory else False
        better = t.task.kind not in chosen or (t.success and not chosen[t.task.kind].success)
        if t.ended != "error" and better and (t.success or not known):
            chosen[t.task.kind] = t
    skills, cost = analyse(run.policy, list(chosen.values()), args.analysis_tokens)
    news = [(t.task.kind, t.success, skill) for t, skill in zip(chosen.values(), skills, strict=True) if skill]
    for kind, success, skill in sorted(run.ranks.gather(news), key=lambda one: one[1]):
        memory[kind] = (success, skill)
    return Told([""] * len(trajectories), over_ranks(run.ranks, cost) | {"skills_known": float(len(memory))})


def context_of(args: SkillGrpoArgs, memory: Memory) -> tuple[Context, Hindsight | None]:
    """What the actor is told of a task, and what is done after each batch. Raises SeedbenchError for no such file."""
    if args.skill == "hindsight":
        return lambda task: memory[task.kind][1] if task.kind in memory else "", partial(remember, memory)
    if args.skill == "static":
        from seedbench.baselines.skills.bank import static

        return static, None
    text = "" if args.skill == "none" else record.read_text(Path(args.skill), "--skill").strip()
    return lambda task: text, None


def run(args: SkillGrpoArgs, resume: bool = False) -> Path:
    """Train; returns the folder."""
    from seedbench.train.loop import train

    memory: Memory = {}
    context, hindsight = context_of(args, memory)
    return train(args, advantages=advantages, objective=objective, context=context, hindsight=hindsight, memory=memory,
                 resume=resume)  # fmt: skip
