"""The second half of an import: the parts put together into one search index and one store.

The store's head is written last and names the index's digest, so that a folder without it holds no catalogue.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.core import stream
from seedbench.envs.webshop.goals import SPLIT_SIZE, Kind, paper_goals, split_of, weight_of
from seedbench.envs.webshop.nouns import nouns_digest
from seedbench.envs.webshop.parts import KINDS, Part
from seedbench.indexes import store
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.merging import merge
from seedbench.indexes.store import Pieces, Strings

KIND = "webshop-store-1"
INDEX = "index"
HELD = ("train", "dev", "seen", "unseen")
_HEAD: store.Types = {"key": str, "products": int, "digest": str, "index": str, "categories": list,
                      "nouns": (str, type(None)), **dict.fromkeys(KINDS, dict)}  # fmt: skip
_ARRAYS = {"rows.data": "u1", "rows.offsets": "i8", "rows_by_rank": "i4", "ranks": "i4", "prices": "f8",
           "category": "u2", "title_keys": "u8", "title_rows": "i4"}  # fmt: skip
_GOALS = {"owners": "i4", "first": "i8", "names": "u4", "weights": "f8", **dict.fromkeys((*HELD, "paper"), "i4")}


def finish(parts: Sequence[Part], key: str, folder: Path, scratch: Path, report: Callable[[float], None]) -> None:
    """Write `folder`/index and then `folder`. `report` is given the share that is done, 0 to 1."""
    asins = [asin for part in parts for asin in part.strings("asins")]
    order = sorted(range(len(asins)), key=asins.__getitem__)
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    postings = merge([part.postings for part in parts], ranks, scratch)
    report(0.4)
    documents = np.concatenate([part.arrays()["documents"].reshape(-1, 32) for part in parts])
    corpus = hashlib.sha256(documents[order].tobytes()).hexdigest()
    index = Bm25.of_postings(postings, corpus, Strings.of(asins[i] for i in order))
    index.save(folder / INDEX)
    report(0.6)
    arrays: dict[str, Any] = {"rows_by_rank": np.array(order, np.int32), "ranks": ranks}
    categories = sorted({category for part in parts for category in set(part.strings("categories"))})
    arrays |= _joined(parts, "rows") | _titles(parts)
    arrays["category"] = _numbers(parts, categories)
    arrays["prices"] = np.concatenate([part.arrays()["prices"] for part in parts])
    digest = _catalogue_digest(parts, asins, order, arrays["prices"])
    meta: dict[str, Any] = {"key": key, "products": len(asins), "digest": digest, "index": index.digest(),
                            "categories": categories}  # fmt: skip
    meta["nouns"] = None
    if all(part.meta["tagged"] for part in parts):
        meta["nouns"] = nouns_digest(json.loads(found) for part in parts for found in part.strings("nouns"))
    for kind in KINDS:
        fingerprint = hashlib.sha256(f"webshop-goals-2 {digest}".encode())
        for one in _digests(parts, f"{kind}.fingerprints"):
            fingerprint.update(one)
        meta[kind] = {"digest": fingerprint.hexdigest()}
        arrays |= {
            f"{kind}.{name}": found
            for name, found in _goal_table(parts, kind, asins, [categories[i] for i in arrays["category"]]).items()
        }
    report(0.7)
    store.write(folder, KIND, meta, arrays)
    report(1.0)


def check_head(folder: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raises SeedbenchError where head and arrays are not of the shape that `finish` gives them."""
    goals = {f"{kind}.{name}": dtype for kind in KINDS for name, dtype in _GOALS.items()}
    store.need(folder, meta, arrays, _HEAD, _ARRAYS | goals)
    products = meta["products"]
    lengths = dict.fromkeys(("rows_by_rank", "ranks", "prices", "category", "title_keys", "title_rows"), products)
    lengths["rows.offsets"] = products + 1
    for kind in KINDS:
        owners = len(arrays[f"{kind}.owners"])
        lengths |= {f"{kind}.first": owners + 1, f"{kind}.weights": owners}
        store.need(folder, meta[kind], arrays, {"digest": str}, {})
    store.need(folder, meta, arrays, {}, _ARRAYS | goals, lengths)


