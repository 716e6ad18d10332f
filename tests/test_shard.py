"""One evaluation on several processes: the bytes of one process, whatever dies and however many go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench import record, shard
from seedbench.core import InfrastructureError, SeedbenchError
from tests.command import run
from tests.conftest import need

RANDOM = ("--agent", "random", "--env", "alfworld", "--limit", 30, "--trials", 2)
LATER = 300  # seconds after which a test gives up on other processes


def start(rank: int, world: int, *args: object) -> subprocess.Popen[str]:
    """`seedbench ARGS` as a launcher starts one rank, but without PyTorch."""
    told = {"RANK": str(rank), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seedbench", *map(str, args)]
    return subprocess.Popen(
        command, env={**os.environ, **told}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ranks(world: int, *args: object) -> list[subprocess.Popen[str]]:
    return [start(r, world, *args) for r in range(world)]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each."""
    done = [p.communicate(timeout=LATER) for p in processes]
    return [(p.returncode, out, err) for p, (out, err) in zip(processes, done, strict=True)]


def once(what: Any) -> None:
    """Wait until `what()` is true."""
    until = time.monotonic() + LATER
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def same(a: Path, b: Path) -> bool:
    return all((a / n).read_bytes() == (b / n).read_bytes() for n in ("trajectories.jsonl.gz", "results.json"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run("eval", *RANDOM, "--out", out, "--quiet")
    return out


def test_ranks_give_the_bytes_of_one_process(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first, *others = ended(ranks(3, "eval", *RANDOM, "--out", out))
    assert [first[0], *(code for code, _, _ in others)] == [0, 0, 0], (first, others)
    assert same(alone, out)
    assert {p.name for p in out.iterdir()} == {p.name for p in alone.iterdir()}  # nothing that they met by is left
    session = json.loads((out / "run.json").read_text())["sessions"][0]
    assert session["processes"] == 3 and session["episodes"] == 120
    assert "alfworld" in first[1] and all(out == err == "" for _, out, err in others)  # rank 0 speaks for all
    assert "60/60" in first[2]


@pytest.mark.parametrize("victim, after", [(1, 3), (0, 1)])
def test_kill_9_of_a_rank_ends_the_others_and_any_number_goes_on(
    alone: Path, tmp_path: Path, victim: int, after: int
) -> None:
    """A stand-in for the launcher: when one is killed, the others get SIGTERM, as torchrun does."""
    out = tmp_path / "run"
    both = ranks(2, "eval", *RANDOM, "--out", out)
    once(lambda: lines(out / f"journal-{victim}.jsonl") >= 5)
    both[victim].send_signal(signal.SIGKILL)
    other = 1 - victim
    both[other].send_signal(signal.SIGTERM)
    done = ended(both)
    if done[other][0] == 0:
        pytest.fail("the other rank was done before the kill")
    assert done[other][0] == 130 and "SIGTERM" in done[other][2]
    if other == 0:
        assert "finished episodes are kept" in done[0][2] and f"--resume {out}" in done[0][2]
    kept = {r: (out / f"journal-{r}.jsonl").read_bytes() for r in (0, 1)}
    assert not (out / "results.json").exists() and kept[victim].count(b"\n") >= 5
    with (out / f"journal-{victim}.jsonl").open("ab") as file:
        file.write(b'{"record": {"task": "torn')
    assert [code for code, _, _ in ended(ranks(after, "eval", "--resume", out))] == [0] * after
    assert same(alone, out)
    session = json.loads((out / "run.json").read_text())["sessions"][-1]
    assert session["episodes"] == 120 - sum(k.count(b"\n") for k in kept.values())


def test_a_launcher_starts_it(alone: Path, tmp_path: Path) -> None:
    need(find_spec("torch"), "torch is not installed: pip install -e '.[train]'")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "seedbench"]
    out = tmp_path / "run"
    subprocess.run(
        [*launch, "eval", *map(str, RANDOM), "--out", str(out)], check=True, capture_output=True, timeout=LATER
    )
    assert same(alone, out)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shard, "BEAT", 0.02)
    monkeypatch.setattr(shard, "SILENT", 0.3)
    monkeypatch.setattr(shard, "JOIN", 0.3)
    yield


def test_a_silent_rank_is_missed_and_one_that_failed_is_quoted(quick: None, tmp_path: Path) -> None:
    with shard.Team(tmp_path, shard.Place(0, 2)) as team:
        path = tmp_path / "ranks" / "1.json"
        record.write_json(path, {"beat": 1, "state": "playing", "counts": {}})
        assert team.look()[0]["state"] == "playing"
        time.sleep(0.2)
        record.write_json(path, {"beat": 2, "state": "playing", "counts": {}})
        team.look()  # a sign of life
        time.sleep(0.35)
        with pytest.raises(InfrastructureError, match=r"rank 1 of 2 ended early \(no sign of life .* --resume"):
            team.look()
        record.write_json(path, {"beat": 3, "state": "failed", "message": "the disk is full."})
        with pytest.raises(InfrastructureError, match=r"\(the disk is full\): the finished episodes of all ranks"):
            team.look()


def test_who_does_not_come_and_what_a_dead_session_left(quick: None, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    old = {"name": "of the dead", "world": 2, "zero": "z", "joined": "z", "names": {"1": "of the dead"}}
    for name in ("1.json", "launch.json"):
        record.write_json(tmp_path / "ranks" / name, old)
    with shard.Team(tmp_path, shard.Place(0, 2)) as zero, pytest.raises(InfrastructureError, match="rank 1 of 2 did"):
        zero.gather()
    with shard.Team(tmp_path, shard.Place(1, 2)) as one, pytest.raises(InfrastructureError, match="rank 0 of 2 did"):
        record.write_json(tmp_path / "ranks" / "launch.json", old)
        one.gather()


def test_mistakes_of_a_launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(SeedbenchError, match="RANK=2, WORLD_SIZE=2 is no rank"):
        shard.place()
    monkeypatch.setenv("RANK", "0")
    run("eval", "--agent", "random", code=2)
    assert "--out is missing" in capsys.readouterr().err
    run("eval", "--agent", "human", "--env", "alfworld", "--out", tmp_path / "run", code=2)
    assert "one keyboard" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    """Another prompt on one machine is another exam."""
    out = tmp_path / "run"
    pair = [start(0, 2, "eval", *RANDOM, "--out", out), start(1, 2, "eval", *RANDOM, "--history", 2, "--out", out)]
    zero, one = ended(pair)
    assert one[0] == 2 and "environments is not what rank 0 plays with" in one[2]
    assert zero[0] == 1 and "rank 1 of 2 ended early" in zero[2] and "environments" in zero[2]
