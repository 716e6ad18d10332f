"""Corpus files: what is read of them, what is refused and with which line, and that opening costs no reading."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import corpus as corpora
from seedbench.indexes import scanning
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.corpus import Corpus

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 14393573655\n"


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_both_forms_of_record(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.jsonl",
        {"id": "7", "contents": '"Red hat"\nIt is red.\nVery.'},
        {"id": "b", "contents": "no title here"},
        {"_id": 12, "title": "Doc", "text": "a\u00e9\U0001f600"},
        {"docid": "z", "text": "alone", "url": "u", "contents": "ignored\nx"},
        {"id": "q", "contents": '"open\nrest'},
        {"id": "n", "title": None, "text": ""},
    )
    assert list(Corpus.open(path)) == [
        Passage("7", "Red hat", "It is red.\nVery.", 0.0),
        Passage("b", "", "no title here", 0.0),
        Passage("12", "Doc", "a\u00e9\U0001f600", 0.0),
        Passage("z", "", "alone", 0.0),
        Passage("q", '"open', "rest", 0.0),
        Passage("n", "", "", 0.0),
    ]


def test_a_mark_blank_lines_windows_lines_and_no_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n\n  \n{"id": "b", "text": "y"}')
    corpus = Corpus.open(path)
    assert [p.id for p in corpus] == [corpus[0].id, corpus[1].id] == ["a", "b"] and len(corpus) == 2


TEXT = st.text(st.characters(), max_size=30)
PASSAGES = st.lists(
    st.builds(Passage, st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=80), TEXT, TEXT,
              st.just(0.0)), min_size=1, max_size=20, unique_by=lambda p: p.id)  # fmt: skip


@given(PASSAGES, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_file_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, passages: Any, rng: Any) -> None:
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in passages]
    corpus = Corpus.open(write(tmp_path_factory.mktemp("c") / "c.jsonl", *rows))
    assert list(corpus) == passages == [corpus[i] for i in range(len(corpus))] == corpus[:]
    assert [corpus[int(i)].id for i in corpus.order] == sorted(p.id for p in passages)
    assert all(corpus[corpus.number(p.id)] == p for p in passages)
    assert corpus[-1] == passages[-1] and corpus[:1] == passages[:1]
    rng.shuffle(passages)
    other = Corpus.of(passages)
    assert corpus.digest() == other.digest() == Bm25(passages)._meta["corpus"]
    assert all(other[other.number(p.id)] == p for p in passages)
    with pytest.raises(KeyError):
        corpus.number("\0")
    with pytest.raises(IndexError):
        corpus[len(corpus)]


GOOD = b'{"id": "a", "text": "x"}\n'
CASES = {
    "Line 2 of .* is not UTF-8 .byte 18.*convert": GOOD + b'{"id": "b", "text": "\xff"}\n',
    "ends in the middle of line 3: the file is truncated": GOOD + b'{"id": "b", "text": "y"}\n{"id": "c", "te',
    "Line 2 of .* is not JSON": GOOD + b"{id: b}\n",
    "Line 2 of .* is not a JSON object": GOOD + b'["b", "y"]\n',
    "Line 1 of .* has no id: give every": b'{"title": "a", "text": "x"}\n',
    "Line 1 of .* has no id": b'{"id": true, "text": "x"}\n',
    "Line 1 of .* has an id with a NUL": b'{"id": "a\\u0000", "text": "x"}\n',
    'Line 1 of .* neither "text" nor "contents"': b'{"id": "a", "body": "x"}\n',
    "Line 1 of .* no string": b'{"id": "a", "text": ["x"]}\n',
    "Lines 1 and 4 of .* the same id 'a'": GOOD + b'\n{"id": "b", "text": ""}\n{"id": "a", "text": "other"}\n',
    "is a Git LFS pointer, not the file itself: run `git lfs pull`": POINTER.encode(),
    "holds 0 passages": b"\n\n",
    "is not JSON .*": b"[" * 100_000 + b"\n",
    "longer than 512 bytes": json.dumps({"id": "x" * 600, "text": ""}).encode() + b"\n",
}


@pytest.mark.parametrize("message", CASES)
def test_what_is_no_corpus_is_refused_with_its_line(tmp_path: Path, message: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(CASES[message])
    with pytest.raises(SeedbenchError, match=message.replace("byte 18", "byte \\d+")):
        Corpus.open(path)


def test_long_ids_that_repeat_and_lines_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [{"id": "x" * 100 + str(i), "text": ""} for i in (2, 1, 2)]
    with pytest.raises(SeedbenchError, match="Lines 1 and 3"):
        Corpus.open(write(tmp_path / "c.jsonl", *long))
    monkeypatch.setattr(scanning, "BLOCK", 1)
    with pytest.raises(SeedbenchError, match="Lines 1 and 3"):
        Corpus.open(write(tmp_path / "d.jsonl", *long))
    monkeypatch.setattr(scanning, "LONGEST_LINE", 50)
    with pytest.raises(SeedbenchError, match=r"Line 1 of .* is longer"):
        Corpus.open(write(tmp_path / "e.jsonl", *long))
    with pytest.raises(SeedbenchError, match="There is no corpus file"):
        Corpus.open(tmp_path)
    with pytest.raises(SeedbenchError, match="Two passages have the id 'a'"):
        Corpus.of([Passage("a", "", "x", 0.0), Passage("a", "", "y", 0.0)])


def test_a_changed_file_is_refused_and_a_touched_one_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "a", "text": "one"}, {"id": "b", "text": "two"})
    digest = Corpus.open(path).digest()
    os.utime(path, (1, 1))
    assert Corpus.open(path).digest() == digest
    head = json.loads((tmp_path / "c.jsonl.seedbench" / corpora.OFFSETS / "index.json").read_text())
    assert head["file"]["mtime_ns"] == 10**9  # so that it is not read again
    assert Corpus.open(path).digest() == digest
    whole = path.read_bytes()
    for other in (whole.replace(b"two", b"twO"), whole + b'{"id": "c", "text": ""}\n', whole[:-3]):
        path.write_bytes(other)
        with pytest.raises(SeedbenchError, match="has changed since: name the right one, or remove"):
            Corpus.open(path)


def test_a_file_that_shrinks_while_open_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", *({"id": str(i), "text": "word " * 50} for i in range(100)))
    corpus = Corpus.open(path)
    os.truncate(path, 200)
    with pytest.raises(SeedbenchError, match="has changed: passage 99"):
        corpus[99]
    with pytest.raises(SeedbenchError, match="has changed"):
        list(corpus)


@pytest.mark.parametrize("suffix, module", [(".gz", gzip), (".xz", lzma)])
def test_packed_files_are_unpacked_once(tmp_path: Path, suffix: str, module: Any) -> None:
    path, said = tmp_path / f"c.jsonl{suffix}", list[str]()
    lines = "".join(json.dumps({"id": str(i), "text": f"word {i}"}) + "\n" for i in range(500))
    path.write_bytes(module.compress(lines.encode()))
    corpus = Corpus.open(path, scratch=tmp_path / "index", say=said.append)
    assert corpus[499].text == "word 499" and (tmp_path / "index" / corpora.UNPACKED).read_text() == lines
    assert f"needs {len(lines.encode()):,} bytes" in said[0]
    assert Corpus.open(path, scratch=tmp_path / "index", say=said.append).digest() == corpus.digest() and len(said) == 1
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SeedbenchError, match="has changed since"):
        Corpus.open(path, scratch=tmp_path / "index")
    with pytest.raises(SeedbenchError, match="is damaged or truncated"):
        Corpus.open(path, scratch=tmp_path / "other")


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_is_told_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "a", "text": "' + b"x" * 5_000_000 + b'"}\n'))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1, 1, 1_200_000))
    with pytest.raises(SeedbenchError, match=r"needs 5.0 MB, but the disk of .* has 1.2 MB free"):
        Corpus.open(path, scratch=tmp_path / "s")
    assert [p.name for p in (tmp_path / "s").iterdir() if p.name != ".corpus.lock"] == []


def test_a_scan_that_was_cut_short_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "a", "text": "one"}, {"id": "b", "text": "two"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Corpus.open(path)
    assert len(Corpus.open(path)) == 2


def test_offsets_that_were_damaged_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "a", "text": "one"})
    Corpus.open(path)
    for name in ("offsets.npy", "order.npy"):
        part = tmp_path / "c.jsonl.seedbench" / corpora.OFFSETS / name
        whole = part.read_bytes()
        part.write_bytes(whole[:-1])
        with pytest.raises(SeedbenchError, match="is missing or not the file that was written"):
            Corpus.open(path)
        part.write_bytes(whole)


@pytest.mark.slow
def test_a_gigabyte_opens_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with path.open("w") as file:
        for i in range(1_600_000):
            file.write(f'{{"id": "{i}", "contents": "\\"Title {i}\\"\\n{"some words " * 54}"}}\n')
    assert path.stat().st_size > 10**9
    Corpus.open(path)
    start = time.perf_counter()
    corpus = Corpus.open(path)
    title = corpus[1_234_567].title
    assert time.perf_counter() - start < 0.05 and title == "Title 1234567" and corpus.number("1599999") == 1_599_999