def _catalogue_digest(parts: Sequence[Part], asins: Sequence[str], order: Sequence[int], prices: np.ndarray) -> str:
    """MemoryCatalogue.digest, that is prompts.sha256_json of all products and prices, without holding them."""
    whole = hashlib.sha256(b"[[")
    for number, part in enumerate(parts):
        lines = (row.partition("\n")[0] for row in part.strings("rows"))
        products = (
            line[: line.rindex(",")] + "]" if ordered else _canonical(json.loads(line)[:-1])
            for line, ordered in zip(lines, part.arrays()["ordered"], strict=True)
        )
        text = ("," if number and part.meta["products"] else "") + ",".join(products)
        whole.update(text.encode("utf-8", "surrogatepass"))
    whole.update(b"],[")
    for number, row in enumerate(order):
        text = ("," if number else "") + _canonical([asins[row], float(prices[row])])
        whole.update(text.encode("utf-8", "surrogatepass"))
    whole.update(b"]]")
    return whole.hexdigest()


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _digests(parts: Iterable[Part], name: str) -> Iterator[bytes]:
    for part in parts:
        yield from (row.tobytes() for row in part.arrays()[name].reshape(-1, 32))


def _joined(parts: Sequence[Part], name: str) -> dict[str, Any]:
    """The strings that the parts hold under `name`, as one array that is never held."""
    offsets, total = [np.zeros(1, np.int64)], 0
    for part in parts:
        offsets.append(part.strings(name).offsets[1:] + total)
        total = int(offsets[-1][-1]) if len(offsets[-1]) else total
    pieces = Pieces(np.dtype(np.uint8), total, (part.strings(name).data for part in parts))
    return {f"{name}.data": pieces, f"{name}.offsets": np.concatenate(offsets)}


def title_key(title: str) -> int:
    """A title as a number of 64 bits, to find it by."""
    return int.from_bytes(hashlib.sha256(title.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _titles(parts: Iterable[Part]) -> dict[str, np.ndarray]:
    """Keys of all titles, ascending, and the row of each."""
    keys = np.array([title_key(title) for part in parts for title in part.strings("titles")], np.uint64)
    order = np.argsort(keys, kind="stable").astype(np.int32)
    return {"title_keys": keys[order], "title_rows": order}


def _numbers(parts: Sequence[Part], categories: Sequence[str]) -> np.ndarray:
    """uint16 [products]: each one's category, as a number in the sorted list of them."""
    number = {category: i for i, category in enumerate(categories)}
    return np.array([number[found] for part in parts for found in part.strings("categories")], np.uint16)


def _goal_table(
    parts: Sequence[Part], kind: Kind, asins: Sequence[str], categories: Sequence[str]
) -> dict[str, np.ndarray]:
    """The goals of one kind in file order: `owners` int32 the rows with goals, `first` int64 the number of each one's
    first goal, `names` uint32 the digest in each goal's id, `weights` float64 by owner; then the splits."""
    counts = np.concatenate([part.arrays()[f"{kind}.counts"] for part in parts])
    names = np.concatenate([part.arrays()[f"{kind}.names"] for part in parts])
    owners = np.flatnonzero(counts).astype(np.int32)
    first = np.concatenate(([0], np.cumsum(counts[owners]))).astype(np.int64)
    weights = np.ones(len(owners))
    if kind == "synthetic":
        wished: Multiset[str] = Multiset()
        for part in parts:
            wished.update(part.meta["wished"])
        wishes = (json.loads(wish) for part in parts for wish in part.strings("wishes"))
        weights = np.array([weight_of(wish, wished) for wish, n in zip(wishes, counts, strict=True) if n], np.float64)
    table: dict[str, np.ndarray] = {"owners": owners, "first": first, "names": names, "weights": weights}
    code = np.array([HELD.index(split_of(asins[row], categories[row])) for row in owners.tolist()], np.int8)
    of_goal = np.repeat(code, np.diff(first))
    for number, split in enumerate(HELD):
        goals = np.flatnonzero(of_goal == number).astype(np.int32)
        if split in ("dev", "seen"):
            goals = np.array(_drawn(goals, table, asins), np.int32)
        table[split] = goals
    table["paper"] = np.array(paper_goals(len(names)), np.int32)
    return table


def _drawn(goals: np.ndarray, table: dict[str, np.ndarray], asins: Sequence[str]) -> list[int]:
    """The goals that goals.split_goals would draw, ascending."""
    owner_of = np.searchsorted(table["first"], goals, "right") - 1
    named = zip(goals.tolist(), owner_of.tolist(), strict=True)
    drawn = (
        (
            stream(
                "webshop-draw", goal_name(asins[table["owners"][owner]], table["names"], table["first"][owner], goal)
            ),
            goal,
        )
        for goal, owner in named
    )
    return sorted(goal for _, goal in heapq.nsmallest(SPLIT_SIZE, drawn))


def goal_name(asin: str, names: np.ndarray, first: int, goal: int) -> str:
    """The id of a goal as goals.goal_ids gives it; `first` is the number of its product's first goal."""
    digest = names[goal]
    times = 1 + int(np.count_nonzero(names[first:goal] == digest))
    return f"{asin}-{digest:08x}" if times == 1 else f"{asin}-{digest:08x}-{times}"
