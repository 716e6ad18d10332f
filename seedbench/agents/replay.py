"""`replay:RUN`: says again what a finished run recorded, word for word."""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from seedbench import record
from seedbench.core import Agent, Reply, SeedbenchError, TextEnv, View


class Replay(Agent):
    """The texts of a run folder, by environment, split, task, trial and turn. It needs to know which task is played."""

    needs_env: ClassVar[bool] = True

    def __init__(self, spec: str):
        """Index the recording. In memory stand the keys alone; the texts lie in an unnamed temporary file.

        Raises SeedbenchError when the folder holds no recording, or a damaged one.
        """
        self.name = spec
        run = Path(spec.removeprefix("replay:"))
        self.run = run.resolve().name
        if not run.is_dir():
            raise SeedbenchError(f"--agent {spec}: {run} is no folder; name the folder of a finished run.")
        path = run / "trajectories.jsonl.gz"
        self._texts = tempfile.TemporaryFile(prefix="seedbench-replay-")  # noqa: SIM115 (lives as long as the agent)
        weakref.finalize(self, self._texts.close)
        self._offsets: dict[record.Key, int] = {}
        self.head = ""
        for number, line in enumerate(record.read_lines(path), 1):
            try:
                texts, error = [str(step["text"]) for step in line["steps"]], str(line["error"])
                key, self.head = record.key(line), str(line["hash"])
            except (KeyError, TypeError) as broken:
                raise SeedbenchError(
                    f"{path}, line {number}, is no record ({broken!r}): copy the run again."
                ) from broken
            self._offsets[key] = self._texts.tell()
            self._texts.write(json.dumps([texts, error]).encode() + b"\n")

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        """The recorded text of each view's turn; a SeedbenchError where the recording holds none."""
        assert envs is not None
        return [self._reply(view, env) for view, env in zip(views, envs, strict=True)]

    def _reply(self, view: View, env: TextEnv) -> Reply | Exception:
        assert env.playing is not None, "replay plays through play()"
        task, trial = env.playing
        turn = len(view.history)
        at = self._offsets.get((task.env, task.split, task.id, trial))
        if at is None:
            return SeedbenchError(
                f"{self.run} holds no trial {trial} of {task.id} ({task.env}, {task.split}): replay what it played."
            )
        self._texts.seek(at)
        texts, error = json.loads(self._texts.readline())
        if turn < len(texts):
            return Reply(texts[turn], finish_reason="stop")
        why = f"it ended there with {error}" if error else "the environment or its step limit has changed since"
        return SeedbenchError(f"{self.run} holds {len(texts)} turns of {task.id}, trial {trial}, and no more: {why}.")

    def describe(self) -> dict[str, Any]:
        """Which recording: the folder's name and its chain head."""
        return {"spec": f"replay:{self.run}", "kind": "replay", "chain_head": self.head}
