"""RemoteEnv: an environment behind `seedbench serve`, with the same Gymnasium interface.

    env = RemoteEnv("seedbench/ALFWorld-v0", "http://localhost:8000")
    observation, info = env.reset(seed=0, options={"task": env.tasks("seen")[0].id})

A step carries the number of its turn, so a request that is sent again after a broken connection is not played twice.
A server that is gone, full for too long, or another than the run began with raises InfrastructureError: the episode
stays unplayed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from seedbench.client import Client, RemoteFault
from seedbench.core import (
    EpisodeOver,
    Info,
    InfrastructureError,
    Mode,
    Parsed,
    SeedbenchError,
    Task,
    TextEnv,
    UnsupportedError,
)
from seedbench.replies import MAX_ACTION


class RemoteEnv(TextEnv):
    """An episode on a server; prompt, parser and presets are those of the same environment here.

    `max_steps` and `split` are as in the environment itself; the data are the server's. The session on the server is
    opened by the first reset, used again by the next ones and ended by `close`.
    """

    remote = True

    def __new__(cls, env_id: str, *args: Any, **kwargs: Any) -> RemoteEnv:
        made: RemoteEnv = object.__new__(_class(cls, env_id))
        return made

    def __init__(self, env_id: str, server: str | Client, max_steps: int | None = None, split: str = "train"):
        """Raises InfrastructureError where the server is not there, SeedbenchError where it serves something else."""
        self.env_id, self.split = env_id, split
        self.client = Client(server) if isinstance(server, str) else server
        self._asked_steps = max_steps
        known = self.client.describe(max_steps)
        if known["env"] != env_id:
            raise SeedbenchError(f"{self.client.url} serves {known['env']}, not {env_id}: give the other's --server.")
        self.data, self.max_steps, self.replay = known["data"], known["max_steps"], known["replay"]
        self.max_sessions = known["max_sessions"]
        self._digest: str = known["digest"]
        for name in self.SETTINGS:
            setattr(self, name, known.get("settings", {}).get(name))
        try:
            self.parse("")
        except (LookupError, TypeError) as error:
            raise SeedbenchError(
                f"{self.client.url} serves {env_id} by rules that are not known here: {error}."
            ) from error
        self._session: str | None = None
        self._task = ""
        self._turn, self._over = 0, True
        self._admissible: list[str] = []
        self._pinned: dict[str, bool] = {}

    def tasks(self, split: str) -> tuple[Task, ...]:
        answer = self.client.get("tasks", split=split)
        rows = tuple(Task(**row) for row in answer["tasks"])
        if answer["split"] != split or any(row.env != self.env_id for row in rows):
            raise InfrastructureError(
                f"{self.client.url} listed other tasks than {split} of {self.env_id}: start it anew."
            )
        self._pinned[split] = answer["pinned"]
        return rows

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        if others := set(options or {}) - {"task"}:
            raise UnsupportedError(f"a remote reset takes a task alone, not {', '.join(sorted(others))}: play locally.")
        body: dict[str, Any] = {}
        if seed is not None:
            body["seed"] = int(seed)
        if options and "task" in options:
            body["task"] = options["task"]
        try:
            answer = self._begin(body)
        except InfrastructureError:
            self.close()  # the session may be lost with its server: the next reset opens another
            raise
        return answer["observation"], self._note(answer)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:  # type: ignore[override]
        """As in the environment itself; of an action, the first MAX_ACTION characters are sent."""
        if self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step().")
        try:
            answer = self._play("step", {"action": action[:MAX_ACTION]})
        except SeedbenchError as error:
            self.close()
            if isinstance(error, InfrastructureError | RemoteFault):
                raise
            raise InfrastructureError(f"a step that this client sends was not understood: {error}") from error
        info = self._note(answer)
        return answer["observation"], answer["reward"], answer["terminated"], answer["truncated"], info

    def _begin(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Open a session, or begin another episode in it, on the server that the run began with."""
        settings = {"max_steps": self._asked_steps, "split": self.split}
        try:
            if self._session is None:
                answer = self.client.post("reset", {**body, **{k: v for k, v in settings.items() if v is not None}})
            else:
                answer = self._play("reset", body)
        except InfrastructureError:
            raise
        except SeedbenchError:  # is it this task that is refused, or do other data lie behind the URL now?
            self._same_server()
            raise
        if self._session is None:
            self._session = answer["session"]
            self._expect(answer, 0)
        self._same_data(answer.get("digest"))
        if answer["done"] or answer["task"] != body.get("task", answer["task"]):
            raise InfrastructureError(f"{self.client.url} began another episode than was asked for: start it anew.")
        self._turn, self._task = answer["turn"], answer["task"]
        return answer

    def _play(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The next turn of the session."""
        turn = self._turn + 1
        answer = self.client.post(name, {"session": self._session, "turn": turn, **body})
        self._expect(answer, turn)
        if name == "step" and answer["task"] != self._task:
            raise InfrastructureError(f"{self.client.url} answered for another task: start it anew.")
        self._turn = turn
        return answer

    def _expect(self, answer: Mapping[str, Any], turn: int) -> None:
        if answer["session"] != self._session or answer["turn"] != turn:
            raise InfrastructureError(f"{self.client.url} answered for another session or turn: start it anew.")

    def _same_server(self) -> None:
        try:
            known = self.client.describe(self._asked_steps, anew=True)
        except SeedbenchError as error:
            raise InfrastructureError(str(error)) from error
        self._same_data(known["digest"] if known["env"] == self.env_id else None)

    def _same_data(self, digest: str | None) -> None:
        if digest != self._digest:
            raise InfrastructureError(f"{self.client.url} serves other data than when the run began: start it as then.")

    def _note(self, answer: Mapping[str, Any]) -> Info:
        info: Info = answer["info"]
        self._over, self._admissible = answer["done"], info["admissible"]
        return info

    def sample(self, rng: np.random.Generator) -> str:
        """One of the admissible actions; "" where there is none."""
        return self._admissible[int(rng.integers(len(self._admissible)))] if self._admissible else ""

    def expert(self) -> str | None:
        raise UnsupportedError("the expert reads the environment's state, which stays on the server: play locally.")

    def clone(self) -> TextEnv:
        raise UnsupportedError("an episode on a server cannot be cloned: play locally.")

    def digest(self) -> str:
        return self._digest

    def pinned(self, split: str) -> bool:
        if split not in self._pinned:
            self.tasks(split)
        return self._pinned[split]

    def close(self) -> None:
        """End the session. A server that is gone has none left to end."""
        session, self._session, self._over = self._session, None, True
        if session is not None:
            try:
                self.client.post("close", {"session": session}, once=True)
            except SeedbenchError:
                return

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        raise NotImplementedError  # each environment's own: see _class


@cache
def _class(base: type[RemoteEnv], env_id: str) -> type[RemoteEnv]:
    """`base` with the prompt, parser and presets of the environment that is registered as `env_id`."""
    try:
        entry: Any = gym.spec(env_id).entry_point
    except gym.error.Error as error:
        raise SeedbenchError(f"{env_id} is no environment here ({error}): update seedbench, or register it.") from error
    local: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    own = {
        k: inspect.getattr_static(local, k)
        for k in ("PROMPT", "PRESETS", "SETTINGS", "MEASURES", "TYPED", "typed", "parse")
    }
    return type(f"Remote{local.__name__}", (base,), {**own, "__doc__": base.__doc__})


def connect(server: str, env_id: str) -> partial[RemoteEnv]:
    """A maker of environments on `server` that share its connections."""
    return partial(RemoteEnv, env_id, Client(server))


def served_by(server: str) -> str:
    """The id of the environment that `server` serves."""
    return str(Client(server).describe()["env"])
