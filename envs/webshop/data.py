"""Where WebShop's goals and products come from: the embedded `mini` set, or a folder with the original's files.

data = open_dataset("mini")                   # or a folder that holds items_shuffle*, items_ins_v2*, ...
for task in data.tasks("seen"):
    goal = data.goal(task.id)
"""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path

from seedbench.core import InfrastructureError, SeedbenchError, Task
from seedbench.envs.webshop.catalogue import Catalogue, MemoryCatalogue
from seedbench.envs.webshop.goals import (
    PAPER_SIZE,
    Goal,
    Kind,
    frozen_goals,
    frozen_prices,
    goal_ids,
    goals_fingerprint,
    split_goals,
)
from seedbench.envs.webshop.nouns import ListedNouns, are_nouns
from seedbench.envs.webshop.products import read_json, read_products

ENV_ID = "seedbench/WebShop-v0"
SPLITS = ("train", "dev", "seen", "unseen", "paper")
MANY = 1000  # from so many human goals on they are the default; the 1000-product files hold 13
STORE = "store"  # folder of an import, finished or not
IN_MEMORY = 200_000_000  # bytes of a product file: what is larger is imported into a store first


class DataError(InfrastructureError):
    """An imported catalogue that is damaged: the data's fault, never the agent's, so nothing is scored."""


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turns what damaged contents raise, wherever they are first used, into a DataError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError) as error:
        raise DataError(
            f"{folder} is damaged ({type(error).__name__}: {error}): "
            f"run `seedbench data check webshop {folder.parent}`, or import the files again."
        ) from error


class Dataset(ABC):
    """The goals behind one `data=`, and the catalogue they shop in. Shared by all environments and threads."""

    catalogue: Catalogue
    nouns: Mapping[str, Sequence[str]] | None  # of titles, where they were tagged before

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """The whole split in order. Raises SeedbenchError for an unknown or empty split."""

    @abstractmethod
    def goal(self, task_id: str) -> Goal:
        """What the task asks for. Raises SeedbenchError for an unknown id."""

    @abstractmethod
    def digest(self) -> str:
        """Digest of catalogue and goals."""

    def pinned(self, split: str) -> bool:
        """Whether the committed manifest fixes the digest of every task of `split`."""
        return False


def check_split(split: str, held: int) -> None:
    """Raises SeedbenchError for a split that there is not, or of which too little is held."""
    if split not in SPLITS:
        raise SeedbenchError(f"WebShop has no split {split!r}; choose one of {', '.join(SPLITS)}.")
    if not held:
        raise SeedbenchError(f"These files hold no goal of the split {split}; take the full set of products.")
    if split == "paper" and held < PAPER_SIZE:
        raise SeedbenchError(
            f"These files hold fewer than the {PAPER_SIZE} goals of the split paper; take more products."
        )


class Folder(Dataset):
    """The original's files of one folder, held in memory; prices and bounds frozen by name, not drawn."""

    def __init__(self, folder: Path, kind: Kind | None = None):
        items = need_file(folder, "items_shuffle")
        if items.stat().st_size > IN_MEMORY:
            raise SeedbenchError(f"{items} is too large to hold in memory: run `seedbench data import webshop` on it.")
        human = find_file(folder, "items_human_ins")
        products = read_products(items, need_file(folder, "items_ins_v2"), human)
        prices = frozen_prices(products)
        if kind is None:
            kind = "human" if sum(len(p.human) for p in products) >= MANY else "synthetic"
        self._goals = frozen_goals(products, prices, kind)
        if not self._goals:
            raise SeedbenchError(f'{folder} holds no {kind} goals; choose goals="synthetic" or "human" that it holds.')
        if kind == "human" and len(self._goals) < MANY:
            warnings.warn(
                f"{folder} holds only {len(self._goals)} human goals: a subset's goals are synthetic.", stacklevel=4
            )
        self._ids = goal_ids(self._goals, kind)
        self._by_id = dict(zip(self._ids, self._goals, strict=True))
        self.catalogue = MemoryCatalogue(products, prices)
        tagged = find_file(folder, "title_nouns")
        self.nouns = None
        if tagged is not None:
            nouns = read_json(tagged)
            if not are_nouns(nouns):
                raise SeedbenchError(f"{tagged} is no list of the nouns of each title; remove it.")
            try:
                self.nouns = ListedNouns((p.title for p in products), nouns)
            except ValueError:
                raise SeedbenchError(f"{tagged} is not of these products (more or fewer); remove it.") from None

    @cached_property
    def _splits(self) -> dict[str, tuple[Task, ...]]:
        return {
            split: tuple(Task(self._ids[i], ENV_ID, split, self._goals[i].category) for i in positions)
            for split, positions in split_goals(self._goals, self._ids).items()
        }

    def tasks(self, split: str) -> tuple[Task, ...]:
        check_split(split, len(self._splits.get(split, ())))
        return self._splits[split]

    def goal(self, task_id: str) -> Goal:
        try:
            return self._by_id[task_id]
        except KeyError:
            raise SeedbenchError(f"No WebShop task has the id {task_id[:80]!r}; list them with tasks(split).") from None

    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        by_product = groupby(zip(self._ids, self._goals, strict=True), key=lambda named: named[1].asin)
        return dataset_digest(self.catalogue, (goals_fingerprint(*zip(*named, strict=True)) for _, named in by_product))


def dataset_digest(catalogue: Catalogue, fingerprints: Iterable[bytes]) -> str:
    """Digest of a catalogue and of the goals of its products, in file order."""
    whole = hashlib.sha256(f"webshop-goals-2 {catalogue.digest()}".encode())
    for one in fingerprints:
        whole.update(one)
    return whole.hexdigest()


def find_file(folder: Path, stem: str) -> Path | None:
    """The file of `folder` that is called so, whichever its size and packing."""
    names = (f"{stem}{size}{end}" for size in ("", "_1000") for end in (".json", ".json.xz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def need_file(folder: Path, stem: str) -> Path:
    """The same; raises SeedbenchError where there is none."""
    path = find_file(folder, stem)
    if path is None:
        raise SeedbenchError(f"{folder} holds no {stem}.json or {stem}_1000.json (or .xz); give the original's folder.")
    return path


def open_dataset(data: str | Path, goals: str = "auto") -> Dataset:
    """The data set of `data`, opened once a process. `goals` is auto, synthetic or human.

    auto takes the human goals where there are a thousand or more. Raises SeedbenchError for what cannot be opened.
    """
    if goals not in ("auto", "synthetic", "human"):
        raise SeedbenchError(f"There are no {goals!r} goals; choose auto, synthetic or human.")
    return _open(str(data), goals)


@lru_cache(maxsize=4)
def _open(data: str, goals: str) -> Dataset:
    from seedbench.envs.webshop import mini  # which builds on the nouns above

    if data == "mini":
        return mini.open_mini()
    folder = Path(data)
    if (folder / mini.SHOP).is_file():
        return mini.open_generated(folder)
    if not folder.is_dir():
        raise SeedbenchError(f'{data} is no folder; give "mini" or the folder of the original\'s items_shuffle files.')
    kinds: dict[str, Kind] = {"synthetic": "synthetic", "human": "human"}
    if (folder / STORE).is_dir():
        from seedbench.envs.webshop.store import Imported  # which builds on the nouns above

        return Imported(folder, kinds.get(goals))
    return Folder(folder, kinds.get(goals))
