"""`seedbench/ALFWorld-v0`: household tasks in text. An action is a command such as `open fridge 1`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from seedbench.core import Info, Parsed, Preset, SeedbenchError, Task, TextEnv, UnsupportedError
from seedbench.core import Mode as ParseMode
from seedbench.envs.alfworld import oracle
from seedbench.envs.alfworld.data import ALLOWED, ENV_ID, Dataset, GameSource, open_dataset
from seedbench.envs.alfworld.engine import Game, State
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


class EpisodeOver(SeedbenchError, gym.error.ResetNeeded):
    """`step` was called before `reset`, or after the episode had ended."""


@lru_cache(maxsize=512)
def _compiled(problem: str, task: str) -> Game:
    """One immutable game for all environments that play it, in any thread; forgotten when 512 others came since."""
    return Game(problem, task)


def compile_game(source: GameSource, name: str) -> Game:
    """The compiled game of `source`. Raises SeedbenchError for a game of another domain or grammar than ours."""
    if (source.domain_sha, source.grammar_sha) not in ALLOWED:
        raise SeedbenchError(
            f"the fast engine plays one release of ALFWorld, and {name} has another domain or grammar "
            "(older releases say `put X in/on Y`): fetch the current games, whose commands are `move X to Y`."
        )
    try:
        return _compiled(source.problem, source.task)
    except SeedbenchError as error:
        raise SeedbenchError(f"{name}: {error}") from None


class ALFWorldEnv(TextEnv):
    """One ALFWorld game an episode; reward and score are 1.0 when it is won, else 0.0.

    `data` is "mini" or a folder that holds json_2.1.1; `max_steps` defaults to 14 or 50; `split` is what `reset`
    without options draws from. `backend="fast"` is our own engine, equal to the real one byte for byte.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it
    replay: ClassVar[Literal["exact", "score"]] = "exact"
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
        if backend in ("textworld", "alfworld"):
            raise UnsupportedError(f'backend="{backend}" is not built yet; use backend="fast".')
        if backend != "fast":
            raise SeedbenchError(f'ALFWorld has no backend {backend!r}; use "fast", "textworld" or "alfworld".')
        if render_mode not in (None, "ansi"):
            raise SeedbenchError(f'ALFWorld has no render mode {render_mode!r}; use "ansi" or None.')
        self.data, self.split, self.backend, self.render_mode = str(data), split, backend, render_mode
        self.dataset: Dataset = open_dataset(self.data)
        self.max_steps = self.dataset.default_max_steps if max_steps is None else max_steps
        if self.max_steps < 1:
            raise SeedbenchError(f"max_steps is {max_steps}; give at least 1.")
        self._state: State | None = None
        self._over = True
        self._steps = 0
        self._task_id = self._kind = self._text = ""

    def tasks(self, split: str) -> tuple[Task, ...]:
        return self.dataset.tasks(split)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, AlfworldInfo]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        task = self._draw() if not options or "task" not in options else self._find(options["task"])
        game = compile_game(self.dataset.source(task.id), task.id)
        if self._state is None or self._state.game is not game:
            self._state = State(game)
        self._text = self._state.reset()
        self._task_id, self._kind = task.id, task.kind
        self._steps, self._over = 0, False
        return self._text, self._info(True, "")

    def _draw(self) -> Task:
        tasks = self.dataset.tasks(self.split)
        return tasks[int(self.np_random.integers(len(tasks)))]

    def _find(self, task_id: object) -> Task:
        if not isinstance(task_id, str):
            raise SeedbenchError(f'options["task"] is {task_id!r}; give the id of a task as a string.')
        return self.dataset.task(task_id)

    def step(self, action: str) -> tuple[str, float, bool, bool, AlfworldInfo]:  # type: ignore[override]
        state = self._state
        if state is None or self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step().")
        self._text, accepted = state.step(action)
        self._steps += 1
        won = state.won
        truncated = not won and self._steps >= self.max_steps
        self._over = won or truncated
        reason = "" if accepted else _why_not(state, action)
        return self._text, float(won), won, truncated, self._info(accepted, reason)

    def _info(self, accepted: bool, reason: str) -> AlfworldInfo:
        state = self._playing()
        won = state.won
        return {
            "goal": state.game.goal_line,
            "kind": self._kind,
            "admissible": state.admissible(),
            "is_action_valid": accepted,
            "invalid_reason": reason,
            "won": won,
            "score": float(won),
            "steps": self._steps,
            "task": self._task_id,
            "goal_progress": oracle.goal_progress(state),
        }

    def _playing(self) -> State:
        if self._state is None:
            raise EpisodeOver("no episode has begun: call reset() first.")
        return self._state

    def expert(self) -> str | None:
        return oracle.next_action(self._playing())

    def sample(self, rng: np.random.Generator) -> str:
        commands = self._playing().commands()
        return commands[int(rng.integers(len(commands)))]

    def clone(self) -> ALFWorldEnv:
        other = copy.copy(self)
        if self._state is not None:
            other._state = self._state.clone()
        if self._np_random is not None:
            other._np_random = copy.deepcopy(self._np_random)
        return other

    def render(self) -> str | None:
        """The last text that was seen."""
        return self._text if self.render_mode == "ansi" else None

    def digest(self) -> str:
        return sha256_json([ENV_ID, ENGINE_VERSION, self.max_steps, self.dataset.digest()])

    def pinned(self, split: str) -> bool:
        return self.dataset.pinned(split)

    @staticmethod
    def parse(text: str, mode: ParseMode = "strict") -> Parsed:
        return parse_tagged(text, mode)


def _why_not(state: State, action: str) -> str:
    command = action.strip()
    if not command:
        return "no command was given"
    name = command.removeprefix("go to ")
    if name != command and name in state.game.receptacles:
        return f"you are already at the {name}"
    return "the command is not among the admissible ones"
