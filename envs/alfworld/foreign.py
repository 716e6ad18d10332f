"""Games that are not the published ones: an older release, or what a user made with `alfworld-generate`.

A folder says so by its name: DIR/foreign/{train,valid_seen,valid_unseen}/<task folder>/<trial folder>/game.tw-pddl,
with `--data DIR`. No manifest fixes such games: ids are their paths, splits their folders, the order is that of the
names, and results on them are unpinned. A game whose domain or grammar our engine does not implement is played by the
real one (see backend.suited), for which the oracle and `goal_progress` have nothing to say.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from seedbench.core import SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.alfworld import data
from seedbench.envs.alfworld.published import GameError, parse_game

ROOT = "foreign"
SPLIT_OF = {"train": "train", "valid_seen": "seen", "valid_unseen": "unseen"}


class Foreign(data.Dataset):
    """The games under DIR/foreign, read once when the folder is opened and checked against that when played."""

    default_max_steps = 50

    def __init__(self, folder: Path):
        self.base = folder / ROOT
        rows = {}
        for path in sorted(self.base.rglob(data.GAME), key=lambda path: path.parts):
            parts = path.relative_to(self.base).parts
            if parts[0] in SPLIT_OF and len(parts) > 2:
                name, kind = "/".join((ROOT, *parts[:-1])), parts[1].partition("-")[0]
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                rows[name] = manifests.Row(name, kind, SPLIT_OF[parts[0]], digest)
        if not rows:
            raise SeedbenchError(
                f"{self.base} holds no games: put them there as {', '.join(SPLIT_OF)}/<task>/<trial>/{data.GAME}."
            )
        digest = hashlib.sha256("".join(f"{row.id}\n{row.digest}\n" for row in rows.values()).encode()).hexdigest()
        super().__init__(manifests.Manifest({"schema": manifests.SCHEMA}, rows, digest))

    def pinned(self, split: str) -> bool:
        return False

    def game_file(self, task_id: str) -> Path | None:
        return self.base / self.row(task_id).id.partition("/")[2] / data.GAME

    def source(self, task_id: str) -> data.GameSource:
        path = self.game_file(task_id)
        assert path is not None
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise GameError("missing", f"The game {path} cannot be read ({error.strerror}); copy it again.") from error
        if hashlib.sha256(raw).hexdigest() != self.row(task_id).digest:
            raise GameError("digest", f"The game {path} changed while it was in use; start again.")
        return parse_game(raw, str(path))

    def _tasks(self, split: str) -> tuple[Task, ...]:
        if not (tasks := self._as_tasks(split)) or split == "paper":
            held = ", ".join(name for name in SPLIT_OF.values() if self.manifest.split(name))
            raise SeedbenchError(f"{self.base} has no split {split!r}; choose --split among {held}.")
        return tasks
