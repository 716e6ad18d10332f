"""Generated games that were written down: the embedded `mini` set, and folders that `data generate` makes.

A set is two files: a manifest, and the games as lines `[id, task line, problem]`. Both hold plain data, not seeds: a
later change of the generator changes no game. Listing a split reads the manifest alone.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path

from seedbench.core import SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.alfworld.data import DOMAIN_SHA, ENV_ID, GRAMMAR_SHA, Dataset, GameSource, content_digest
from seedbench.envs.alfworld.generate import KINDS, LEVELS, Game, generate
from seedbench.envs.manifests import Manifest, Row

MINI = "alfworld_mini"
GAMES, LISTING = "seedbench-games.jsonl.xz", "seedbench-manifest.jsonl.xz"  # in a folder of generated games
MINI_SIZES = {"train": 840, "dev": 120, "seen": 204, "unseen": 204}
Progress = Callable[[int, int], None]


class Frozen(Dataset):
    """A frozen set. `read` gives the packed games; it is called when the first game is wanted."""

    def __init__(self, manifest: Manifest, read: Callable[[], bytes], committed: bool):
        super().__init__(manifest)
        self._read, self._committed = read, committed
        self.default_max_steps = int(manifest.header["max_steps"])

    def pinned(self, split: str) -> bool:
        return self._committed and super().pinned(split)

    def source(self, task_id: str) -> GameSource:
        row = self.row(task_id)
        task, problem = self._games[task_id]
        source = GameSource(problem, task, DOMAIN_SHA, GRAMMAR_SHA)
        if content_digest(source) != row.digest:
            raise SeedbenchError(
                f"The game {task_id} is not as its manifest says; restore the file or generate it again."
            )
        return source

    def _tasks(self, split: str) -> tuple[Task, ...]:
        return self._as_tasks(split)

    @cached_property
    def _games(self) -> Mapping[str, tuple[str, str]]:
        try:
            games = [json.loads(line) for line in lzma.decompress(self._read()).splitlines()]
            return {name: (task, problem) for name, task, problem in games}
        except (OSError, lzma.LZMAError, ValueError) as error:
            raise SeedbenchError(
                f"The generated games cannot be read ({error}); generate or install them again."
            ) from error


def open_mini() -> Frozen:
    """The embedded set."""
    file = resources.files("seedbench.envs.alfworld") / "mini.jsonl.xz"
    return Frozen(manifests.load(MINI), file.read_bytes, committed=True)


def open_generated(folder: Path) -> Frozen:
    """A set that `write_set` left in a folder. Raises SeedbenchError where its manifest is missing or damaged."""
    try:
        manifest = manifests.parse((folder / LISTING).read_bytes())
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise SeedbenchError(f"{folder / LISTING} cannot be read ({error}); generate the games again.") from error
    return Frozen(manifest, (folder / GAMES).read_bytes, committed=False)


def write_set(
    listing: Path,
    games: Path,
    *,
    prefix: str,
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    progress: Progress = lambda done, total: None,
) -> None:
    """Generate a set and write its manifest and its games. No game occurs twice in it.

    Ids are `prefix/split/kind-0007`. Raises SeedbenchError if the level is so small that games repeat for ever.
    """
    rows: list[Row] = []
    lines: list[list[str]] = []
    seen: set[str] = set()
    for split, size in sizes.items():
        for number, (game, digest) in zip(range(size), _distinct(seed, level, split, seen), strict=False):
            name = f"{prefix}/{split}/{game.kind}-{number // len(KINDS):04}"
            rows.append(Row(name, game.kind, split, digest, {"family": game.family, "layout": game.layout}))
            lines.append([name, game.task, game.problem])
            progress(len(rows), sum(sizes.values()))
    header = {"env": ENV_ID, "set": prefix, "seed": seed, "level": level, "max_steps": LEVELS[level].max_steps}
    manifests.write(listing, header, rows)
    manifests.write_lines(games, lines)


def _distinct(seed: int, level: int, split: str, seen: set[str]) -> Iterator[tuple[Game, str]]:
    """Games of a split, kinds in turn, each unlike all before it (the name of the problem aside)."""
    index = 0
    while True:
        for _ in range(1000):
            game = generate(seed, level, split, index)
            body = game.task + game.problem.partition("\n")[2]
            if body not in seen:
                break
            index += len(KINDS)
        else:
            raise SeedbenchError(f"Level {level} has too few different games; generate fewer, or a higher level.")
        seen.add(body)
        yield game, content_digest(GameSource(game.problem, game.task, DOMAIN_SHA, GRAMMAR_SHA))
        index += 1


def generate_into(
    folder: Path, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None, progress: Progress
) -> Frozen:
    """Generate a set of one's own into a folder that `--data` takes; its results are unpinned."""
    files = folder / LISTING, folder / GAMES
    write_set(
        *files, prefix=f"generated-{seed}-{level}", seed=seed, level=level, sizes=sizes or MINI_SIZES, progress=progress
    )
    return open_generated(folder)
