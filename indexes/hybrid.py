"""Two retrievers in one by reciprocal rank: a lexical one (bm25 or lucene) and a dense one.

    score(passage) = sum over the lists that hold it of  1 / (constant + rank),  rank from 1

after Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009, whose constant is 60.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbench.core import Passage, Retriever, SeedbenchError
from seedbench.indexes import dense
from seedbench.indexes import folder as folders
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.scanning import Report

KIND = "hybrid-1"
CONSTANT, DEPTH = 60, 100
LEXICAL = ("bm25", "lucene")
SETTINGS: dict[str, Any] = {
    "lexical": "bm25", "k1": None, "b": None, "constant": CONSTANT, "depth": DEPTH, **dense.SETTINGS,
}  # fmt: skip
PARTS = ("lexical", "dense")
_DONE = "facts.json"  # in the folder of a part that is built


class Hybrid:
    """The fusion of retrievers over the same corpus; `depth` hits of each are fused, or k where that is more."""

    kind = "hybrid"

    def __init__(self, parts: Sequence[Retriever], constant: int = CONSTANT, depth: int = DEPTH):
        if not isinstance(constant, int) or constant < 0 or not isinstance(depth, int) or depth < 1:
            raise SeedbenchError(f"constant is {constant!r} and depth {depth!r}: give whole numbers from 0 and 1 up.")
        self._parts, self._constant, self._depth = tuple(parts), constant, depth
        self.exact = all(getattr(part, "exact", False) for part in parts)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first, ties by id; [] where no part finds any."""
        if k < 1:
            raise SeedbenchError(f"k is {k}: ask for 1 hit or more.")
        lists = [part.search(queries, max(k, self._depth)) for part in self._parts]
        return [fuse([found[i] for found in lists], k, self._constant) for i in range(len(queries))]

    def digest(self) -> str:
        """Names both parts by their digests, the constant and the depth."""
        said = [KIND, self._constant, self._depth, [part.digest() for part in self._parts]]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def close(self) -> None:
        """Close the parts."""
        for part in self._parts:
            if close := getattr(part, "close", None):
                close()


def fuse(lists: Sequence[Sequence[Passage]], k: int, constant: int = CONSTANT) -> list[Passage]:
    """The k passages with the largest sums of 1 / (constant + rank); ties by id. Sums go through the lists in order."""
    sums: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for found in lists:
        for rank, passage in enumerate(found, 1):
            sums[passage.id] = sums.get(passage.id, 0.0) + 1 / (constant + rank)
            passages.setdefault(passage.id, passage)
    best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:k]
    return [passages[id]._replace(score=score) for id, score in best]


def bytes_needed(count: int, text_bytes: int, settings: Mapping[str, Any]) -> int:
    """What both parts need."""
    parts = _settings(settings)
    return sum(folders.module(kind).bytes_needed(count, text_bytes, own) for kind, own in parts.values())


def build(corpus: Corpus, folder: Path, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Both parts, each in a folder of its own; one that is done is not built again after a kill."""
    facts = {}
    for name, (kind, own) in _settings(settings).items():
        (folder / name).mkdir(exist_ok=True)
        done = folder / name / _DONE
        if not done.exists():
            found = folders.module(kind).build(corpus, folder / name, own, report)
            folders.write_text(done, json.dumps(found))
        facts[name] = json.loads(done.read_text(encoding="utf-8"))
    return facts


def open(folder: Path, manifest: Mapping[str, Any], corpus: Corpus) -> Hybrid:
    """A built index. Raises SeedbenchError where a part does."""
    settings = SETTINGS | dict(manifest["settings"])
    parts = []
    for name, (kind, own) in _settings(settings).items():
        said = {**manifest, "kind": kind, "settings": own, "facts": manifest["facts"].get(name, {})}
        parts.append(folders.module(kind).open(folder / name, said, corpus))
    return Hybrid(parts, settings["constant"], settings["depth"])


def _settings(settings: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Kind and settings of each part, by its name."""
    whole = SETTINGS | dict(settings)
    if whole["lexical"] not in LEXICAL:
        raise SeedbenchError(f"There is no lexical index {whole['lexical']!r}: choose one of {', '.join(LEXICAL)}.")
    lexical = folders.checked(whole["lexical"], {name: whole[name] for name in ("k1", "b")})
    return {"lexical": (whole["lexical"], lexical),
            "dense": ("dense", {name: whole[name] for name in dense.SETTINGS})}  # fmt: skip
