"""The first half of an import: the original's files read once, and put down in parts of some thousand products.

A part is a folder of arrays (indexes.store) that appears whole or not at all and says at which byte of the product
file the next one starts; so a kill loses the part in work and no more. Nothing but one part is ever held in memory.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sqlite3
from collections import Counter as Multiset
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.goals import Kind, frozen_goals_of, frozen_price, goal_ids, goals_fingerprint
from seedbench.envs.webshop.nouns import Spacy, are_nouns
from seedbench.envs.webshop.products import Product, preprocess, to_line
from seedbench.envs.webshop.streaming import JsonStream
from seedbench.indexes import store
from seedbench.indexes.bm25 import document_digest
from seedbench.indexes.postings import Counter, Postings
from seedbench.indexes.store import Strings

KIND = "webshop-part-1"
PART = 4096  # products; some seconds of work
_HEAD = {"products": int, "counted": list, "wished": dict, "tagged": bool, "next": int, "last": bool}
KINDS: tuple[Kind, ...] = ("synthetic", "human")


class Sources(NamedTuple):
    """The files of one import. `tagger` tags titles where no file of `nouns` came with them."""

    items: Path
    attributes: Path
    human: Path | None
    nouns: Path | None
    tagger: Spacy | None


class Part(NamedTuple):
    """A finished part: its folder, and what was found in its head."""

    folder: Path
    meta: Mapping[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, mapped."""
        return store.read(self.folder, KIND, check=False)[1]

    def strings(self, name: str) -> Strings:
        arrays = self.arrays()
        return Strings(arrays[f"{name}.data"], arrays[f"{name}.offsets"])

    def postings(self) -> Postings:
        """The terms of its products, numbered as they come."""
        found = self.arrays()
        documents, length, total = self.meta["counted"]
        terms = list(self.strings("terms"))
        return Postings(terms, found["starts"], found["docs"], found["codes"], found["pairs"], documents, length, total)


class SideFile(Mapping[str, Any]):
    """One of the original's files {asin: ...}, any size, by asin. Its copy for that is scratch in `folder`."""

    def __init__(self, path: Path | None, folder: Path):
        where = folder / f"{path.name if path else 'none'}.sqlite"
        where.unlink(missing_ok=True)  # of an interrupted import: whether it is whole is not worth asking
        self._table = table = sqlite3.connect(where)
        table.execute("PRAGMA journal_mode=OFF")
        table.execute("PRAGMA synchronous=OFF")
        table.execute("CREATE TABLE side (asin BLOB PRIMARY KEY, record TEXT) WITHOUT ROWID")
        pairs = JsonStream(path).pairs() if path else iter(())
        rows = ((_key(asin), json.dumps(record)) for asin, record in pairs)
        table.executemany("INSERT OR REPLACE INTO side VALUES (?, ?)", rows)  # the last of a key counts, as for JSON
        table.commit()

    def __getitem__(self, asin: str) -> Any:
        row = self._table.execute("SELECT record FROM side WHERE asin = ?", (_key(asin),)).fetchone()
        if row is None:
            raise KeyError(asin)
        return json.loads(row[0])

    def __len__(self) -> int:
        return int(self._table.execute("SELECT COUNT(*) FROM side").fetchone()[0])

    def __iter__(self) -> Iterator[str]:
        for (key,) in self._table.execute("SELECT asin FROM side"):
            yield key.decode("utf-8", "surrogatepass")

    def close(self) -> None:
        self._table.close()


def _key(asin: str) -> bytes:
    return asin.encode("utf-8", "surrogatepass")


def finished(folder: Path) -> list[Part]:
    """The parts that are there, verified, in order; what follows a gap or a damaged one is removed."""
    found: list[Part] = []
    for number in itertools.count():
        try:
            here = _folder(folder, number)
            meta, arrays = store.read(here, KIND)
            store.need(here, meta, arrays, _HEAD, {})
            found.append(Part(here, meta))
        except SeedbenchError:
            break
    for left in folder.glob("part-*"):
        if re.fullmatch(r"part-[0-9]{6,}", left.name) and int(left.name.removeprefix("part-")) >= len(found):
            shutil.rmtree(left)
    return found


def _folder(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06}"


