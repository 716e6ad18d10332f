"""Cached: never another answer than the retriever's, keyed by its digest, each query asked once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.cache import Cached


class Recorder:
    """Answers each query with k passages that name it and the index; keeps what it was asked."""

    kind, exact = "recorder", False

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.name, self.fails, self.closed = "one", False, False

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.asked.append(list(queries))
        if self.fails:
            raise InfrastructureError("gone")
        return [
            [Passage(f"{self.name}-{i}", query, "", 1.0 - i) for i in range(k)] if query else [] for query in queries
        ]

    def digest(self) -> str:
        return self.name

    def close(self) -> None:
        self.closed = True


def test_a_query_is_asked_once_and_every_answer_is_in_its_place() -> None:
    inner = Recorder()
    cached = Cached(inner, 10)
    first = cached.search(["a", "b", "a", ""], 2)
    assert [[p.title for p in hits] for hits in first] == [["a", "a"], ["b", "b"], ["a", "a"], []]
    assert cached.search(["b", "c", "", "b"], 2) == [first[1], *inner.search(["c"], 2), [], first[1]]
    assert inner.asked[:2] == [["a", "b", ""], ["c"]]
    assert cached.statistics() == {"hits": 4, "misses": 4, "queries": 4, "passages": 6}
    assert (cached.kind, cached.exact, cached.digest()) == ("recorder", False, "one")


def test_the_key_is_digest_k_and_the_query_as_it_stands() -> None:
    inner = Recorder()
    cached = Cached(inner, 10)
    cached.search(["a"], 1)
    assert len(cached.search(["a"], 2)[0]) == 2
    cached.search(["A"], 1)
    cached.search([" a"], 1)
    inner.name = "two"
    assert cached.search(["a"], 1)[0][0].id == "two-0"
    inner.name = "one"
    assert cached.search(["a"], 1)[0][0].id == "one-0"
    assert inner.asked == [["a"], ["a"], ["A"], [" a"], ["a"]]


def test_what_a_caller_does_to_an_answer_stays_with_the_caller() -> None:
    cached = Cached(Recorder(), 10)
    cached.search(["a"], 2)[0].clear()
    once = cached.search(["a", "a"], 2)
    once[0].clear()
    assert len(once[1]) == len(cached.search(["a"], 2)[0]) == 2
    held = cached.held(["a"], 2)
    assert held is not None
    held[0].clear()
    assert cached.held(["a"], 2) != held


def test_the_least_recently_used_goes_first_and_passages_are_bounded() -> None:
    inner = Recorder()
    cached = Cached(inner, 2)
    for query in ("a", "b", "a", "c"):
        cached.search([query], 1)
    assert cached.held(["a"], 1) and cached.held(["c"], 1) and cached.held(["b"], 1) is None
    cached.search(["big"], 25)  # more passages than the whole cache is for
    assert cached.statistics()["passages"] <= 20 and cached.held(["big"], 25) is None
    nothing = Cached(inner, 0)
    assert len(nothing.search(["a", "a"], 1)) == 2 and len(nothing) == 0 and inner.asked[-1] == ["a"]
    with pytest.raises(SeedbenchError, match="-1 queries"):
        Cached(inner, -1)


def test_held_never_searches() -> None:
    inner = Recorder()
    cached = Cached(inner, 10)
    assert cached.held(["a"], 1) is None and cached.held([], 1) == []
    answer = cached.search(["a"], 1)
    assert cached.held(["a", "a"], 1) == answer * 2 and cached.held(["a", "b"], 1) is None
    assert inner.asked == [["a"]] and cached.statistics()["hits"] == 2


def test_a_failure_passes_through_and_is_not_remembered() -> None:
    inner = Recorder()
    cached = Cached(inner, 10)
    inner.fails = True
    with pytest.raises(InfrastructureError):
        cached.search(["a"], 1)
    inner.fails = False
    assert cached.search(["a"], 1)[0][0].title == "a"
    cached.close()
    assert inner.closed and len(cached) == 0


def test_many_threads_share_it() -> None:
    cached = Cached(Recorder(), 7)
    wrong: list[object] = []

    def use(seed: int) -> None:
        for turn in range(200):
            queries = [str((seed * turn + i) % 23) for i in range(4)]
            answers = cached.search(queries, 2)
            wrong.extend(a for q, a in zip(queries, answers, strict=True) if [p.title for p in a] != [q, q])

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = cached.statistics()
    assert not wrong and said["hits"] + said["misses"] == 8 * 200 * 4 and said["queries"] == 7
    assert said["passages"] == 14


INDEX = Bm25([Passage(f"p{i}", f"title {i}", f"red {'green ' * i} word{i % 5}", 0.0) for i in range(20)])


QUERIES = st.sampled_from(["red", "green word1", "word3", "", "\ud800", "RED"])


@given(st.lists(st.lists(QUERIES, max_size=5), max_size=6), st.integers(0, 4), st.integers(1, 4))
def test_a_cache_of_any_size_changes_no_answer(calls: list[list[str]], size: int, k: int) -> None:
    cached = Cached(INDEX, size)
    for queries in calls:
        assert cached.search(queries, k) == INDEX.search(queries, k)
        assert len(cached) <= size
