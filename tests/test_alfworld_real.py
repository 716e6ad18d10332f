"""The real engine behind ALFWorldEnv: workers that hang, die and wear out, foreign games, results equal to fast's."""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.core import InfrastructureError, SeedbenchError, UnsupportedError
from seedbench.envs.alfworld import backend as backends
from seedbench.envs.alfworld.data import open_dataset
from seedbench.envs.alfworld.env import ALFWorldEnv
from seedbench.envs.alfworld.real import pool, turbo
from seedbench.envs.alfworld.real.pool import POOL
from seedbench.envs.alfworld.texts import game_json
from seedbench.evaluate import Config, evaluate
from tests.conftest import need

needs_engine = pytest.mark.usefixtures("real_engine")
TASKS = [task.id for task in open_dataset("mini").tasks("seen")[:3]]


@pytest.fixture(scope="module")
def real_engine() -> None:
    need(find_spec("textworld"), "alfworld is not installed (pip install -e '.[alfworld]')")


def make(backend: str = "textworld", **options: Any) -> ALFWorldEnv:
    return ALFWorldEnv(backend=backend, **options)


def worker_of(env: ALFWorldEnv) -> pool.Worker:
    play = env._play
    assert isinstance(play, backends.Real) and play._play is not None and play._play._worker is not None
    return play._play._worker


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_engine
@pytest.mark.parametrize("backend", ["textworld", "alfworld"])
def test_the_same_as_fast_and_nothing_happens_to_this_process(backend: str) -> None:
    argv, out, modules = list(sys.argv), sys.stdout, set(sys.modules)
    env, fast = make(backend), make("fast")
    assert env.reset(options={"task": TASKS[0]}) == fast.reset(options={"task": TASKS[0]})
    rng = np.random.default_rng(0)
    for command in [env.sample(rng), "", "nonsense", "go to \ud800", fast.expert(), fast.expert(), "x" * 200_000]:
        assert env.expert() == fast.expert()
        assert env.step(command or "look") == fast.step(command or "look")
    clone, twin = env.clone(), fast.clone()
    assert env.step("look") == fast.step("look")
    assert clone.step("inventory") == twin.step("inventory")  # a step behind, in its own play
    assert env.step("help") == fast.step("help")
    assert sys.argv == argv and sys.stdout is out
    assert not {name for name in set(sys.modules) - modules if name.startswith(("textworld", "fast_downward"))}
    assert env.digest() == fast.digest()


@needs_engine
@pytest.mark.parametrize("agent", ["expert", "random"])
def test_eval_leaves_the_same_lines(agent: str, tmp_path: Path) -> None:
    lines = []
    for backend in ("fast", "textworld"):
        out = evaluate(Config(agent, env="alfworld", limit=2, backend=backend), tmp_path / backend)
        lines.append(gzip.decompress((out / "trajectories.jsonl.gz").read_bytes()))
    assert lines[0] == lines[1] and len(lines[0].splitlines()) == 4


