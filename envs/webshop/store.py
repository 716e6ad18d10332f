"""An imported catalogue: any number of products behind one read-only store that all processes of a machine share.

    dataset = Imported(folder)                     # what `seedbench data import webshop SOURCE folder` made

Offsets, prices, goals and the search index are mapped into memory; products are read from the file when they are
asked for, because a page that is mapped stays in a process's resident set, while one that is read need not.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbench.core import SeedbenchError, Task
from seedbench.envs.webshop.catalogue import HITS, Catalogue
from seedbench.envs.webshop.data import ENV_ID, MANY, STORE, DataError, Dataset, check_split, reading
from seedbench.envs.webshop.finishing import INDEX, KIND, check_head, goal_name, title_key
from seedbench.envs.webshop.goals import Goal, Kind, frozen_goal
from seedbench.envs.webshop.nouns import KnownNouns
from seedbench.envs.webshop.products import Product, from_line
from seedbench.indexes import store
from seedbench.indexes.bm25 import Bm25

PRODUCTS = 1024  # kept by each process, some 8 kB each
QUERIES = 512
WHOLE = 20_000  # goals: a longer split is a list that makes its tasks when they are asked for
_ID = re.compile(r"(.+)-([0-9a-f]{8})(?:-([0-9]{1,9}))?", re.DOTALL)


class Row(NamedTuple):
    """What the store holds of one product."""

    product: Product
    price: float
    nouns: tuple[str, ...] | None


class MappedCatalogue(Catalogue):
    """The products, prices and search of a finished import. `check` also compares every file with its digest."""

    def __init__(self, folder: Path, check: bool = False):
        self.meta, self.arrays = store.read(folder, KIND, check)
        self._folder = folder
        check_head(folder, self.meta, self.arrays)
        self._index = Bm25.load(folder / INDEX, self.meta["index"], check)
        if len(self._index) != len(self):
            raise SeedbenchError(f"{folder / INDEX} is not of as many products as {folder}: import the files again.")
        self._offsets, self._rows_by_rank, self._ranks, self._prices = (
            self.arrays[name] for name in ("rows.offsets", "rows_by_rank", "ranks", "prices")
        )
        self._file = folder / "rows.data.npy"
        self._fd = os.open(self._file, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd)
        self._start = self._file.stat().st_size - int(self._offsets[-1])  # what comes before is numpy's header
        self.row = lru_cache(maxsize=PRODUCTS)(self._read)
        self._recent = lru_cache(maxsize=QUERIES)(self._search)

    def __len__(self) -> int:
        return int(self.meta["products"])

    def number(self, asin: str) -> int | None:
        """The row of a product, None where there is none."""
        with self.reading():
            rank = bisect_left(self._index.ids, asin)
            if rank < len(self._index.ids) and self._index.ids[rank] == asin:
                return int(self._rows_by_rank[rank])
            return None

    def asin(self, row: int) -> str:
        """The id of the product in a row."""
        with self.reading():
            return str(self._index.ids[int(self._ranks[row])])

    def category(self, row: int) -> str:
        """The category of the product in a row."""
        with self.reading():
            return str(self.meta["categories"][self.arrays["category"][row]])

    def reading(self) -> AbstractContextManager[None]:
        """A block that reads of the store: what damage raises there becomes a DataError."""
        return reading(self._folder)

    def _read(self, row: int) -> Row:
        try:
            start, end = int(self._offsets[row]), int(self._offsets[row + 1])
            if not 0 <= start < end <= self._offsets[-1]:
                raise ValueError(f"it is said to go from byte {start} to {end}")
            raw = os.pread(self._fd, end - start, self._start + start)
            line, human, nouns = raw.decode("utf-8", "surrogatepass").split("\n")
            product, price = from_line(line, json.loads(human))
            return Row(product, price, tuple(json.loads(nouns)) if nouns else None)
        except (ValueError, TypeError, AttributeError, LookupError, OSError, RecursionError) as error:
            raise DataError(f"{self._file} is damaged in row {row} ({error}); import the files again.") from error

    def _need(self, asin: str) -> int:
        row = self.number(asin)
        if row is None:
            # Play asks for what the catalogue listed, so damaged ids come to light here.
            raise DataError(
                f"The catalogue has no product {asin!r}; take the products it came with, and if it listed that, "
                f"run `seedbench data check webshop {self._folder.parent}`."
            )
        return row

    def product(self, asin: str) -> Product:
        row = self._need(asin)
        product = self.row(row).product
        if product.asin != asin:
            raise DataError(f"{self._file} is damaged in row {row} (it is not of {asin}); import the files again.")
        return product

    def price(self, asin: str) -> float:
        row = self._need(asin)
        with self.reading():
            return float(self._prices[row])

    def __contains__(self, asin: object) -> bool:
        return self.number(str(asin)) is not None

    def _search(self, query: str) -> tuple[str, ...]:
        with self.reading():
            return tuple(self._index.ids[number] for number, _ in self._index.top(query, HITS))

    def ids(self) -> Iterator[str]:
        return (self.asin(row) for row in range(len(self)))

    def digest(self) -> str:
        return str(self.meta["digest"])


class StoredNouns(KnownNouns):
    """The nouns of the titles of a catalogue."""

    def __init__(self, catalogue: MappedCatalogue):
        self._catalogue = catalogue
        self.digest = catalogue.meta["nouns"]
        self._keys, self._rows = catalogue.arrays["title_keys"], catalogue.arrays["title_rows"]

    def __getitem__(self, title: str) -> Sequence[str]:
        key = np.uint64(title_key(title))
        at = int(np.searchsorted(self._keys, key))
        while at < len(self._keys) and self._keys[at] == key:
            row = self._catalogue.row(int(self._rows[at]))
            if row.product.title == title and row.nouns is not None:
                return row.nouns
            at += 1
        raise KeyError(title)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return (self._catalogue.row(row).product.title for row in range(len(self)))


class Tasks(Sequence[Task]):
    """A split whose tasks are made when they are asked for."""

    def __init__(self, dataset: Imported, split: str, goals: np.ndarray):
        self._dataset, self._split, self._goals = dataset, split, goals

    def __len__(self) -> int:
        return len(self._goals)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self._task(goal) for goal in self._goals[at])
        return self._task(self._goals[at])

    def _task(self, goal: np.int32) -> Task:
        name, category = self._dataset.named(int(goal))
        return Task(name, ENV_ID, self._split, category)


class Imported(Dataset):
    """The goals of a finished import; human ones where there are a thousand or more, unless `kind` says which."""

    def __init__(self, folder: Path, kind: Kind | None = None, check: bool = False):
        if not (folder / STORE / store.META).exists():
            raise SeedbenchError(
                f"The import into {folder} has not finished: run the same `data import webshop` again."
            )
        self.catalogue: MappedCatalogue = MappedCatalogue(folder / STORE, check)
        arrays = self.catalogue.arrays
        if kind is None:
            kind = "human" if len(arrays["human.names"]) >= MANY else "synthetic"
        self._kind = kind
        self._table = {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith(f"{kind}.")}
        self._owners, self._first, self._names = (self._table[name] for name in ("owners", "first", "names"))
        if not len(self._names):
            raise SeedbenchError(f'{folder} holds no {kind} goals; choose goals="synthetic" or "human" that it holds.')
        self.nouns = StoredNouns(self.catalogue) if self.catalogue.meta["nouns"] else None
        self._recent = lru_cache(maxsize=PRODUCTS)(self._goal)
        self._listed = lru_cache(maxsize=None)(self._list)

    def named(self, goal: int) -> tuple[str, str]:
        """Id and category of a goal, by its number in file order."""
        with self.catalogue.reading():
            owner = int(np.searchsorted(self._first, goal, "right")) - 1
            row = int(self._owners[owner])
            asin = self.catalogue.asin(row)
            return goal_name(asin, self._names, int(self._first[owner]), goal), self.catalogue.category(row)

    def tasks(self, split: str) -> Sequence[Task]:
        check_split(split, len(self._table.get(split, ())))
        return self._listed(split)

    def _list(self, split: str) -> Sequence[Task]:
        tasks = Tasks(self, split, self._table[split])
        return tasks if len(tasks) > WHOLE else tasks[:]

    def goal(self, task_id: str) -> Goal:
        return self._recent(task_id)

    def _goal(self, task_id: str) -> Goal:
        unknown = SeedbenchError(f"No WebShop task has the id {task_id[:80]!r}; list them with tasks(split).")
        found = _ID.fullmatch(task_id)
        row = self.catalogue.number(found[1]) if found else None
        if found is None or row is None:
            raise unknown
        owner = int(self._owners.searchsorted(np.int32(row)))  # of another type would copy the array
        if owner == len(self._owners) or self._owners[owner] != row:
            raise unknown
        with self.catalogue.reading():
            number = self._number(owner, found[2], found[3])
            if number is None:
                raise unknown
            product, price, _ = self.catalogue.row(row)
            return frozen_goal(product, price, self._kind, number, float(self._table["weights"][owner]))

    def _number(self, owner: int, digest: str, again: str | None) -> int | None:
        """Which goal of its product an id means; None where it has none such."""
        names = self._names[self._first[owner] : self._first[owner + 1]]
        alike = np.flatnonzero(names == int(digest, 16))
        times = int(again or 1)
        return int(alike[times - 1]) if 1 <= times <= len(alike) and again != "1" else None

    def digest(self) -> str:
        return str(self.catalogue.meta[self._kind]["digest"])
