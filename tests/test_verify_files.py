"""Files that a stranger sent: whatever they hold, one sentence, bounded memory, and nothing is written."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from seedbench import cli, record
from seedbench.core import SeedbenchError
from seedbench.leaderboard import files
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.submit import submit
from seedbench.leaderboard.verify import verify
from tests.forge import repack

ABOUT = {"agent": {}, "training": {}}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("played") / "run"
    cli.main(["eval", "--agent", "null", "--env", "alfworld", "--split", "seen", "--out", str(out), "--quiet"])
    return out


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def first_line(folder: Path) -> bytes:
    return record.canonical(next(record.read_lines(folder / "trajectories.jsonl.gz"))).encode()


def cut(f: Path) -> None:
    path = f / "trajectories.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])


def link(name: str, to: str) -> Callable[[Path], None]:
    def do(f: Path) -> None:
        (f / name).unlink()
        (f / name).symlink_to(to)

    return do


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def do(f: Path) -> None:
        line = first_line(f)
        assert old in line
        repack(f, line.replace(old, new, 1) + b"\n")

    return do


def results(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda f: (f / "results.json").write_bytes(change((f / "results.json").read_bytes())) and None


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda f: (f / "trajectories.jsonl.gz").unlink(), "is missing"),
    "truncated": (cut, "cannot be unpacked to its end"),
    "no gzip": (lambda f: (f / "trajectories.jsonl.gz").write_bytes(b"{}\n"), "cannot be unpacked"),
    "bytes after the end": (
        lambda f: (f / "trajectories.jsonl.gz").open("ab").write(b"more"),
        "cannot be unpacked to its end",
    ),
    "empty": (lambda f: (f / "trajectories.jsonl.gz").write_bytes(b""), "there is no episode of"),
    "no last line end": (lambda f: repack(f, first_line(f)), "ends within a line"),
    "a line that is a bomb": (lambda f: repack(f, b" " * (files.MAX_LINE + 2**20)), "a line of more than 32"),
    "not UTF-8": (lambda f: repack(f, b'{"a": "\xff"}\n'), "not valid JSON"),
    "not JSON": (lambda f: repack(f, b"{broken\n"), "line 1, is not valid JSON"),
    "a list": (lambda f: repack(f, b"[1]\n"), "not a JSON object"),
    "an empty line": (lambda f: repack(f, first_line(f) + b"\n\n"), "not valid JSON"),
    "deep nesting": (lambda f: repack(f, b"[" * 10**6 + b"\n"), "not valid JSON"),
    "deep objects": (lambda f: repack(f, b'{"a":' * 10**5 + b"\n"), "not valid JSON"),
    "NaN": (replaced(b'"score":0.0', b'"score":NaN'), "NaN is no JSON number"),
    "infinity by exponent": (replaced(b'"score":0.0', b'"score":1e999'), "is no finite number"),
    "a score above one": (replaced(b'"score":0.0', b'"score":1.5'), "score"),
    "a number of many digits": (replaced(b'"seed":', b'"seed":' + b"9" * 5000), "not valid JSON"),
    "a repeated key": (replaced(b'"score":0.0', b'"score":1.0,"score":0.0'), "a key is repeated"),
    "an unknown key": (replaced(b'"score":0.0', b'"score":0.0,"x":1'), "line 1, is no record: x"),
    "a missing key": (replaced(b'"score":0.0,', b""), "line 1, is no record: score"),
    "a string for a flag": (replaced(b'"success":false', b'"success":"no"'), "success"),
    "a lone surrogate": (replaced(b'"text":""', rb'"text":"\ud800"'), "line 1, is not valid JSON"),
    "link to a file": (link("trajectories.jsonl.gz", "/etc/passwd"), "is a symbolic link"),
    "link to a device": (link("results.json", "/dev/zero"), "is a symbolic link"),
    "results missing": (lambda f: (f / "results.json").unlink(), "results.json is missing"),
    "results not JSON": (results(lambda b: b[:-20]), "results.json is not valid JSON"),
    "results with a repeated key": (results(lambda b: b.replace(b'"agent"', b'"agent": {}, "agent"', 1)), "repeated"),
    "results with NaN in a free part": (results(lambda b: b.replace(b'"agent": {', b'"agent": {"x": NaN,', 1)), "NaN"),
    "results with an unknown key": (results(lambda b: b.replace(b'"agent"', b'"x": 1, "agent"', 1)), "not valid at x"),
    "results too large": (results(lambda b: b" " * (files.MAX_JSON + 1)), "larger than 16 MiB"),
    "results of another schema": (results(lambda b: b.replace(b"results/1", b"results/x", 1)), "schema"),
    "run.json deep": (lambda f: (f / "run.json").write_bytes(b"[" * 10**6), "run.json is not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_sentence(name: str, copy: Path, tmp_path: Path) -> None:
    change, words = HOSTILE[name]
    change(copy)
    before = {p: p.lstat().st_mtime_ns for p in copy.iterdir()}
    found = verify(Run(copy), "replay")
    assert found and words in str(found[0]) and "\n" not in str(found[0]), [str(f) for f in found]
    board = tmp_path / "board" / "board.json"
    board.parent.mkdir()
    assert submit(copy, board, ABOUT).findings == found
    assert list(board.parent.iterdir()) == []
    assert before == {p: p.lstat().st_mtime_ns for p in copy.iterdir()}


def test_a_pipe_is_no_file(copy: Path) -> None:
    (copy / "trajectories.jsonl.gz").unlink()
    os.mkfifo(copy / "trajectories.jsonl.gz")
    (found,) = verify(Run(copy), "form")
    assert "is no regular file" in found.message


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match="is no folder"):
        Run(tmp_path / "nowhere")


def test_bombs_are_unpacked_a_piece_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as f:
        for _ in range(200):
            f.write(b"\n" * 2**20)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="unpacks to more than 20 MiB"):
            for _ in files.read_packed_lines(path, 20 * 2**20):
                pass
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_lines_across_pieces(tmp_path: Path) -> None:
    lines = [b"x" * n for n in (0, 1, files._CHUNK - 1, files._CHUNK, files._CHUNK + 1, 3 * files._CHUNK, 2)]
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"\n".join(lines[:3]) + b"\n") + gzip.compress(b"\n".join(lines[3:]) + b"\n"))
    assert list(files.read_packed_lines(path)) == lines


@pytest.mark.parametrize("number", ["1e400", "-1e999"])
def test_a_number_beyond_every_float_is_none(number: str, copy: Path) -> None:
    path = copy / "results.json"
    path.write_text(path.read_text().replace('"dirty": ', f'"x": {number}, "dirty": ', 1))
    assert "is no finite number" in str(verify(Run(copy), "form")[0])


def test_data_is_mini_or_real(copy: Path) -> None:
    path = copy / "results.json"
    path.write_text(path.read_text().replace('"data": "mini"', '"data": "http://127.0.0.1:9"', 1))
    assert "neither mini nor real" in str(verify(Run(copy), "form")[0])


def test_a_hostile_run_json_reaches_nothing(copy: Path) -> None:
    """Its data folder is only where published games are looked for, and mini needs none."""
    held = json.loads((copy / "run.json").read_text())
    held["config"] = {"data": "/etc", "server": "http://localhost:1", "agent": "os:system"}
    (copy / "run.json").write_text(json.dumps(held))
    assert verify(Run(copy), "form") == []
