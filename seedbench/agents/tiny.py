"""`tiny`: the policies that ship with seedbench, one an environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from seedbench.agents.local import Each, LocalAgent
from seedbench.core import SeedbenchError, short_name
from seedbench.policy.fresh import every, shipped


class Tiny(Each):
    """Answers with the policy of the environment that is played."""

    name = "tiny"

    def __init__(self, **options: Any):
        """`options` are those of LocalAgent. Raises SeedbenchError where none ships."""
        ids = {short_name(env_id): env_id for env_id, spec in gym.registry.items() if spec.namespace == "seedbench"}
        super().__init__({ids[env]: LocalAgent(str(shipped(env)), **options) for env in every()})
        if not self.agents:
            raise SeedbenchError("No tiny policy ships: train one with `seedbench train sft --model fresh`.")

    def describe(self) -> dict[str, Any]:
        """What the policies have in common, and of each what it has for itself."""
        each = {short_name(env): agent.policy.describe() for env, agent in self.agents.items()}
        first = next(iter(each.values()))
        shared = {k: v for k, v in first.items() if all(e[k] == v for e in each.values())}
        own = {env: {k: v for k, v in e.items() if k not in shared} for env, e in each.items()}
        return {"spec": self.name, "kind": "local", **shared, "policies": own}
