"""A small environment for tests of the core: count to a target, with faults on demand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from seedbench.core import Info, InfrastructureError, Mode, Parsed, Task, TextEnv
from seedbench.prompts import Prompt, parse_tagged


class Counter(TextEnv):
    """Task `to-N` is won when the count is N. `fault-reset`, `fault-step` and `gone` raise where they say."""

    PROMPT = Prompt("toy", "Count.", 3)
    max_steps = 6
    data = "mini"
    made = 0

    def __init__(self) -> None:
        Counter.made += 1
        self.rng_draws: list[int] = []

    def tasks(self, split: str) -> tuple[Task, ...]:
        return tuple(Task(f"to-{n}", "toy/Counter-v0", split, "odd" if n % 2 else "even") for n in range(1, 6))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        assert options is not None
        self.task, self.count, self.steps = options["task"], 0, 0
        if self.task == "fault-reset":
            raise RuntimeError("broken at reset")
        if self.task == "gone":
            raise InfrastructureError("the server is gone")
        self.target = int(self.task.removeprefix("to-")) if self.task.startswith("to-") else 99
        return "count: 0", self._info(True)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:  # type: ignore[override]
        if self.task == "fault-step" and self.steps == 1:
            raise ValueError("broken at step")
        self.steps += 1
        valid = action in ("up", "down")
        self.count += {"up": 1, "down": -1}.get(action, 0)
        won = self.count == self.target
        return f"count: {self.count}", float(won), won, not won and self.steps >= self.max_steps, self._info(valid)

    def _info(self, valid: bool) -> Info:
        won = self.count == self.target
        return Info(
            goal=f"reach {self.target}",
            kind="toy",
            admissible=["down", "up"],
            is_action_valid=valid,
            invalid_reason="" if valid else "no such action",
            won=won,
            score=float(won),
            steps=self.steps,
        )

    def expert(self) -> str | None:
        return "up" if self.count < self.target else "down"

    def sample(self, rng: np.random.Generator) -> str:
        return str(rng.choice(["down", "up"]))

    def clone(self) -> Counter:
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other

    def digest(self) -> str:
        return "toy-1"

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        return parse_tagged(text, mode)


def task(name: str, split: str = "seen") -> Task:
    return Task(name, "toy/Counter-v0", split, "toy")
