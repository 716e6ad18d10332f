"""Index folders end to end: built, searched and described through the command line; refused where they must be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seedbench.cli import main
from seedbench.core import Passage, Retriever, SeedbenchError
from seedbench.indexes import bm25_folder, manifest
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.folder import build, info, open_index

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 14393573655\n"
ANIMALS = "ant bee cat dog elk fox gnu hen ibis jay kite lark mole newt owl pig quail rat seal toad".split()  # noqa: SIM905


def passages(count: int) -> list[Passage]:
    """Titles of three words each, of which no two share all."""

    def name(i: int) -> str:
        return f"{ANIMALS[i % 20]} {ANIMALS[i // 20 % 20]} number{i}"

    return [Passage(f"p{i}", name(i), f"The {name(i)} met a {name(i * 7 % count)}.", 0.0) for i in range(count)]


def write(path: Path, rows: list[Passage]) -> Path:
    lines = (json.dumps({"id": p.id, "contents": f'"{p.title}"\n{p.text}'}) + "\n" for p in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", passages(60))


@pytest.fixture
def index(corpus: Path, tmp_path: Path) -> Path:
    build("bm25", corpus, tmp_path / "index")
    return tmp_path / "index"


def run(*args: object) -> int:
    """The exit status of the command line."""
    try:
        main([str(arg) for arg in args])
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def test_build_search_and_info_by_command(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "index"
    assert run("index", "build", corpus, out, "--k1", "1.2", "--b", "0.75") == 0
    said = capsys.readouterr()
    assert "bm25 index of 60 passages" in said.out and "passages needs 75,177 bytes" in said.err and "free)" in said.err
    assert run("index", "search", out, "number7", "of the", "--k", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# number7" and lines[1].startswith("[1] ") and "p7 | hen ant number7 | The" in lines[1]
    assert lines[-2:] == ["# of the", "no passage found"]
    assert run("index", "info", out) == 0
    said = capsys.readouterr()
    for shown in ("corpus.count           60", "settings.k1            1.2", "all ", "self_test.sampled"):
        assert shown in said.out
    part = next(path for path in (out / "bm25").iterdir() if path.name == "factors.npy")
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    assert run("index", "info", out) == 1 and "factors.npy" in capsys.readouterr().err


def test_a_folder_gives_what_the_index_in_memory_gives(corpus: Path, tmp_path: Path) -> None:
    made = build("bm25", corpus, tmp_path / "index", {"k1": 1.2, "b": 0.75})
    ours = Bm25(passages(60), 1.2, 0.75)
    retriever: Any = open_index(tmp_path / "index")
    queries = ["elk", "The number3 met a fox", "", "seal toad elk", "\ud800 cat"]
    assert retriever.search(queries, 7) == ours.search(queries, 7)
    assert retriever.digest() == ours.digest() == made["digest"]
    assert (retriever.kind, retriever.exact) == ("bm25", True)
    assert made["corpus"]["digest"] == ours._meta["corpus"] and made["self_test"]["first_by_title"] >= 12
    as_retriever: Retriever = retriever
    assert as_retriever.search([], 3) == []
    retriever.close()


def test_a_corpus_that_moved_or_another_one(index: Path, corpus: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "corpus.jsonl"
    moved.parent.mkdir()
    shutil.move(corpus, moved)
    with pytest.raises(SeedbenchError, match=r"The corpus of .* name the file where it is now .--corpus"):
        open_index(index)
    assert open_index(index, moved).search(["number7"], 1)[0][0].id == "p7"
    shutil.copy(moved, index / "corpus.jsonl")  # beside the manifest it is found without a word
    assert open_index(index).search(["number7"], 1)[0][0].id == "p7"
    other = write(tmp_path / "other.jsonl", passages(61))
    with pytest.raises(SeedbenchError, match="is not the file that"):
        open_index(index, other)
    with pytest.raises(
        SeedbenchError, match=r"indexes another corpus \(60 passages.* than the one given \(61 passages"
    ):
        open_index(index, Corpus.open(other))
    assert open_index(index, Corpus.of(passages(60)[::-1])).search(["number7"], 1)[0][0].id == "p7"


def test_damage_is_named(index: Path) -> None:
    part = index / "bm25" / "docs.npy"
    whole = part.read_bytes()
    for data, message in ((whole[:-1], "instead of .*truncated or another file"), (POINTER.encode(), "Git LFS pointer"),
                          (None, "docs.npy is missing: copy the whole folder")):  # fmt: skip
        part.unlink() if data is None else part.write_bytes(data)
        with pytest.raises(SeedbenchError, match=message):
            open_index(index)
    part.write_bytes(whole)
    head = index / manifest.MANIFEST
    text = head.read_text()
    for broken, message in (("{", "is damaged"), ("[]", "is damaged"), (text.replace('"kind"', '"kin"'), "is damaged"),
                            (text.replace('"schema": 1', '"schema": 2'), "another version of seedbench"),
                            (text.replace('"bytes": ', '"bites": '), "is damaged"),
                            (text.replace('"k1": 0.9', '"k1": 5.0'), "its manifest others"),
                            (text.replace('"k1": 0.9', '"k2": 0.9'), "was edited, or is of another version .*k1"),
                            (POINTER, "Git LFS pointer")):  # fmt: skip
        head.write_text(broken)
        with pytest.raises(SeedbenchError, match=message):
            open_index(index)
    head.unlink()
    with pytest.raises(SeedbenchError, match="is no index folder"):
        open_index(index)
    with pytest.raises(SeedbenchError, match="There is no index folder nowhere: build one"):
        open_index("nowhere")


def test_what_build_refuses(corpus: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SeedbenchError, match="no kind of index 'bm26': choose one of bm25, lucene"):
        build("bm26", corpus, tmp_path / "new")
    with pytest.raises(SeedbenchError, match="has no setting k2; it has b, k1"):
        build("bm25", corpus, tmp_path / "new", {"k2": 1})
    with pytest.raises(SeedbenchError, match="k1 must be"):
        build("bm25", corpus, tmp_path / "bad", {"k1": -1})
    with pytest.raises(SeedbenchError, match="finished index of other settings"):
        build("bm25", corpus, index, {"k1": 1.2})
    with pytest.raises(SeedbenchError, match="is not the file that"):
        build("bm25", write(tmp_path / "other.jsonl", passages(9)), index)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    with pytest.raises(SeedbenchError, match=r"is not empty \(it holds mine.txt\)"):
        build("bm25", corpus, full)
    assert build("bm25", corpus, index) == manifest.read_manifest(index)  # done already

    class Usage(NamedTuple):
        total: int = 9
        used: int = 9
        free: int = 5000

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda where: Usage())
        with pytest.raises(SeedbenchError, match=r"the bm25 index of 60 passages needs .* has 5,000 bytes free"):
            build("bm25", corpus, tmp_path / "tight")
    with pytest.raises(SeedbenchError, match=r"has not finished: go on with `seedbench index build .*--resume"):
        open_index(tmp_path / "tight")
    assert info(tmp_path / "tight")["state"] == "unfinished"
    with pytest.raises(
        SeedbenchError, match="unfinished build of another kind or of other settings: go on with it by --resume"
    ):
        build("bm25", corpus, tmp_path / "tight", {"k1": 1.0})
    assert build("bm25", corpus, tmp_path / "tight")["corpus"]["count"] == 60


def test_a_second_build_at_once_is_refused(corpus: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / "index").mkdir()
    with FileLock(tmp_path / "index" / manifest.LOCK), pytest.raises(SeedbenchError, match="Another build into"):
        build("bm25", corpus, tmp_path / "index")


def test_an_index_that_finds_the_same_for_every_query_fails_its_test(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25_folder.Bm25Index, "search", lambda self, queries, k: [[self._corpus[0]]] * len(queries))
    with pytest.raises(SeedbenchError, match=r"found only \d of 1\d of its own passages"):
        build("bm25", corpus, tmp_path / "index")
    with pytest.raises(SeedbenchError, match="has not finished"):
        open_index(tmp_path / "index")


def test_names_on_the_shelf(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(index)
    monkeypatch.setenv(manifest.SHELF, str(tmp_path))
    assert open_index("index").search(["number7"], 1)[0][0].id == "p7"
    with pytest.raises(SeedbenchError, match="nor on the shelf"):
        open_index("other")


SLOW = """
import sys, time
from seedbench.indexes import bm25_folder, folder
add = bm25_folder.Counter.add
def slow(self, text):
    print("counting", flush=True)
    time.sleep(0.05)
    add(self, text)
