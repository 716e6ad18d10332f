"""The floors and the ceiling of every board: an agent that says nothing, one that moves at random, and our oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from seedbench.core import Agent, Reply, TextEnv, View


class Null(Agent):
    """Says nothing at all: what a task pays for showing up."""

    name = "null"

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        return [Reply("", finish_reason="stop") for _ in views]


class Random(Agent):
    """A legal action, uniformly from what the environment offers, drawn from the episode's own stream."""

    name = "random"
    needs_env: ClassVar[bool] = True

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        assert envs is not None
        return [say(env, env.sample(np.random.default_rng(view.stream))) for view, env in zip(views, envs, strict=True)]


class Expert(Agent):
    """The environment's own oracle. It reads the whole state, so it is a ceiling, not a contender."""

    name = "expert"
    needs_env: ClassVar[bool] = True

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        assert envs is not None
        return [say(env, env.expert() or "") for env in envs]


def say(env: TextEnv, action: str) -> Reply:
    """The reply whose text the environment's parser reads back as `action`."""
    return Reply(env.PROMPT.reply(action) if action else "", finish_reason="stop")


AGENTS: dict[str, type[Agent]] = {agent.name: agent for agent in (Null, Random, Expert)}
