"""What supervised fine-tuning learns from: the expert's play of train tasks, as rows of token ids.

Every episode goes through the same play() and prompts as a policy's. A row is a prompt, encoded by the policy, and the
reply to it; the loss is on the reply and its end of turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from seedbench.agents.scripted import say
from seedbench.baselines.skills import analysis
from seedbench.core import Agent, Message, Reply, SeedbenchError, Task, TextEnv, Trajectory, View, stream
from seedbench.exam import Exam
from seedbench.policy.hf import HFPolicy
from seedbench.rollout import Episode, play
from seedbench.train.sft import SftArgs

Row = dict[str, list[int]]  # input_ids, and completion_mask: 1 on the reply


class Stumbling(Agent):
    """The expert, in whose place a random action is played at times: at most a `share` of an episode's steps. Half of
    them are legal in another of the episodes under way, and seldom in this one: a learner has to know refusals too."""

    name = "stumbling"
    needs_env: ClassVar[bool] = True

    def __init__(self, share: float):
        self.share = share

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        replies: list[Reply | Exception] = []
        for view, env in zip(views, envs or (), strict=True):
            assert env.playing is not None, "play() says what is played"
            if self.stumbles(view, *env.playing):
                rng = np.random.default_rng(view.stream)
                other = env if rng.random() < 0.5 else (envs or ())[int(rng.integers(len(views)))]
                replies.append(say(env, other.sample(rng)))
            else:
                replies.append(say(env, self.right(view, env) or ""))
        return replies

    def right(self, view: View, env: TextEnv) -> str | None:
        """The action that is learned."""
        return env.expert()

    def stumbles(self, view: View, task: Task, trial: int) -> bool:
        """Whether the action at `view` is a random one."""
        chance = self.share * np.random.default_rng(stream("stumble", task.id, trial)).random()
        return bool(np.random.default_rng(stream("stumbles", view.stream)).random() < chance)


class Informed(Stumbling):
    """The same of an expert that was told the anchors and goes by them."""

    name = "informed"

    def right(self, view: View, env: TextEnv) -> str | None:
        return env.informed()


def rows(exam: Exam, policy: HFPolicy, args: SftArgs) -> Iterator[Row]:
    """Rows of the chosen train tasks. With `lessons` also one a lesson (episode -> lesson), and those of a second
    episode with that lesson in the prompt; with `evidence` those of another with what SSPO's teacher would be told."""
    pool = exam.tasks["train"]
    chosen = np.random.default_rng(stream("demonstrations", args.seed)).permutation(len(pool))[: args.demonstrations]
    games = [Episode(pool[int(i)], args.seed, trial) for i in sorted(chosen) for trial in range(args.trials)]
    agent, again, rule = Stumbling(args.stumble), list[Episode](), exam.make()
    reader, read = Informed(args.stumble), list[Episode]()
    for trajectory in play(exam.make, games, agent, slots=8, prompt=exam.prompt):
        yield from steps(trajectory, policy, agent)
        if args.evidence:
            told = informed(rule, trajectory.task, pool, stream("informed", args.seed, len(read)))
            read.append(Episode(trajectory.task, args.seed, trajectory.trial + 2 * args.trials, told))
        if not args.lessons:
            continue
        if (lesson := rule.lesson(trajectory)) is None:
            raise SeedbenchError(f"--lessons: {exam.env_id} has no rule that writes lessons; leave the option out.")
        yield row(policy, analysis.messages(trajectory), analysis.dumps(lesson))
        again.append(Episode(trajectory.task, args.seed, trajectory.trial + args.trials, lesson.skill))
    for who, episodes in ((agent, again), (reader, read)):
        for trajectory in play(exam.make, episodes, who, slots=8, prompt=exam.prompt):
            yield from steps(trajectory, policy, who)


def informed(env: TextEnv, task: Task, pool: Sequence[Task], seed: int) -> str:
    """What SSPO's teacher would be told of an episode of `task`: its evidence, and every other time the answer of
    another task as the one that was wrong. Raises SeedbenchError where the environment has no evidence."""
    from seedbench.baselines.anchors.fair import of_task
    from seedbench.baselines.sspo import privileged
    from seedbench.train.hints import SspoArgs

    if not (anchors := of_task(env, task)):
        raise SeedbenchError(f"--evidence: {task.id} comes with no evidence; leave the option out.")
    rng = np.random.default_rng(seed)
    others = [answer for answer in env.answers(pool[int(rng.integers(len(pool)))]) if answer not in env.answers(task)]
    return privileged(anchors, others[0] if others and rng.random() < 0.5 else None, SspoArgs())


def steps(trajectory: Trajectory, policy: HFPolicy, agent: Stumbling) -> Iterator[Row]:
    """The expert's steps of an episode; none of one that it lost by itself."""
    if trajectory.ended == "error" or not (trajectory.success or agent.share):
        return
    for step in trajectory.steps:
        if step.reply.text and not agent.stumbles(step.view, trajectory.task, trajectory.trial):
            yield row(policy, step.view.messages, step.reply.text)


def written(file: Path, policy: HFPolicy) -> Iterator[Row]:
    """Rows of a file of JSON lines with messages and completion. Raises SeedbenchError where one is not like that."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # JSON may hold other line breaks as they are
    except (OSError, UnicodeDecodeError) as error:
        raise SeedbenchError(f"--examples {file} cannot be read ({error}): name a file of JSON lines.") from error
    for number, text in enumerate(lines, 1):
        if not text:
            continue
        try:
            line = json.loads(text)
            said = [(m["role"], m["content"]) for m in line["messages"]]
            whole = all(isinstance(x, str) for pair in [*said, (line["completion"],)] for x in pair) and bool(said)
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise SeedbenchError(
                f"--examples {file}, line {number}: not an object with messages (role, content) and completion; "
                "`seedbench skills export` writes such lines."
            )
        yield row(policy, [{"role": role, "content": content} for role, content in said], line["completion"])


def row(policy: HFPolicy, messages: Sequence[Message], text: str) -> Row:
    """A prompt and the reply to it."""
    prompt = list(policy.encode(messages))
    reply = [*policy.tokenizer.encode(policy.plain(text), add_special_tokens=False), policy.tokenizer.eos_token_id]
    return {"input_ids": prompt + reply, "completion_mask": [0] * len(prompt) + [1] * len(reply)}


def copying(policy: HFPolicy, count: int, seed: int, length: int = 128) -> list[Row]:
    """`count` rows of random tokens: some first ones, then spans of those, each before a token of its own. The loss is
    on what follows the first token of a span, which nothing but looking it up can tell."""
    known = np.setdiff1d(np.arange(len(policy.tokenizer)), policy.tokenizer.all_special_ids)
    rng = np.random.default_rng(stream("copying", seed))
    return [_copies(known, length, rng) for _ in range(count)]


def _copies(known: np.ndarray, length: int, rng: np.random.Generator) -> Row:
    few = rng.choice(known, size=int(rng.integers(4, 200)))  # half the rows hold few tokens, which then come often
    ids = rng.choice(few if rng.random() < 0.5 else known, size=int(rng.integers(12, length * 9 // 16))).tolist()
    source, mask = len(ids), [0] * len(ids)
    while len(ids) < length:
        size = int(rng.integers(2, 12))
        start = int(rng.integers(0, source - size))
        ids += [*ids[start : start + size], int(rng.choice(known))]
        mask += [0, *[1] * (size - 1), 0]
    return {"input_ids": ids[:length], "completion_mask": mask[:length]}