bm25_folder.Counter.add = slow
folder.build("bm25", sys.argv[1], sys.argv[2], {"k1": 1.5})
"""


def test_killed_and_resumed(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "index"
    args = [sys.executable, "-c", SLOW, str(corpus), str(out)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout and child.stdout.readline() == b"counting\n"
        child.send_signal(signal.SIGKILL)
    assert info(out) == {"state": "unfinished", "kind": "bm25", "settings": {"k1": 1.5, "b": 0.4},
                         "corpus": str(corpus), "bytes": 0}  # fmt: skip
    assert run("index", "search", out, "x") == 2 and "--resume" in capsys.readouterr().err
    assert run("index", "build", corpus, out, "--resume", "--k1", "1.5") == 2
    other = write(tmp_path / "other.jsonl", passages(61))
    assert run("index", "build", other, out, "--resume") == 2 and "is not the file that" in capsys.readouterr().err
    scanned = (out / "corpus.offsets" / "index.json").stat().st_mtime_ns
    corpus = corpus.rename(tmp_path / "moved.jsonl")
    assert run("index", "build", corpus, out, "--resume") == 0
    assert "going on with the build" in capsys.readouterr().err
    assert (out / "corpus.offsets" / "index.json").stat().st_mtime_ns == scanned  # the corpus was not read again
    assert open_index(out).digest() == Bm25(passages(60), 1.5).digest()
    assert run("index", "build", corpus, out, "--resume") == 2  # nothing is unfinished


def test_help_teaches_and_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    start = time.process_time()
    assert run("index", "build", "--help") == 0
    assert time.process_time() - start < 1.5
    shown = capsys.readouterr().out
    assert "wiki-18" in shown and "--k1" in shown and os.environ.get("COLUMNS", "80")
