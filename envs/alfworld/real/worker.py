"""A worker process: `python -m seedbench.envs.alfworld.real.worker ENGINE SOCKET PARENT`, started by pool.py.

One JSON object a line over the socket; standard output is nobody's, so nothing that the engine prints gets in the way.

    {"do": "open", "session": 3, "game": "<text of game.tw-pddl>", "kind": "...", "drop": [1, 2]}
    {"do": "step", "session": 3, "command": "open fridge 1", "drop": []}
    -> {"text": "...", "admissible": [...], "won": false, "games": 2}   or   {"error": "KeyError: ..."}
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

Turn = tuple[str, list[str], bool]  # what is seen, the admissible commands in the engine's order, won
INFOS = {"won": True, "admissible_commands": True}


class Engine(Protocol):
    """An engine holds any number of games under way; `games` counts those it loaded, for which it keeps memory."""

    games: int

    def open(self, session: int, game: str, kind: str) -> Turn: ...
    def step(self, session: int, command: str) -> Turn: ...
    def drop(self, session: int) -> None: ...


class TextWorld:
    """TextWorld's PDDL environment with ALFWorld's names. Environments are used again, for each maps a library."""

    def __init__(self, cached: bool):
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

        if cached:
            from seedbench.envs.alfworld.real import turbo

            turbo.apply()
        self.games = 0
        self._cached = cached
        self._known: set[int] = set()
        self._textworld, self._names = textworld, AlfredDemangler
        self._envs: dict[int, Any] = {}
        self._spare: list[Any] = []

    def open(self, session: int, game: str, kind: str) -> Turn:
        env = self._spare.pop() if self._spare else None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "game.tw-pddl"
            path.write_text(game, encoding="utf-8")
            if env is None:
                infos = self._textworld.EnvInfos(**INFOS)
                env = self._textworld.start(str(path), infos, wrappers=[self._names])
            else:
                env.load(str(path))
        if not self._cached or hash(game) not in self._known:
            self._known.add(hash(game))
            self.games += 1
        self._envs[session] = env
        return self._turn(env.reset())

    def step(self, session: int, command: str) -> Turn:
        return self._turn(self._envs[session].step(command)[0])

    def drop(self, session: int) -> None:
        if (env := self._envs.pop(session, None)) is not None and self._cached:
            self._spare.append(env)

    @staticmethod
    def _turn(state: Any) -> Turn:
        return state["feedback"], list(state["admissible_commands"]), bool(state["won"])


class Alfred:
    """The untouched AlfredTWEnv with a batch of one, and the few keys of its configuration that it reads."""

    def __init__(self) -> None:
        from alfworld.agents.environment.alfred_tw_env import TASK_TYPES, AlfredTWEnv

        self.games = 0
        self._make, self._types = AlfredTWEnv, list(TASK_TYPES)
        self._envs: dict[int, Any] = {}

    def open(self, session: int, game: str, kind: str) -> Turn:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "game.tw-pddl").write_text(game, encoding="utf-8")
            (Path(folder) / "traj_data.json").write_text(json.dumps({"task_type": kind}), encoding="utf-8")
            config = {
                "dataset": {"eval_id_data_path": folder, "num_eval_games": -1},
                "env": {
                    "goal_desc_human_anns_prob": 0,
                    "task_types": self._types,
                    "domain_randomization": False,
                    "expert_type": "handcoded",
                },
                "general": {"training_method": "dqn"},
                "rl": {"training": {"max_nb_steps_per_episode": 10**9}},  # the step limit is ours to keep
            }
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # a progress bar
                made = self._make(config, train_eval="eval_in_distribution")
            if not made.game_files:
                raise ValueError(f"AlfredTWEnv does not take games of the task type {kind!r}")
            env = self._envs[session] = made.init_env(batch_size=1)
            self.games += 1
            return self._turn(*env.reset())

    def step(self, session: int, command: str) -> Turn:
        texts, _, _, infos = self._envs[session].step([command])
        return self._turn(texts, infos)

    def drop(self, session: int) -> None:
        if (env := self._envs.pop(session, None)) is not None:
            env.close()

    @staticmethod
    def _turn(texts: Any, infos: Any) -> Turn:
        return texts[0], list(infos["admissible_commands"][0]), bool(infos["won"][0])


ENGINES: dict[str, Callable[[], Engine]] = {
    "textworld": lambda: TextWorld(cached=True),
    "plain": lambda: TextWorld(cached=False),
    "alfworld": Alfred,
}


def answer(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    """Serve one request. Whatever the engine raises is answered as an error: it may be the game's fault."""
    for session in request["drop"]:
        engine.drop(session)
    try:
        if request["do"] == "open":
            text, admissible, won = engine.open(request["session"], request["game"], request["kind"])
        else:
            text, admissible, won = engine.step(request["session"], request["command"])
    except Exception as error:  # third-party code on a user's file: no narrower class exists
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text, "admissible": admissible, "won": won, "games": engine.games}


def _end_with(parent: int) -> None:
    """A killed parent closes no socket that a fork of it inherited, and this process may be deep in a library."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(name: str, channel: str, parent: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes the socket
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    with socket.socket(fileno=int(channel)) as sock, sock.makefile("rb") as lines:
        engine = ENGINES[name]()
        for line in lines:
            sock.sendall(json.dumps(answer(engine, json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
