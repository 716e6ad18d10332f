"""Where ALFWorld games come from: the embedded `mini` set, or a folder with the published games.

    data = open_dataset("mini")                   # or a folder that holds json_2.1.1, or generated games
    for task in data.tasks("seen"):
        source = data.source(task.id)             # the texts an engine compiles

Both sets have a manifest that is committed with the code (`seedbench.envs.manifests`): it fixes which games a split
holds, in which order, and the digest of each game's content. Listing a split opens at most one game; a game's digest
is checked when the game is read.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import NamedTuple

from seedbench.core import SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.prompts import sha256_json

ENV_ID = "seedbench/ALFWorld-v0"
SPLITS = ("train", "dev", "seen", "unseen", "paper")  # paper: seen under the name that published numbers go by
FOLDER_OF = {"train": "train", "dev": "train", "seen": "valid_seen", "unseen": "valid_unseen"}  # in json_2.1.1
GAME = "game.tw-pddl"

# Every published game of the current release has this domain and, but for its task line, this grammar.
DOMAIN_SHA = "574a98ddcfd0745755a35fbd9d73a583"
GRAMMAR_SHA = "19d5a357ee4d2e27b3d41fdf3bd2ebdb"
ALLOWED = frozenset({(DOMAIN_SHA, GRAMMAR_SHA)})  # what the fast engine implements, by hand and no other
RELEASE = (
    "the release whose games say `move X to Y` (alfworld 0.4.0 and later: json_2.1.2_tw-pddl.zip, "
    "which `alfworld-download` fetches)"
)

_TASK_PAIR = re.compile(r'("task"\s*:\s*\[\s*\{\s*)"rhs"\s*:\s*"((?:[^"\\]|\\.)*)"')


class GameSource(NamedTuple):
    """What distinguishes a game, as text: its PDDL problem, its task line, and digests of what it shares."""

    problem: str
    task: str  # the whole line, such as "Your task is to: put a mug in desk."
    domain_sha: str
    grammar_sha: str


def domain_digest(text: str) -> str:
    """md5 hex of a PDDL domain, for the allow-list of domains whose behaviour our engine copies."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def grammar_digest(text: str) -> str:
    """md5 hex of a TextWorld grammar in which the task's `"rhs": "..."` pair is replaced by the word TASK."""
    return hashlib.md5(_TASK_PAIR.sub(r"\1TASK", text).encode(), usedforsecurity=False).hexdigest()


def task_line(grammar: str) -> str:
    """The task line that a game's grammar holds. Raises ValueError where it holds none."""
    found = _TASK_PAIR.search(grammar)
    if found is None:
        raise ValueError("the grammar has no task line")
    return str(json.loads(f'"{found[2]}"'))


def content_digest(source: GameSource) -> str:
    """sha256 hex of everything that decides how a game plays: the digest in the manifest."""
    problem = hashlib.sha256(source.problem.encode()).hexdigest()
    return content_digest_of(source.domain_sha, source.grammar_sha, source.task, problem)


def content_digest_of(domain_sha: str, grammar_sha: str, task: str, problem_sha256: str) -> str:
    """The same from the problem's sha256, for games of which only that is at hand."""
    return sha256_json({"domain": domain_sha, "grammar": grammar_sha, "problem": problem_sha256, "task": task})


class Dataset(ABC):
    """The games behind one `data=`. Splits are those of the manifest; `paper` is `seen` under another name."""

    default_max_steps: int

    def __init__(self, manifest: manifests.Manifest):
        self.manifest = manifest

    def tasks(self, split: str) -> tuple[Task, ...]:
        """The whole split in manifest order. Raises SeedbenchError for an unknown, absent or short split."""
        if split not in SPLITS:
            raise SeedbenchError(f"ALFWorld has no split {split!r}; choose one of {', '.join(SPLITS)}.")
        return self._tasks(split)

    @abstractmethod
    def _tasks(self, split: str) -> tuple[Task, ...]: ...

    def row(self, task_id: str) -> manifests.Row:
        """The manifest's entry of one game. Raises SeedbenchError with the closest id for an unknown one."""
        row = self.manifest.rows.get(task_id)
        if row is None:
            tail = task_id.rpartition("/")[2]
            close = [i for i in self.manifest.rows if tail and i.endswith(tail)]
            if not close:  # ids of one folder before all ids: comparing thousands of long ids takes a second
                folder = task_id.rpartition("/")[0] + "/"
                near = [i for i in self.manifest.rows if i.startswith(folder)] or list(self.manifest.rows)
                close = difflib.get_close_matches(task_id, near, n=1, cutoff=0.0)
            raise SeedbenchError(f"No ALFWorld task has the id {task_id!r}; the closest is {close[0]!r}.")
        return row

    def task(self, task_id: str) -> Task:
        """One task by its id, with the split that it belongs to, whether or not its game is at hand."""
        row = self.row(task_id)
        return Task(row.id, ENV_ID, row.split, row.kind, row.options)

    @abstractmethod
    def source(self, task_id: str) -> GameSource:
        """One game's texts, verified against the manifest. Raises SeedbenchError where the game is not as it says."""

    def game_file(self, task_id: str) -> Path | None:
        """The published file of a game, for the real engine; None for embedded games."""
        return None

    def pinned(self, split: str) -> bool:
        """Whether the committed manifest fixes the digest of every game of the split."""
        rows = self.manifest.split(_stored(split))
        return bool(rows) and all(row.digest for row in rows)

    def digest(self) -> str:
        """sha256 hex that names the exam paper: ids, kinds, splits and contents."""
        return self.manifest.digest

    def _as_tasks(self, split: str) -> tuple[Task, ...]:
        return tuple(Task(row.id, ENV_ID, split, row.kind, row.options) for row in self.manifest.split(_stored(split)))


def _stored(split: str) -> str:
    return "seen" if split == "paper" else split


def open_dataset(data: str | Path) -> Dataset:
    """The data set behind `data`, opened once a process: "mini", or a folder that holds json_2.1.1 (or is it)."""
    return _open("mini") if str(data) == "mini" else _open(str(Path(data).expanduser().resolve()))


@cache
def _open(data: str) -> Dataset:
    # Imported here because both modules build on the nouns above.
    from seedbench.envs.alfworld import frozen, published

    if data == "mini":
        return frozen.open_mini()
    if (Path(data) / frozen.GAMES).is_file():
        return frozen.open_generated(Path(data))
    return published.Published(Path(data))
