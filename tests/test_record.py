"""The journal survives kills and full disks; the chain is what the protocol says."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seedbench import record
from seedbench.agents.scripted import Expert, Random
from seedbench.core import SeedbenchError, Trajectory
from seedbench.journal import Journal
from seedbench.rollout import Episode, play
from tests.toy import Counter, task


def trajectories(n: int = 5) -> list[Trajectory]:
    todo = [Episode(task(f"to-{k % 5 + 1}"), trial=k // 5) for k in range(n)]
    return list(play(Counter, todo, Random()))


def keys(ts: list[Trajectory]) -> list[record.Key]:
    return [(t.task.env, t.task.split, t.task.id, t.trial) for t in ts]


def test_a_line_has_exactly_the_published_keys() -> None:
    (t,) = play(Counter, [Episode(task("to-2"))], Expert())
    line = record.record(t)
    assert set(line) == {"task", "env", "split", "seed", "trial", "steps", "score", "success", "ended", "error"}
    assert set(line["steps"][0]) == {"observation", "text", "action", "format_valid", "reward", "prompt_sha"}
    assert [s["observation"] for s in line["steps"]] == ["count: 0", "count: 1"]
    assert [s["text"] for s in line["steps"]] == ["<action>up</action>"] * 2


def test_chain_by_hand() -> None:
    a, b = record.chain([{"b": 1, "a": "é"}, {"c": None}])
    first = hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()
    second = hashlib.sha256((first + '{"c":null}').encode()).hexdigest()
    assert (a["prev"], a["hash"], b["prev"], b["hash"]) == ("", first, first, second)


def test_journal_reopens_with_all_it_held(tmp_path: Path) -> None:
    ts = trajectories(10)
    journal = Journal(tmp_path / "j").open()
    for t in ts[:6]:
        journal.append(t)
    journal.close()
    journal = Journal(tmp_path / "j").open()
    assert list(journal.offsets) == keys(ts[:6])
    for t in ts[6:]:
        journal.append(t)
    back = [e["record"] for e in journal.entries(keys(ts)[::-1])]
    assert back == [record.record(t) for t in ts[::-1]]


@pytest.mark.parametrize("tail", [b'{"record": {"task', b"\x00\xff", b"{}"])
def test_a_torn_last_line_is_dropped_and_no_complete_one(tmp_path: Path, tail: bytes) -> None:
    journal = Journal(tmp_path / "j").open()
    for t in trajectories(3):
        journal.append(t)
    journal.close()
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + tail)
    again = Journal(journal.path).open()
    assert len(again.offsets) == 3 and journal.path.read_bytes() == whole


def test_a_damaged_middle_line_is_named_not_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j").open()
    for t in trajectories(3):
        journal.append(t)
    journal.close()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[1])
    wrong: list[dict[str, Any]] = [{"score": v} for v in (7.5, float("nan"), "x", None)]
    wrong += [{"success": "x"}, {"ended": "won"}, {"error": "\ud800"}, {"steps": [5]}, {"more": 1}, {"trial": [1]}]
    spoilt = [{**entry, "record": {**entry["record"], **change}} for change in wrong]
    spoilt += [{**entry, "tokens": [5]}, {**entry, "usage": {"prompt_tokens": -1}}, {"record": entry["record"]}]
    for line in [b"{broken}\n", b"[1]\n", b"\xff\n", *(json.dumps(e).encode() + b"\n" for e in spoilt)]:
        journal.path.write_bytes(lines[0] + line + lines[2])
        with pytest.raises(SeedbenchError, match="line 2, is damaged"):
            Journal(journal.path).open()
        assert journal.path.read_bytes() == lines[0] + line + lines[2]


def test_a_full_disk_leaves_only_whole_lines(tmp_path: Path) -> None:
    """A file-size limit makes write() fail half-way, as a full disk does."""
    code = f"""
import resource, sys
from seedbench.journal import Journal
from tests.test_record import trajectories
ts = trajectories(200)
journal = Journal(__import__("pathlib").Path({str(tmp_path / "j")!r})).open()
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    for t in ts: journal.append(t)
except OSError as error:
    print(len(journal.offsets))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent
    )
    raw = (tmp_path / "j").read_bytes()
    assert 0 < int(run.stdout) == raw.count(b"\n") and raw.endswith(b"\n")
    assert len(Journal(tmp_path / "j").open().offsets) == int(run.stdout)


def test_written_bytes_are_a_function_of_content(tmp_path: Path) -> None:
    lines = [record.record(t) for t in trajectories(4)]
    heads = {record.write_chained(tmp_path / name, lines) for name in ("a.gz", "other_name.gz")}
    assert len(heads) == 1 and (tmp_path / "a.gz").read_bytes() == (tmp_path / "other_name.gz").read_bytes()
    back = list(record.read_lines(tmp_path / "a.gz"))
    assert back[-1]["hash"] in heads
    assert [{k: v for k, v in line.items() if k not in ("prev", "hash")} for line in back] == lines


@pytest.mark.parametrize("damage", ["cut", "text", "notgzip", "list", "latin1"])
def test_damaged_files_get_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "t.gz"
    record.write_chained(path, [record.record(t) for t in trajectories(5)])
    raw = path.read_bytes()
    bad = {
        "cut": raw[: len(raw) // 2],
        "text": gzip.compress(b'{"a": 1}\nnot json\n'),
        "notgzip": b"plain",
        "list": gzip.compress(b"[1]\n"),
        "latin1": gzip.compress('{"a": "é"}\n'.encode("latin-1")),
    }[damage]
    path.write_bytes(bad)
    with pytest.raises(SeedbenchError, match="cannot be read"):
        list(record.read_lines(path))


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError):
        record.canonical({"score": float("nan")})


def test_two_processes_cannot_hold_one_run(tmp_path: Path) -> None:
    with record.locked(tmp_path):
        code = (
            f"from seedbench import record; import pathlib\nwith record.locked(pathlib.Path({str(tmp_path)!r})): pass"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert run.returncode != 0 and "another process is writing" in run.stderr
    with record.locked(tmp_path):
        pass


def test_json_is_replaced_in_one_step(tmp_path: Path) -> None:
    record.write_json(tmp_path / "r.json", {"a": 1})
    with pytest.raises(ValueError):
        record.write_json(tmp_path / "r.json", {"a": float("inf")})
    assert json.loads((tmp_path / "r.json").read_text()) == {"a": 1}
