"""The formula by hand, ties, lossy lengths, properties, saving and loading, damage; the original's result pages."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import bm25, store
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.postings import Counter, length_code, length_value
from tests.products import contents, products, read

F = np.float32
THREE = [("b", "red wool hat"), ("a", "red red scarf of wool and silk"), ("c", "blue shoe")]


def ids(index: Bm25, query: str, k: int = 50) -> list[str]:
    return [passage.id for passage in index.search([query], k)[0]]


def by_hand(tf: int, length: int, df: int, times: int = 1, n: int = 3, average: float = 10 / 3) -> np.float32:
    """One term's part, every step rounded to float32 as Java does."""
    inverse = F(1) / (F(0.9) * ((F(1) - F(0.4)) + F(0.4) * F(length) / F(average)))
    weight = F(times) * F(math.log(1 + (n - df + 0.5) / (df + 0.5)))
    return F(weight - weight / (F(1) + F(tf) * inverse))


def test_formula_by_hand_to_the_last_bit() -> None:
    # Lengths without stop words: b 3, a 5 (red red scarf wool silk), c 2; red and wool are in two documents each.
    index = Bm25(THREE)
    assert list(index.ids) == ["a", "b", "c"]
    red = [by_hand(2, 5, 2), by_hand(1, 3, 2), F(0)]
    assert index.scores("Reds").tolist() == red
    both = [F(float(red[0]) + float(by_hand(1, 5, 2))), F(float(red[1]) + float(by_hand(1, 3, 2))), F(0)]
    assert index.scores("the red wool").tolist() == both
    assert index.scores("red")[0] == pytest.approx(0.470003629 * 2 / (2 + 0.9 * (0.6 + 0.4 * 5 / (10 / 3))), rel=1e-6)
    assert ids(index, "red wool") == ["a", "b"]  # c shares no term: no hit
    assert index.search(["shoe"], 5) == [[Passage("c", "", "", float(by_hand(1, 2, 1)))]]


def test_a_repeated_query_term_weighs_twice() -> None:
    index = Bm25(THREE)
    assert index.scores("red red")[1] == by_hand(1, 3, 2, times=2)
    assert index.scores("red red").tolist() == (2 * index.scores("red")).tolist()


def test_documents_without_terms_count_for_nothing() -> None:
    with_empty = Bm25([*THREE, ("d", ""), ("e", "of the and !?")])
    assert with_empty.scores("red wool shoe")[:3].tolist() == Bm25(THREE).scores("red wool shoe").tolist()


@pytest.mark.parametrize(
    "length, code", [(0, 0), (23, 23), (24, 24), (39, 39), (40, 40), (41, 40), (42, 41), (54, 47), (55, 47), (56, 48),
                     (59, 48), (60, 49), (2**31 - 1, 255)],
)  # fmt: skip
def test_lengths_in_one_byte(length: int, code: int) -> None:
    assert length_code(length) == code
    assert length_value(code) <= length and (code == 255 or length < length_value(code + 1))


def test_every_code_stands_for_the_smallest_length_it_codes() -> None:
    values = [length_value(code) for code in range(256)]
    assert values == sorted(set(values)) and [length_code(value) for value in values] == list(range(256))
    assert values[-1] == 2013265944  # as Lucene's own test has it


def test_ties_go_to_the_smaller_id_whatever_the_order_of_documents() -> None:
    documents = [(f"B{i:03}", "same words here") for i in range(300)]
    for order in (documents, documents[::-1]):
        index = Bm25(order)
        for k in (1, 7, 300, 1000):
            assert ids(index, "words", k) == [f"B{i:03}" for i in range(min(k, 300))]
    assert ids(Bm25([("b", "x"), ("\U0001f600", "x"), ("B", "x"), ("é", "x")]), "x") == ["B", "b", "é", "\U0001f600"]


WORDS = st.lists(st.sampled_from("ant bee cat dog elk fox gnu hen".split()), max_size=12).map(" ".join)  # noqa: SIM905
CORPUS = st.lists(WORDS, max_size=40)


