"""From an episode to the prompt of its analysis, and from a lesson to the text that answers it.

The same words ask a policy that analyses its own episodes (SEED, arXiv 2607.14777, section 3.3), an external analyzer,
and teach a tiny policy to answer. What is asked for, and that only the outcome's label is told of the reward, is the
paper's; the words are ours.
"""

from __future__ import annotations

import json

from seedbench.core import Lesson, Message, Trajectory

ASK = (
    "Below is one episode of an agent. Answer with JSON alone: "
    '{"episode_summary": "what happened", "episode_skill": "the lesson"}. '
    "The lesson is one short piece of advice for whoever plays such a task next, in general words: no numbers, and no "
    "answer. After a success it says what decided it and in which order; after a failure, the first mistake that "
    "mattered and what to do instead."
)


def messages(trajectory: Trajectory) -> list[Message]:
    """One user message: what is asked, the task, how it ended, and every step with its observation and reply.

    Raises ValueError for an episode without a step, which there is nothing to say about.
    """
    if not trajectory.steps:
        raise ValueError("the episode has no step")
    lines = [ASK, "", f"Task: {trajectory.steps[0].view.goal}", f"Outcome: {outcome(trajectory)}"]
    for n, step in enumerate(trajectory.steps, 1):
        refused = "" if step.format_valid and step.action_valid else "\n(not accepted)"
        lines.append(f"\nStep {n}\n{step.view.observation}\n> {step.reply.text.strip()}{refused}")
    return [{"role": "user", "content": "\n".join(lines)}]


def outcome(trajectory: Trajectory) -> str:
    """success, failure, or unknown where the episode crashed."""
    return "unknown" if trajectory.ended == "error" else "success" if trajectory.success else "failure"


def dumps(lesson: Lesson) -> str:
    """The answer that says `lesson`: compact JSON with the two keys that were asked for."""
    return json.dumps(
        {"episode_summary": lesson.summary, "episode_skill": lesson.skill}, ensure_ascii=False, separators=(",", ":")
    )
