"""The published ALFWorld games, read where the user has them.

The tree is `json_2.1.1/{train,valid_seen,valid_unseen}/<task folder>/<trial folder>/game.tw-pddl`; a game is JSON with
the domain, the grammar (task line inside) and the problem as strings. Splits, order and digests come from the
committed manifest, never from walking the folder, so an incomplete copy is noticed and file systems do not matter.
"""

from __future__ import annotations

import json
from pathlib import Path

from seedbench.core import SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.alfworld import data
from seedbench.envs.alfworld.data import FOLDER_OF, GAME, RELEASE, GameSource

ROOT = "json_2.1.1"
MANIFEST = "alfworld"


class GameError(SeedbenchError):
    """A game file that cannot be served. `fault` is one word for tables: missing, damaged, old release, digest."""

    def __init__(self, fault: str, message: str):
        super().__init__(message)
        self.fault = fault


def read_game(raw: bytes, name: str) -> GameSource:
    """Parse the bytes of a game.tw-pddl file called `name` in errors. Raises GameError where it is no such thing."""
    try:
        game = json.loads(raw)
        domain, grammar, problem = (game[key] for key in ("pddl_domain", "grammar", "pddl_problem"))
        grammar_sha = data.grammar_digest(grammar)
        source = GameSource(problem, data.task_line(grammar), data.domain_digest(domain), grammar_sha)
        problem.encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GameError(
            "damaged", f"{name} is not a whole ALFWorld game ({type(error).__name__}: {error}); copy it again."
        ) from error
    if grammar_sha != data.GRAMMAR_SHA and '"move {o} to {r}"' not in grammar:
        raise GameError("old release", f"{name} is of an older ALFWorld release (it has no `move`); get {RELEASE}.")
    return source


def verify(source: GameSource, expected: str, name: str) -> GameSource:
    """Return `source` if its content digest is `expected`. Raises GameError otherwise."""
    if data.content_digest(source) != expected:
        raise GameError("digest", f"{name} is not the published game of that name; restore it from {RELEASE}.")
    return source


class Published(data.Dataset):
    """A folder with published games. Serves the splits that it holds; a split that is short is an error."""

    default_max_steps = 50

    def __init__(self, folder: Path, base: Path | None = None):
        """`base` is where train, valid_seen and valid_unseen are or will be; found in `folder` by default."""
        super().__init__(manifests.load(MANIFEST))
        if not folder.is_dir():
            why = "is a file" if folder.exists() else "does not exist"
            raise SeedbenchError(
                f"The data folder {folder} {why}; name the folder that holds {ROOT}, or leave --data out for `mini`."
            )
        self.base = base or locate(folder)
        self._listed: dict[str, tuple[Task, ...]] = {}

    def path(self, task_id: str) -> Path:
        """Where a game's file belongs."""
        return self.base / task_id.partition("/")[2] / GAME

    def game_file(self, task_id: str) -> Path | None:
        self.source(task_id)
        return self.path(task_id)

    def source(self, task_id: str) -> GameSource:
        row, path = self.row(task_id), self.path(task_id)
        try:
            raw = path.read_bytes()
        except FileNotFoundError as error:
            raise GameError("missing", f"The game {path} is missing; copy it again.") from error
        except OSError as error:
            raise GameError("damaged", f"The game {path} cannot be read ({error.strerror}); copy it again.") from error
        return verify(read_game(raw, str(path)), row.digest, str(path))

    def _tasks(self, split: str) -> tuple[Task, ...]:
        if split not in self._listed:
            tasks = self._as_tasks(split)
            self._check_complete(split, tasks)
            self._listed[split] = tasks
        return self._listed[split]

    def _check_complete(self, split: str, tasks: tuple[Task, ...]) -> None:
        folder = self.base / FOLDER_OF["seen" if split == "paper" else split]
        if not folder.is_dir():
            held = [name for name, sub in FOLDER_OF.items() if (self.base / sub).is_dir()]
            raise SeedbenchError(
                f"The split {split!r} is not at hand: {folder} does not exist; copy it there, or choose --split "
                f"among {', '.join(held)}."
            )
        missing = [task.id for task in tasks if not self.path(task.id).is_file()]
        absent = set(missing)
        present = [task.id for task in tasks if task.id not in absent]
        if present:
            self.source(present[0])  # an old release is told from the first game, before anything is played
        if missing:
            raise SeedbenchError(
                f"{len(missing)} of the {len(tasks)} games of {split!r} are missing under {self.base}, the first "
                f"{missing[0]}; copy the rest, or run `seedbench data import`."
            )


def locate(folder: Path) -> Path:
    """The folder that holds train, valid_seen or valid_unseen: json_2.1.1 inside `folder`, or `folder` itself."""
    for base in (folder / ROOT, folder):
        if any((base / sub).is_dir() for sub in FOLDER_OF.values()):
            return base
    what = "is empty" if not any(folder.iterdir()) else f"holds no {ROOT} with train, valid_seen or valid_unseen"
    raise SeedbenchError(
        f"The data folder {folder} {what}; unpack the published games there (`seedbench data import`), or leave --data "
        f"out for `mini`."
    )