@given(CORPUS, WORDS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_top_is_a_prefix_of_the_sorted_scores(texts: list[str], query: str, rng) -> None:  # type: ignore[no-untyped-def]
    documents = [(f"{i:02}", text) for i, text in enumerate(texts)]
    index = Bm25(documents)
    scores = index.scores(query)
    order = [int(i) for i in np.lexsort((np.arange(len(scores)), -scores)) if scores[i] > 0]
    for k in (1, 2, 5, 100):
        assert index.top(query, k) == [(i, float(scores[i])) for i in order[:k]]
    rng.shuffle(documents)
    again = Bm25(documents)
    assert again.scores(query).tolist() == scores.tolist() and again.digest() == index.digest()


def test_quitting_early_changes_no_hit() -> None:
    """Big enough that long postings are not read to the end; compared with adding up everything."""
    rng = np.random.default_rng(0)
    common = 1 / np.arange(1, 301)
    draw = lambda n: " ".join(f"w{i}" for i in rng.choice(300, n, p=common / common.sum()))  # noqa: E731
    index = Bm25((f"{i:05}", draw(int(rng.integers(1, 40)))) for i in range(6000))
    for _ in range(60):
        query = draw(12)
        scores = index.scores(query)
        order = [int(i) for i in np.lexsort((np.arange(len(scores)), -scores)) if scores[i] > 0]
        for k in (1, 10, 50, 700, 5999):
            assert index.top(query, k) == [(i, float(scores[i])) for i in order[:k]]


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), WORDS), max_size=30), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_counting_in_small_blocks_gives_the_same_index(pairs: list[tuple[str, str]], block: int) -> None:
    documents = list(dict(pairs).items())
    whole = Bm25(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbench.indexes.postings.BLOCK", block)
        parts = Bm25(documents)
    assert whole._arrays.keys() == parts._arrays.keys()
    assert all(np.array_equal(whole._arrays[name], parts._arrays[name]) for name in whole._arrays)


def test_counter_by_hand() -> None:
    counter = Counter()
    counter.add("b a b")
    counter.add("b c")
    found = counter.postings(np.array([1, 0], np.int32))
    assert (found.terms, found.starts.tolist(), found.docs.tolist()) == (["b", "c"], [0, 2, 3], [0, 1, 0])
    assert [(int(p) >> 8, int(p) & 255) for p in found.pairs[found.codes]] == [(1, 2), (2, 2), (1, 2)]


ODD = ["", " \t\n", "\x00\x1f\x7f", "\U0001f600\u200d\U0001f600", 'a:b AND "c" OR (d~2 +e^3 [* TO *] \\', "\ud800",
       "?*", "wool " * 20_000, "x" * 100_000, "\u200d" * 50_000]  # fmt: skip


@pytest.mark.parametrize("query", ODD)
def test_odd_queries_are_plain_text(query: str) -> None:
    assert ids(Bm25(THREE), query) == (["b", "a"] if "wool" in query else [])
    assert Bm25().search([query], 3) == [[]] and len(Bm25().scores(query)) == 0
    index = Bm25([("odd", query), *THREE])
    assert len(index) == 4 and ids(index, "shoe") == ["c"]


def test_passages_keep_title_and_text_and_are_found_by_both() -> None:
    index = Bm25([Passage("p1", "Red hat", "worn by \ud800 kings", 0.0), Passage("p2", "", "a king", 9.0)])
    assert index.search([], 3) == []
    hat, king = index.search(["hat", "king"], 3)
    assert [p[:3] for p in hat] == [("p1", "Red hat", "worn by \ud800 kings")]
    assert [p[:3] for p in king] == [("p2", "", "a king"), ("p1", "Red hat", "worn by \ud800 kings")]


def test_progress_and_streaming() -> None:
    seen: list[int] = []
    Bm25(((str(i), "word") for i in range(2500)), progress=seen.append)
    assert seen == [1000, 2000, 2500]


@pytest.mark.parametrize("arguments", [{"k1": -1}, {"k1": math.nan}, {"k1": math.inf}, {"b": 1.5}, {"b": math.nan}])
def test_settings_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(SeedbenchError, match="k1 must be"):
        Bm25(THREE, **arguments)


def test_k1_and_b_at_their_ends() -> None:
    assert Bm25(THREE, k1=0).scores("red").tolist() == [F(math.log(1.6)), F(math.log(1.6)), 0]
    weight, inverse = F(math.log(1.2)), F(1) / F(0.9)
    assert Bm25([("a", "x y y y"), ("b", "x")], b=0).scores("x").tolist() == [weight - weight / (F(1) + inverse)] * 2


def test_one_id_twice_and_no_hit_at_all_are_refused() -> None:
    with pytest.raises(SeedbenchError, match="the id 'b'"):
        Bm25([*THREE, ("b", "again")])
    with pytest.raises(SeedbenchError, match="k is 0"):
        Bm25(THREE).search(["red"], 0)


def test_digest_names_corpus_and_settings() -> None:
    other = [("b", "red wool hat!"), *THREE[1:]]
    cases: list[tuple[list[tuple[str, str]], dict[str, float]]] = [
        (THREE, {}), (THREE, {"k1": 1.2}), (THREE, {"b": 0.75}), (THREE[:2], {}), (other, {})
    ]  # fmt: skip
    digests = {Bm25(documents, **named).digest() for documents, named in cases}
    assert len(digests) == 5 and Bm25(THREE[::-1]).digest() in digests


def test_saved_and_loaded_equal(tmp_path: Path) -> None:
    index = Bm25([Passage(i, i.upper(), text, 0.0) for i, text in THREE])
    index.save(tmp_path / "index")
    index.save(tmp_path / "index")  # over itself
    loaded = Bm25.load(tmp_path / "index", digest=index.digest())
    assert loaded.search(["red wool", "c"], 3) == index.search(["red wool", "c"], 3)
    assert loaded.digest() == index.digest() and not loaded._docs.flags.writeable
    Bm25().save(tmp_path / "empty")
    assert Bm25.load(tmp_path / "empty").search(["x"], 3) == [[]]
    with pytest.raises(SeedbenchError, match="another corpus"):
        Bm25.load(tmp_path / "index", digest="0" * 64)


def test_damaged_and_foreign_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "index"
    index = Bm25(THREE)
    index.save(folder)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for broken in (
            whole[:-1],
            whole[: len(whole) // 2],
            b"",
            whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:],
            None,
        ):
            path.unlink() if broken is None else path.write_bytes(broken)
            with pytest.raises(SeedbenchError, match="build"):
                Bm25.load(folder)
        path.write_bytes(whole)
    meta = json.loads((folder / store.META).read_text())
    for change in ({"k1": 1.2}, {"kind": "other"}, {"files": {}}, {"files": []}, {"analysis": "x"}, {"corpus": "x"}):
        (folder / store.META).write_text(json.dumps(meta | change))
        with pytest.raises(SeedbenchError, match="build it again"):
            Bm25.load(folder)
    (folder / store.META).write_text(json.dumps(meta))
    with pytest.raises(SeedbenchError, match="holds no finished index"):
        Bm25.load(tmp_path / "nowhere")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)  # a kill in the middle of saving
    with pytest.raises(KeyboardInterrupt):
        index.save(folder)
    with pytest.raises(SeedbenchError, match="holds no finished index"):
        Bm25.load(folder)


def test_an_index_is_a_retriever() -> None:
    from seedbench.core import Retriever

    retriever: Retriever = bm25.Bm25(THREE)
    assert [[p.id for p in hits] for hits in retriever.search(["hat", "", "shoe"], 1)] == [["b"], [], ["c"]]


def test_every_result_page_of_the_original(shared_data: Path) -> None:
    """Lucene 8.11 inside the original WebShop showed these pages: 10 of at most 50 hits each."""
    found = {product["asin"]: contents(product) for product in products(shared_data / "webshop")}
    index = Bm25(found.items())
    pages = 0
    for trajectory in read(shared_data / "webshop" / "golden_trajectories.jsonl.xz"):
        query = ""
        for step in trajectory["steps"]:
            if search := re.match(r"search\[(.+)\]", step["action"] or ""):
                query = search[1].lower()
            if not (page := re.search(r"Page (\d+) \(Total results: (\d+)\)", step["obs"])):
                continue
            shown = [text.upper() for text in step["avail"]["clickables"] if text.upper() in found]
            hits = ids(index, query)
            assert len(hits) == int(page[2]) and hits[(int(page[1]) - 1) * 10 :][:10] == shown, query
            pages += 1
    assert pages == 110
