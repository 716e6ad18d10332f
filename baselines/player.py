"""A policy that plays the training split as training does: what measurements before an experiment share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seedbench.agents.local import LocalAgent
from seedbench.core import Sampling, SeedbenchError, Task, Trajectory, stream
from seedbench.exam import Config, plan
from seedbench.policy.fresh import load_policy
from seedbench.rollout import Episode, play
from seedbench.train.args import Args


class Player:
    """The exam and the policy that `args` name, in fp32, sampling at args.temperature."""

    def __init__(self, args: Args, split: str = "train"):
        exams = plan(Config("train", env=args.env, split=split, data=args.data, preset=args.preset,
                            max_steps=args.max_steps, history=args.history, batch=args.slots))  # fmt: skip
        if len(exams) != 1 or len(exams[0].tasks) != 1:
            raise SeedbenchError("One environment and one split are measured at a time: name one with --env, --split.")
        self.args, self.exam = args, exams[0]
        self.pool = self.exam.tasks[split]
        self.policy = load_policy(args.model, args.env, seed=args.seed, device=args.device, dtype="float32",
                                  threads=args.threads, thinking=args.thinking)  # fmt: skip
        self.policy.token_budget = args.token_budget
        self.agent = LocalAgent("policy", self.policy, batch=args.slots, max_prompt_tokens=args.max_prompt_tokens)
        self.agent.sampling, self.agent.prompt = Sampling(args.temperature, 1.0, args.max_new_tokens), self.exam.prompt

    def draw(self, n: int, *name: int | str) -> list[Task]:
        """`n` different tasks of the split, drawn by the stream that `name` names. Raises SeedbenchError."""
        if n > len(self.pool):
            raise SeedbenchError(f"--tasks is {n}, but the split has {len(self.pool)} tasks: give no more than those.")
        rng = np.random.default_rng(stream(*name))
        return [self.pool[int(i)] for i in rng.choice(len(self.pool), n, replace=False)]

    def play(self, episodes: Sequence[Episode]) -> list[Trajectory]:
        """The trajectories, in the order of the episodes, of which no two may share a task and a trial."""
        place = {(e.task.id, e.trial): i for i, e in enumerate(episodes)}
        assert len(place) == len(episodes)
        found = play(self.exam.make, episodes, self.agent, slots=self.args.slots, prompt=self.exam.prompt)
        return sorted(found, key=lambda t: place[t.task.id, t.trial])
