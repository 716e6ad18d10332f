"""`tiny`: the policies that ship with seedbench, one an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbench.agents.local import LocalAgent
from seedbench.core import Agent, Reply, SeedbenchError, TextEnv, View
from seedbench.policy.fresh import every, shipped


class Tiny(Agent):
    """Answers with the policy of the environment that is played; each is loaded when it is first needed."""

    name = "tiny"

    def __init__(self, **options: Any):
        """`options` are those of LocalAgent. Raises SeedbenchError where none ships."""
        self.options = options
        self.agents = {env: LocalAgent(str(shipped(env)), **options) for env in every()}
        if not self.agents:
            raise SeedbenchError("No tiny policy ships: train one with `seedbench train sft --model fresh`.")

    def of(self, env_id: str) -> LocalAgent:
        """The agent that plays a Gymnasium id. Raises SeedbenchError where no policy ships for it."""
        short = env_id.removeprefix("seedbench/").partition("-v")[0].lower()
        if short not in self.agents:
            raise SeedbenchError(f"No tiny policy ships for {short}: choose --env {', '.join(self.agents)}.")
        return self.agents[short]

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        agent = self.of(self.env)
        agent.sampling = self.sampling
        return agent.act(views, envs)

    def describe(self) -> dict[str, Any]:
        """What the policies have in common, and of each what it has for itself."""
        each = {env: agent.policy.describe() for env, agent in self.agents.items()}
        first = next(iter(each.values()))
        shared = {k: v for k, v in first.items() if all(e[k] == v for e in each.values())}
        own = {env: {k: v for k, v in e.items() if k not in shared} for env, e in each.items()}
        return {"spec": self.name, "kind": "local", **shared, "policies": own}