@needs_engine
def test_a_hung_worker_is_stopped_and_other_plays_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    env, other = make(), make()
    for each, task in ((env, TASKS[0]), (other, TASKS[1])):
        each.reset(options={"task": task})
    other.step("go to somewhere")
    before = other.step("look")
    worker = worker_of(env)
    assert worker_of(other) is worker
    os.kill(worker.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(pool, "DEADLINE", 0.5)
    with pytest.raises(InfrastructureError, match="seconds and was stopped"):
        env.step("look")
    assert worker.process.returncode == -signal.SIGKILL
    monkeypatch.undo()
    assert other.step("look")[0] == before[0] and worker_of(other) is not worker
    assert env.step("look")[0]  # the failed episode, too, can be taken up again


@needs_engine
def test_a_dead_worker_is_an_infrastructure_error() -> None:
    env = make()
    env.reset(options={"task": TASKS[0]})
    os.kill(worker_of(env).process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="ended"):
        while True:  # the kernel may take a moment
            env.step("look")
            env._steps = 0


@needs_engine
def test_workers_are_replaced_and_places_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    POOL.close()
    monkeypatch.setitem(pool.GAMES, "textworld", 2)
    env, pids = make(), []
    for task in (*TASKS, TASKS[0]):
        env.reset(options={"task": task})
        pids.append(worker_of(env).process.pid)
        assert sum(len(worker.plays) for worker in POOL.workers) == 1
    assert pids[0] == pids[1] != pids[2] == pids[3] and not alive(pids[0])
    env.close()
    del env
    assert not any(worker.plays for worker in POOL.workers)


@needs_engine
def test_workers_die_with_a_killed_parent() -> None:
    code = (
        "from seedbench.envs.alfworld.env import ALFWorldEnv; from seedbench.envs.alfworld.real.pool import POOL\n"
        "env = ALFWorldEnv(backend='textworld'); env.reset(seed=0)\n"
        "print(POOL.workers[0].process.pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None and parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 30
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(pid)
    parent.stdin.close()
    parent.stdout.close()


@needs_engine
def test_threads_have_workers_of_their_own() -> None:
    seen: dict[str, list[str]] = {}

    def run(task: str) -> None:
        env = make()
        seen[task] = [env.reset(options={"task": task})[0], env.step("look")[0]]
        seen[task].append(str(worker_of(env).process.pid))

    threads = [threading.Thread(target=run, args=(task,)) for task in TASKS[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fast = make("fast")
    for task in TASKS[:2]:
        assert seen[task][:2] == [fast.reset(options={"task": task})[0], fast.step("look")[0]]
    assert pool.WORKERS < 2 or seen[TASKS[0]][2] != seen[TASKS[1]][2]


@needs_engine
def test_a_divergence_names_step_and_both_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    env.reset(options={"task": TASKS[0]})
    monkeypatch.setattr("seedbench.envs.alfworld.engine.HELP", "no help")
    with pytest.raises(backends.Divergence, match=r"`text` at step 1 \('help'\), textworld says .Avail.*'no help'"):
        env.step("help")


@pytest.fixture
def old_games(tmp_path: Path, real_engine: None) -> Path:
    """A folder of foreign games: one of another grammar, one of ours, one whose grammar holds code."""
    dataset = open_dataset("mini")
    source = dataset.source(TASKS[0])
    game = json.loads(game_json(source))
    old = {**game, "grammar": game["grammar"].replace('"move {o} to {r}"', '"put {o} in/on {r}"')}
    code = {**game, "grammar": game["grammar"].replace("You open the {r.name}", "You open the {open('x', 'w')}")}
    for split, body in (("train", old), ("valid_seen", game), ("valid_unseen", code)):
        path = tmp_path / "foreign" / split / "pick_and_place_simple-a" / "trial" / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(body))
    return tmp_path


def test_foreign_games_go_to_the_real_engine(old_games: Path, capfd: pytest.CaptureFixture[str]) -> None:
    backends._notice.cache_clear()
    env = make("fast", data=old_games)
    task = "foreign/train/pick_and_place_simple-a/trial"
    assert [t.id for t in env.tasks("train")] == [task] and not env.pinned("train")
    _, info = env.reset(options={"task": task})
    env.reset(options={"task": task})
    assert capfd.readouterr().err.count("go to the real one") == 1
    assert info["goal_progress"] == 0 and info["kind"] == "pick_and_place_simple" and info["admissible"]
    with pytest.raises(UnsupportedError, match="oracle"):
        env.expert()
    ours = make("fast", data=old_games)
    known = "foreign/valid_seen/pick_and_place_simple-a/trial"
    expected = make("fast").reset(options={"task": TASKS[0]})
    observation, info = ours.reset(options={"task": known})
    assert (observation, info["admissible"]) == (expected[0], expected[1]["admissible"])
    assert isinstance(ours._play, backends.Fast)
    while "put" not in "".join(info["admissible"]):
        action = next(c for c in (ours.expert(),) if c)
        ours.step(action)
        *_, info = env.step(action)
    assert any(" in/on " in c for c in info["admissible"])
    assert env.clone().step("look")[0] == env.step("look")[0]
    for split in ("dev", "paper"):
        with pytest.raises(SeedbenchError, match="choose --split among train, seen, unseen"):
            env.tasks(split)


def test_code_in_a_grammar_is_not_run(old_games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = make("fast", data=old_games)
    env.reset(options={"task": "foreign/valid_unseen/pick_and_place_simple-a/trial"})
    guide = make("fast")
    guide.reset(options={"task": TASKS[0]})
    going = [c for c in guide.step("look")[4]["admissible"] if c.startswith("go to")]
    with pytest.raises(SeedbenchError, match="more than names and texts"):
        for command in going:
            opening = [c for c in env.step(command)[4]["admissible"] if c.startswith("open ")]
            if opening:
                env.step(opening[0])
    assert not (tmp_path / "x").exists()


def test_an_empty_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    with pytest.raises(SeedbenchError, match="holds no games"):
        make("fast", data=tmp_path)


def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    backends._installed.cache_clear()
    monkeypatch.setattr(backends, "version", absent)
    for backend in ("textworld", "alfworld"):
        with pytest.raises(SeedbenchError, match=r"not installed.*pip install 'seedbench\[alfworld\]'"):
            make(backend)
    monkeypatch.undo()
    backends._installed.cache_clear()


def test_other_versions_are_played_untouched_with_a_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backends._notice.cache_clear()
    monkeypatch.setattr(backends, "_installed", lambda: {**turbo.VERSIONS, "textworld": "1.8.0"})
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    for _ in range(2):
        chosen = make("textworld")._chosen
        assert isinstance(chosen, backends.Real) and chosen.engine == "plain"
    assert capsys.readouterr().err.count("do not know textworld 1.8.0") == 1


def test_python_3_13_runs_the_cached_engine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_installed", lambda: dict(turbo.VERSIONS))
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    chosen = make("textworld")._chosen
    assert isinstance(chosen, backends.Real) and chosen.engine == "textworld"
    with pytest.raises(SeedbenchError, match=r"does not run on Python 3\.13"):
        make("alfworld")


class Thing:
    name, indefinite, id = "mug 1", "a", "mug_bar_1"


@pytest.mark.parametrize(
    ("text", "value"),
    [("o.name", "mug 1"), ("o.indefinite + ' ' + o.name", "a mug 1"), ("o.name or o.id", "mug 1"), ("o", Thing)],
)
def test_grammar_expressions_need_no_python(text: str, value: object) -> None:
    assert turbo.expression(text)({"o": Thing}) == value


@pytest.mark.parametrize("text", ["", "o.__class__", "open('x')", "o.name * 9", "1", "o.name.id", "lambda: 0", "x y"])
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(SeedbenchError, match="not run"):
        turbo.expression(text)


@needs_engine
@pytest.mark.slow
def test_two_hundred_games_leak_nothing() -> None:
    """Resident memory of this process and of the worker over 200 games of ten steps, played by one environment."""
    POOL.close()
    env, sizes, rng = make(), [], np.random.default_rng(0)
    for task in open_dataset("mini").tasks("train")[:200]:
        env.reset(options={"task": task.id})
        for _ in range(10):
            env.step(env.sample(rng))
        sizes.append((resident("self"), resident(str(worker_of(env).process.pid))))
        assert len(POOL.workers) == 1
    parent, worker = zip(*sizes, strict=True)
    print(
        f"MB resident: parent {parent[20]:.0f} -> {parent[-1]:.0f}, worker {worker[0]:.0f}, at most {max(worker):.0f}"
    )
    assert parent[-1] - parent[20] < 20 and max(worker) < 600


def resident(process: str) -> float:
    """MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
