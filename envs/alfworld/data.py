"""Where ALFWorld games come from: for now, a folder with the published tree. (Placeholder with the final interface.)"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from seedbench.core import SeedbenchError, Task
from seedbench.envs.alfworld.problem import body_digests
from seedbench.prompts import sha256_json

FOLDERS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen", "paper": "valid_seen"}


class GameSource(NamedTuple):
    """A game's PDDL problem, its task line, and the digests of its domain and grammar."""

    problem: str
    task: str
    domain_sha: str
    grammar_sha: str


class Dataset:
    """The published tree under one folder."""

    default_max_steps = 50

    def __init__(self, folder: Path):
        self.folder = folder

    @cache  # noqa: B019 - one data set a process
    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in FOLDERS:
            raise SeedbenchError(f"ALFWorld has no split {split!r}; choose one of {', '.join(FOLDERS)}")
        found = sorted((self.folder / "json_2.1.1" / FOLDERS[split]).glob("*/*/game.tw-pddl"))
        if not found:
            raise SeedbenchError(f"no games of split {split!r} under the data folder; fetch the published data")
        ids = ["/".join(path.parts[-4:-1]) for path in found]
        return tuple(Task(i, "seedbench/ALFWorld-v0", split, i.split("/")[1].split("-")[0]) for i in ids)

    @lru_cache(maxsize=4096)  # noqa: B019 - one data set a process
    def source(self, task_id: str) -> GameSource:
        path = self.folder / "json_2.1.1" / task_id / "game.tw-pddl"
        if not path.is_file():
            raise SeedbenchError(f"no ALFWorld task has the id {task_id!r}; list them with tasks(split)")
        body = json.loads(path.read_text())
        task, domain, grammar = body_digests(body)
        return GameSource(body["pddl_problem"], task, domain, grammar)

    def digest(self) -> str:
        return sha256_json(["published"])

    def pinned(self, split: str) -> bool:
        return False


@cache
def open_dataset(data: str) -> Dataset:
    return Dataset(Path(data))