def read_parts(sources: Sources, folder: Path, report: Callable[[int], None]) -> list[Part]:
    """Bring the parts in `folder` to the end of the files. `report` is given the bytes of the product file read.

    Raises SeedbenchError for files that are missing, broken or of another shape.
    """
    parts = finished(folder)
    seen = {asin for part in parts for asin in part.strings("asins")}
    if parts and parts[-1].meta["last"]:
        return parts
    stream = JsonStream(sources.items, parts[-1].meta["next"] if parts else 0)
    known, human = SideFile(sources.attributes, folder), SideFile(sources.human, folder)
    products = preprocess(stream.items(), known, human, seen)
    nouns = _nouns_from(sources.nouns, sum(part.meta["products"] for part in parts))
    last = False
    while not last:
        batch = list(itertools.islice(products, PART))
        if not batch and not parts:
            raise SeedbenchError(f"{sources.items} holds no product; give the original's items_shuffle file.")
        last = len(batch) < PART
        tagged = _tag(batch, sources, nouns, last)
        here = _folder(folder, len(parts))
        meta, arrays = build_part(batch, tagged)
        store.write(here, KIND, {**meta, "next": stream.position(), "last": last}, arrays)
        parts.append(Part(here, meta | {"next": stream.position(), "last": last}))
        report(stream.consumed() if not last else sources.items.stat().st_size)
    known.close()
    human.close()
    return parts


def _nouns_from(path: Path | None, skip: int) -> Iterator[Any]:
    return itertools.islice(JsonStream(path).items(), skip, None) if path else iter(())


def _tag(batch: list[Product], sources: Sources, nouns: Iterator[Any], last: bool) -> list[Any] | None:
    """Nouns of the titles of `batch`; None where nobody tags."""
    if sources.nouns is None:
        return None if sources.tagger is None else list(sources.tagger.many([p.title for p in batch]))
    found = list(itertools.islice(nouns, len(batch)))
    if len(found) < len(batch) or (last and next(nouns, None) is not None):
        raise SeedbenchError(f"{sources.nouns} is not of these products (it holds more or fewer); remove it.")
    if not are_nouns(found):
        raise SeedbenchError(f"{sources.nouns} is no list of the nouns of each title; remove it.")
    return found


def build_part(batch: list[Product], tagged: list[Any] | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Head and arrays of a part: rows, prices, categories, postings, and the goals of both kinds in short."""
    prices = [frozen_price(p) for p in batch]
    lines = [to_line(p, price) for p, price in zip(batch, prices, strict=True)]
    said = [json.dumps([[s.text, s.attributes, s.options] for s in p.human]) for p in batch]
    nouns = [json.dumps(found) for found in tagged] if tagged is not None else [""] * len(batch)
    counter = Counter()
    contents = [p.contents() for p in batch]
    for text in contents:
        counter.add(text)
    postings = counter.postings(np.arange(len(batch), dtype=np.int32))
    arrays = {
        "prices": np.array(prices, np.float64),
        "ordered": np.array([list(p.options) == sorted(p.options) for p in batch], np.bool_),
        "documents": _bytes(document_digest(p.asin, "", text) for p, text in zip(batch, contents, strict=True)),
        "starts": postings.starts, "docs": postings.docs, "codes": postings.codes, "pairs": postings.pairs,
    }  # fmt: skip
    for name, strings in (
        ("asins", [p.asin for p in batch]),
        ("titles", [p.title for p in batch]),
        ("rows", ["\n".join(row) for row in zip(lines, said, nouns, strict=True)]),
        ("nouns", nouns),
        ("categories", [p.category for p in batch]),
        ("wishes", [json.dumps(p.instruction_attributes) for p in batch]),
        ("terms", postings.terms),
    ):
        arrays |= Strings.of(strings).arrays(name)
    wished: Multiset[str] = Multiset()
    for kind in KINDS:
        counts, names, prints = _goals_in_short(batch, prices, kind)
        arrays |= {f"{kind}.counts": counts, f"{kind}.names": names, f"{kind}.fingerprints": prints}
        if kind == "synthetic":
            for product, count in zip(batch, counts.tolist(), strict=True):
                wished.update({wish: count * n for wish, n in Multiset(product.instruction_attributes).items()})
    meta = {"products": len(batch), "counted": [postings.documents, postings.length, postings.total],
            "wished": wished, "tagged": tagged is not None}  # fmt: skip
    return meta, arrays


def _goals_in_short(batch: list[Product], prices: list[float], kind: Kind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int32 [products] goals of each; uint32 [goals] the digest in a goal's id; uint8 [32 * products with goals]."""
    counts: list[int] = []
    names: list[int] = []
    prints: list[bytes] = []
    for product, price in zip(batch, prices, strict=True):
        goals = list(frozen_goals_of(product, price, kind))
        ids = goal_ids(goals, kind)
        counts.append(len(goals))
        names.extend(int(i[len(product.asin) + 1 :][:8], 16) for i in ids)
        if goals:
            prints.append(goals_fingerprint(ids, goals))
    return np.array(counts, np.int32), np.array(names, np.uint32), _bytes(prints)


def _bytes(digests: Any) -> np.ndarray:
    return np.frombuffer(b"".join(digests), np.uint8)
