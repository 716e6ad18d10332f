"""Generated shops that were written down: the embedded `mini` set, and folders that `data generate` makes.

A set is two files: a manifest, and the shop as lines `["item", {...}]` and `["goal", id, {...}]`. Both hold plain
data, not seeds: a later change of the generator changes no exam. A task's digest covers its goal with the price bound,
and its product with price and nouns; the manifest's header has the digest of the whole catalogue, which decides what
a search finds.

    python -m seedbench.envs.webshop.mini       # writes the committed files; run once for a release of the set
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.manifests import Manifest, Row
from seedbench.envs.webshop.catalogue import MemoryCatalogue
from seedbench.envs.webshop.data import ENV_ID, SPLITS, Dataset
from seedbench.envs.webshop.generate import generate
from seedbench.envs.webshop.goals import Goal
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.stock import Item, price_text
from seedbench.prompts import sha256_json

LISTED = "webshop_mini"
SHOP, LISTING = "seedbench-shop.jsonl.xz", "seedbench-shop-manifest.jsonl.xz"  # in a folder of a generated shop
SIZES = {"train": 1200, "dev": 120, "seen": 240, "unseen": 240}


class Frozen(Dataset):
    """A frozen shop. Raises SeedbenchError where its file is damaged or is not the one of the manifest."""

    def __init__(self, manifest: Manifest, packed: bytes, where: str, committed: bool):
        self.manifest, self._where, self._committed = manifest, where, committed
        try:
            lines = [json.loads(line) for line in lzma.decompress(packed).splitlines()]
            records = [line[1] for line in lines if line[0] == "item"]
            items = [_item(record) for record in records]
            self._goals = {line[1]: line[2] for line in lines if line[0] == "goal"}
        except (lzma.LZMAError, ValueError, LookupError, TypeError) as error:
            raise SeedbenchError(f"{where} cannot be read ({error}); generate or install it again.") from error
        self.catalogue = MemoryCatalogue([i.product for i in items], {i.product.asin: i.price for i in items})
        self.nouns = {i.product.title: i.nouns for i in items}
        self._items = {i.product.asin: i for i in items}
        if sha256_json(records) != manifest.header.get("catalogue"):
            raise SeedbenchError(f"{where} does not hold the products of its manifest; generate or install it again.")

    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in SPLITS:
            raise SeedbenchError(f"WebShop has no split {split!r}; choose one of {', '.join(SPLITS)}.")
        if split not in self._splits:
            raise SeedbenchError(f"A generated shop has no goals of the split {split}; give data=DIR or another split.")
        return self._splits[split]

    @cached_property
    def _splits(self) -> dict[str, tuple[Task, ...]]:
        splits: dict[str, list[Task]] = {}
        for row in self.manifest.rows.values():
            splits.setdefault(row.split, []).append(Task(row.id, ENV_ID, row.split, row.kind, row.options))
        return {split: tuple(tasks) for split, tasks in splits.items()}

    def goal(self, task_id: str) -> Goal:
        row = self.manifest.rows.get(task_id)
        if row is None:
            raise SeedbenchError(f"No WebShop task has the id {task_id[:80]!r}; list them with tasks(split).")
        goal = Goal.from_record(self._goals.get(task_id, {}))
        if goal.asin not in self._items or digest_of(goal, self._items[goal.asin]) != row.digest:
            raise SeedbenchError(f"The goal {task_id} in {self._where} is not the manifest's; install it again.")
        return goal

    def digest(self) -> str:
        return self.manifest.digest

    def pinned(self, split: str) -> bool:
        return self._committed and split in self._splits


def _record(item: Item) -> dict[str, Any]:
    """An item as JSON, without the product's fields that only published files fill."""
    left_out = ("image", "instruction", "instruction_attributes", "human", "price_text")
    product = {name: value for name, value in asdict(item.product).items() if name not in left_out}
    return {**product, "price": item.price, "nouns": item.nouns}


def _item(record: Mapping[str, Any]) -> Item:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    price, nouns = float(fields.pop("price")), fields.pop("nouns")
    fields["options"] = {name: tuple(values) for name, values in fields["options"].items()}
    return Item(Product(**fields, price_text=price_text(fields["prices"])), price, nouns)


def digest_of(goal: Goal, item: Item) -> str:
    """sha256 hex of what a task asks for and of the product that it wants."""
    return sha256_json([goal.to_record(), _record(item)])


def open_mini() -> Frozen:
    """The embedded shop."""
    packed = (resources.files("seedbench.envs.webshop") / "mini.jsonl.xz").read_bytes()
    return Frozen(manifests.load(LISTED), packed, "the embedded shop", committed=True)


def open_generated(folder: Path) -> Frozen:
    """A shop that `write_set` left in a folder. Raises SeedbenchError where it is missing or damaged."""
    try:
        manifest = manifests.parse((folder / LISTING).read_bytes())
        packed = (folder / SHOP).read_bytes()
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise SeedbenchError(f"The shop in {folder} cannot be read ({error}); generate it again.") from error
    return Frozen(manifest, packed, str(folder / SHOP), committed=False)


def write_set(
    listing: Path,
    shop_file: Path,
    *,
    prefix: str,
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Generate a shop and write its manifest and its content. Ids are `prefix/split/category-0007`."""
    shop = generate(seed, level, sizes)
    items = {item.product.asin: item for item in shop.items}
    rows: list[Row] = []
    records = [_record(item) for item in shop.items]
    lines: list[list[Any]] = [["item", record] for record in records]
    for split, goals in shop.goals.items():
        count: Counter[str] = Counter()
        for goal in goals:
            name = f"{prefix}/{split}/{goal.category}-{count[goal.category]:04}"
            count[goal.category] += 1
            rows.append(Row(name, goal.category, split, digest_of(goal, items[goal.asin]), {"family": goal.query}))
            lines.append(["goal", name, goal.to_record()])
            progress(len(rows), sum(sizes.values()))
    header = {"env": ENV_ID, "set": prefix, "seed": seed, "level": level, "catalogue": sha256_json(records)}
    manifests.write(listing, header, rows)
    manifests.write_lines(shop_file, lines)


def write_mini(listing: Path, shop_file: Path) -> None:
    """Write the embedded set. It is an exam paper: once released it is never written again."""
    write_set(listing, shop_file, prefix="mini", seed=0, level=2, sizes=SIZES)


def generate_into(
    folder: Path, *, seed: int, level: int, sizes: Mapping[str, int], progress: Callable[[int, int], None]
) -> Frozen:
    """Generate a shop of one's own into a folder that `--data` takes; its results are unpinned."""
    files, prefix = (folder / LISTING, folder / SHOP), f"generated-{seed}-{level}"
    write_set(*files, prefix=prefix, seed=seed, level=level, sizes=sizes, progress=progress)
    return open_generated(folder)


if __name__ == "__main__":
    write_mini(Path(manifests.__file__).with_name(f"{LISTED}.jsonl.xz"), Path(__file__).with_name("mini.jsonl.xz"))
