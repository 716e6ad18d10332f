"""Reciprocal rank fusion: by hand, in any order of ties, and as an index folder of two parts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import bm25_folder, hybrid
from seedbench.indexes import folder as folders
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.dense import Dense
from seedbench.indexes.hybrid import Hybrid, fuse
from tests.conftest import need
from tests.test_dense import Bag, hotpot, passages, recall, written


def listed(ids: str) -> list[Passage]:
    return [Passage(id, "", f"text of {id}", 9.0) for id in ids]


class Fixed:
    """A retriever that gives the same list for every query, and remembers how many hits it was asked for."""

    kind, asked = "fixed", 0

    def __init__(self, ids: str, exact: bool = True):
        self.ids, self.exact, self.closed = ids, exact, False

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked = k
        return [listed(self.ids[:k]) if query.strip() else [] for query in queries]

    def digest(self) -> str:
        return self.ids

    def close(self) -> None:
        self.closed = True


def test_two_lists_by_hand() -> None:
    """a: 1/61 + 1/62; b: 1/62 + 1/61, the same, so a is first; c: 1/63 twice; d: 1/64 once."""
    found = fuse([listed("abcd"), listed("bac")], 10)
    assert [hit.id for hit in found] == ["a", "b", "c", "d"]
    assert [hit.score for hit in found] == [1 / 61 + 1 / 62, 1 / 61 + 1 / 62, 1 / 63 + 1 / 63, 1 / 64]
    assert found[0].text == "text of a"


def test_the_constant_decides_between_one_first_place_and_two_middling_ones() -> None:
    lists = [listed("aypb"), listed("qrsb")]  # a is first once, b fourth twice
    assert [hit.id for hit in fuse(lists, 1, constant=60)] == ["b"]  # 2/64 > 1/61
    assert [hit.id for hit in fuse(lists, 1, constant=0)] == ["a"]  # 2/4 < 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.permutations("abcdefgh"), min_size=1, max_size=3), st.integers(1, 10), st.integers(0, 100))
def test_against_a_plain_sum(orders: list[list[str]], k: int, constant: int) -> None:
    found = fuse([listed("".join(order)) for order in orders], k, constant)
    scores = {id: math.fsum(1 / (constant + order.index(id) + 1) for order in orders) for id in "abcdefgh"}
    assert len(found) == min(k, 8) and all(hit.score == pytest.approx(scores[hit.id]) for hit in found)
    assert [(-hit.score, hit.id) for hit in found] == sorted((-hit.score, hit.id) for hit in found)
    left_out = set("abcdefgh") - {hit.id for hit in found}
    assert all(scores[id] <= found[-1].score + 1e-12 for id in left_out)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_one_list_a_query(count: int) -> None:
    every = passages(30)
    retriever = Hybrid([Bm25(every), Dense.of(every, Bag())])
    queries = [every[i % 30].text for i in range(count)]
    found = retriever.search(queries, 3)
    assert len(found) == count and all(hits[0].text == query for hits, query in zip(found, queries, strict=True))
    assert found == [retriever.search([query], 3)[0] for query in queries]


def test_depth_k_and_nothing_asked() -> None:
    first, second = Fixed("abc"), Fixed("cd")
    retriever = Hybrid([first, second], depth=2)
    assert [hit.id for hit in retriever.search(["x"], 1)[0]] == ["a"] and first.asked == second.asked == 2
    assert [hit.id for hit in retriever.search(["x"], 100)[0]] == ["c", "a", "b", "d"] and first.asked == 100
    assert retriever.search(["", " \n"], 3) == [[], []]
    with pytest.raises(SeedbenchError, match="k is 0"):
        retriever.search(["x"], 0)
    retriever.close()
    assert first.closed and second.closed


def test_the_digest_names_both_parts_and_the_settings() -> None:
    def digest(*parts: str, **own: int) -> str:
        return Hybrid([Fixed(part) for part in parts], **own).digest()

    every = [
        digest("a", "b"),
        digest("b", "a"),
        digest("a", "c"),
        digest("a", "b", constant=61),
        digest("a", "b", depth=9),
    ]
    assert len(set(every)) == 5 and digest("a", "b") == every[0]
    assert Hybrid([Fixed("a"), Fixed("b")]).exact and not Hybrid([Fixed("a"), Fixed("b", exact=False)]).exact


@pytest.mark.parametrize("constant, depth", [(-1, 5), (60, 0), (1.5, 5)])
def test_settings_out_of_range(constant: Any, depth: int) -> None:
    with pytest.raises(SeedbenchError, match="whole numbers"):
        Hybrid([Fixed("a")], constant, depth)


def test_a_folder_of_two_parts_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(find_spec("wordllama"), "wordllama is not installed")
    corpus, own = written(tmp_path / "c.jsonl", 300), {"k1": 1.2, "b": 0.75, "depth": 50}

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "index" and (tmp_path / "i" / "dense").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folders.build("hybrid", corpus, tmp_path / "i", own, stop, lambda line: None)
    monkeypatch.setattr(bm25_folder, "build", lambda *a: pytest.fail("the part that was done is built again"))
    manifest = folders.build("hybrid", corpus, tmp_path / "i", own, say=lambda line: None)
    retriever: Any = folders.open_index(tmp_path / "i")
    memory = Hybrid([Bm25(passages(300), 1.2, 0.75), Dense.of(passages(300))], depth=50)
    assert retriever.exact and retriever.digest() == memory.digest() == manifest["digest"]
    queries = ["amber basil pearl", "fjord", ""]
    assert retriever.search(queries, 7) == memory.search(queries, 7)
    assert json.loads((tmp_path / "i" / "lexical" / "facts.json").read_text()) == manifest["facts"]["lexical"]


def test_an_unknown_lexical_part() -> None:
    with pytest.raises(SeedbenchError, match="no lexical index 'dense': choose one of bm25, lucene"):
        hybrid.bytes_needed(1, 1, {"lexical": "dense"})


def test_recall_on_real_questions(shared_data: Path) -> None:
    need(find_spec("wordllama"), "wordllama is not installed")
    every, questions, golds = hotpot(shared_data)
    lexical = Bm25(every, 1.2, 0.75)
    assert recall(lexical, questions, golds) == [0.645, 0.76, 0.915]
    assert recall(Hybrid([lexical, Dense.of(every)]), questions, golds) == [0.625, 0.74, 0.885]
