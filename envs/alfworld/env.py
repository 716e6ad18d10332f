"""`seedbench/ALFWorld-v0`: household tasks in text. An action is a command such as `open fridge 1`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from seedbench.core import Anchor, EpisodeOver, Info, Lesson, Parsed, Preset, SeedbenchError, Task, TextEnv, Trajectory
from seedbench.core import Mode as ParseMode
from seedbench.envs.alfworld import facts
from seedbench.envs.alfworld.backend import Backend, Entry, make_backend, suited
from seedbench.envs.alfworld.data import ENV_ID, Dataset, open_dataset
from seedbench.envs.alfworld.lessons import learn
from seedbench.prompts import Prompt, parse_tagged, sha256_json

ENGINE_VERSION = 1  # raise it when any output of the engine changes

ALFWORLD_PROMPT = Prompt(
    name="alfworld-v1",
    system=(
        "You are in a house and act through text. Each turn, choose one of the listed actions and give it as "
        "<action>...</action>, copied exactly. You may think first inside <think>...</think>. You can carry one object "
        "at a time, and closed things must be opened before you can see or use what is inside."
    ),
    history=5,
)


class AlfworldInfo(Info):
    """Info with the id of the task and the share of its goal that holds (see oracle.goal_progress)."""

    task: str
    goal_progress: float


class ALFWorldEnv(TextEnv):
    """One ALFWorld game an episode; reward and score are 1.0 when it is won, else 0.0.

    `data` is "mini" or a folder that holds json_2.1.1; `max_steps` defaults to 14 or 50; `split` is what `reset`
    without options draws from. `backend="fast"` is our own engine, equal to the real one byte for byte; "textworld" is
    the real one with caches and "alfworld" the untouched AlfredTWEnv, both in other processes and much slower.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it
    replay: Literal["exact", "score"] = "exact"
    PROMPT = ALFWORLD_PROMPT
    # Step limit and history of published evaluations, all sampled at 0.4: SEED's own, and the verl-agent family's.
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "seedbench": Preset(),
        "seed": Preset(max_steps=30, history=5),
        "verl-agent": Preset(max_steps=50, history=2),
    }

    def __init__(
        self,
        data: str | Path = "mini",
        max_steps: int | None = None,
        split: str = "train",
        backend: str = "fast",
        render_mode: str | None = None,
    ):
        if render_mode not in (None, "ansi"):
            raise SeedbenchError(f'ALFWorld has no render mode {render_mode!r}; use "ansi" or None.')
        self.data, self.split, self.backend, self.render_mode = str(data), split, backend, render_mode
        self.dataset: Dataset = open_dataset(self.data)
        self.max_steps = self.dataset.default_max_steps if max_steps is None else max_steps
        if self.max_steps < 1:
            raise SeedbenchError(f"max_steps is {max_steps}; give at least 1.")
        self._chosen = make_backend(backend)
        self._play: Backend | None = None  # the backend of the episode under way
        self._over = True
        self._steps = 0
        self._task_id = self._kind = self._goal = self._text = ""

    def tasks(self, split: str) -> tuple[Task, ...]:
        return self.dataset.tasks(split)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, AlfworldInfo]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        task = self.dataset.task(self.chosen_task(options))
        entry = Entry(task.id, task.kind, self.dataset.source(task.id), self.dataset)
        self.close()
        self._play, self._over = None, True
        play = suited(self._chosen, entry)
        self._text = play.reset(entry)
        self._task_id, self._kind, self._goal = task.id, task.kind, entry.source.goal
        self._play, self._steps, self._over = play, 0, False
        return self._text, self._info(True, "")

    def step(self, action: str) -> tuple[str, float, bool, bool, AlfworldInfo]:  # type: ignore[override]
        play = self._play
        if play is None or self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step().")
        self._text, accepted = play.step(action)
        self._steps += 1
        won = play.won
        truncated = not won and self._steps >= self.max_steps
        self._over = won or truncated
        reason = "" if accepted else play.why_not(action)
        return self._text, float(won), won, truncated, self._info(accepted, reason)

    def _info(self, accepted: bool, reason: str) -> AlfworldInfo:
        play = self._playing()
        won = play.won
        return {
            "goal": self._goal,
            "kind": self._kind,
            "admissible": list(play.commands()),
            "is_action_valid": accepted,
            "invalid_reason": reason,
            "won": won,
            "score": float(won),
            "steps": self._steps,
            "task": self._task_id,
            "goal_progress": play.progress,
        }

    def _playing(self) -> Backend:
        if self._play is None:
            raise EpisodeOver("no episode has begun: call reset() first.")
        return self._play

    def expert(self) -> str | None:
        return self._playing().expert()

    def sample(self, rng: np.random.Generator) -> str:
        commands = self._playing().commands()
        return commands[int(rng.integers(len(commands)))]

    def clone(self) -> ALFWorldEnv:
        other = copy.copy(self)
        other._chosen = make_backend(self.backend)
        if self._play is not None:
            other._play = self._play.clone()
        if self._np_random is not None:
            other._np_random = copy.deepcopy(self._np_random)
        return other

    def close(self) -> None:
        """Give the real engine's place back; the environment can be reset again."""
        if self._play is not None:
            self._play.close()

    def render(self) -> str | None:
        """The last text that was seen."""
        return self._text if self.render_mode == "ansi" else None

    def digest(self) -> str:
        return sha256_json([ENV_ID, ENGINE_VERSION, self.max_steps, self.dataset.digest()])

    def pinned(self, split: str) -> bool:
        return self.dataset.pinned(split)

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        return learn(trajectory, self.dataset.source(trajectory.task.id).problem)

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        return facts.anchors(self.dataset.source(task.id).problem)

    def document(self, task: Task, anchor: Anchor) -> str | None:
        return " ".join(facts.facts(self.dataset.source(task.id).problem)) if anchor.source == facts.SOURCE else None

    def parse(self, text: str, mode: ParseMode = "strict") -> Parsed:
        return parse_tagged(text, mode)
