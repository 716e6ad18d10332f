"""RemoteEnv and `eval --server`: the same environment over HTTP, whatever happens to connection and server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench import remote
from seedbench.agents.scripted import Random
from seedbench.client import Client, RemoteFault
from seedbench.core import EpisodeOver, InfrastructureError, SeedbenchError, TextEnv, UnsupportedError, View
from seedbench.exam import make_env
from seedbench.remote import RemoteEnv
from seedbench.rollout import Episode, play
from seedbench.serve.app import create_app
from tests.servers import breaking, serving, threaded
from tests.test_env_contract import HELD, INFO, some_tasks, walk
from tests.test_evaluate import lines, results, run, start
from tests.toy import Counter, task

ALFWORLD, TOY = "seedbench/ALFWorld-v0", "toy/Counter-v0"


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gym.register(id=TOY, entry_point=Counter, order_enforce=False)
    yield
    gym.registry.pop(TOY)


def counter(**settings: Any) -> Counter:
    return Counter()


def toy_app(**options: Any) -> Any:
    return create_app(TOY, counter, **options)


def quick(url: str, **options: Any) -> Client:
    return Client(url, **{"backoff": 0.01, "deadline": 5.0, **options})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with threaded(create_app(ALFWORLD, partial(make_env, ALFWORLD))) as address:
        yield address


@pytest.fixture(scope="module")
def local() -> TextEnv:
    return make_env(ALFWORLD)


@pytest.fixture
def env(url: str) -> Iterator[TextEnv]:
    made = RemoteEnv(ALFWORLD, url)
    yield made
    made.close()


# The environment contract, as far as a server can keep it


def test_gymnasium_accepts_it(env: TextEnv) -> None:
    check_env(env, skip_render_check=True)


def test_it_says_what_the_local_environment_says(env: TextEnv, local: TextEnv) -> None:
    for name in some_tasks(local, 2):
        assert walk(env, name, seed=4) == walk(local, name, seed=4)
        _, info = env.reset(options={"task": name})
        assert set(info) >= INFO and all(isinstance(a, str) and a for a in info["admissible"])


def test_tasks_digest_and_words_are_those_of_the_local_environment(env: TextEnv, local: TextEnv, url: str) -> None:
    for split in HELD:
        assert env.tasks(split) == local.tasks(split) and env.pinned(split) == local.pinned(split)
    assert (env.digest(), env.max_steps, env.replay, env.data) == (
        local.digest(), local.max_steps, local.replay, local.data,
    )  # fmt: skip
    assert env.PROMPT is local.PROMPT and env.PRESETS is local.PRESETS
    assert type(env).parse is type(local).parse
    assert RemoteEnv(ALFWORLD, url + "/api/", max_steps=3).digest() == make_env(ALFWORLD, max_steps=3).digest()


def test_the_step_limit_truncates_and_is_not_a_win(url: str, local: TextEnv) -> None:
    short = RemoteEnv(ALFWORLD, url, max_steps=2)
    short.reset(seed=0, options={"task": some_tasks(local, 1)[0]})
    assert short.step("")[3] is False
    _, reward, terminated, truncated, info = short.step("")
    assert (terminated, truncated, info["won"], info["steps"], reward) == (False, True, False, 2, 0.0)
    with pytest.raises(SeedbenchError, match="reset"):
        short.step("")
    short.close()
    with pytest.raises(EpisodeOver):
        short.step("look")


def test_reset_without_options_draws_as_the_local_environment(env: TextEnv, url: str) -> None:
    mine = make_env(ALFWORLD)
    for seed in (5, 5, None, None, 6, None):  # without a seed the draws go on
        assert env.reset(seed=seed) == mine.reset(seed=seed)
    dev = RemoteEnv(ALFWORLD, url, split="dev")
    assert dev.reset(seed=1)[1]["task"] in {t.id for t in dev.tasks("dev")}  # type: ignore[typeddict-item]
    dev.close()


def test_an_unknown_task_is_refused_with_a_sentence(env: TextEnv) -> None:
    for bad in ("no-such-task", "", "../../etc/passwd", "x" * 10_000, 5, {"a": 1}):
        with pytest.raises(SeedbenchError) as refusal:
            env.reset(options={"task": bad})
        assert not isinstance(refusal.value, InfrastructureError)
    with pytest.raises(SeedbenchError):
        env.tasks("no-such-split")
    with pytest.raises(UnsupportedError, match="goal"):
        env.reset(options={"goal": {}})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.text(max_size=40) | st.sampled_from(["", "\0", "a" * 100_000, "ﷺ", "\ud800"]), max_size=4))
def test_garbage_costs_a_step(url: str, local: TextEnv, actions: list[str]) -> None:
    env = RemoteEnv(ALFWORLD, url)
    env.reset(seed=0, options={"task": some_tasks(local, 1)[0]})
    for n, action in enumerate(actions, 1):
        info = env.step(action)[-1]
        assert info["steps"] == n and (info["is_action_valid"] or info["invalid_reason"])
    env.close()


def test_what_a_server_cannot_do_is_a_typed_error(env: TextEnv) -> None:
    env.reset(seed=0)
    for call in (env.clone, env.expert):
        with pytest.raises(UnsupportedError, match="locally"):
            call()


def test_environments_do_not_share_state_and_vectors_work(url: str) -> None:
    vec = gym.vector.SyncVectorEnv([lambda: RemoteEnv(ALFWORLD, url)] * 3)
    observations, _ = vec.reset(seed=[1, 2, 3])
    assert list(observations) == [make_env(ALFWORLD).reset(seed=s)[0] for s in (1, 2, 3)]
    vec.step(["", "", ""])
    vec.close()


def test_close_ends_the_session_and_can_be_repeated() -> None:
    app = toy_app()
    with threaded(app) as url:
        env = RemoteEnv(TOY, url)
        env.reset(options={"task": "to-1"})
        assert app.test_client().get("/health").json["sessions"] == 1
        env.reset(options={"task": "to-2"})
        assert app.test_client().get("/health").json["sessions"] == 1
        env.close()
        env.close()
        assert app.test_client().get("/health").json["sessions"] == 0


# What the network does


def test_a_step_whose_answer_was_lost_is_not_played_twice() -> None:
    broken: list[str] = []

    def breaks(path: str) -> bool:
        broken.append(path)
        return path.startswith("/api/step") and broken.count(path) % 3 != 0  # two of three answers are lost

    with breaking(toy_app(), breaks) as url:
        env = RemoteEnv(TOY, quick(url))
        env.reset(options={"task": "to-4"})
        said = [env.step("up")[0] for _ in range(4)]
    assert said == ["count: 1", "count: 2", "count: 3", "count: 4"]
    assert len([p for p in broken if p.startswith("/api/step")]) == 12


def test_a_second_reset_whose_answer_was_lost_draws_once(local: TextEnv) -> None:
    resets = 0

    def breaks(path: str) -> bool:
        nonlocal resets
        resets += path == "/api/reset"
        return path == "/api/reset" and resets == 2

    with breaking(create_app(ALFWORLD, partial(make_env, ALFWORLD)), breaks) as url:
        env, mine = RemoteEnv(ALFWORLD, quick(url)), make_env(ALFWORLD)
        assert [env.reset(seed=7)[0], env.reset()[0]] == [mine.reset(seed=7)[0], mine.reset()[0]]
    assert resets == 3


def test_a_server_that_is_gone_is_an_infrastructure_error_and_then_left_alone() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
    client = quick(url, retries=3, backoff=0.05)
    for least, most in ((0.3, 3), (0, 0.05)):
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            RemoteEnv(TOY, client)
        assert least <= time.monotonic() - began < most


def test_a_server_that_does_not_answer_is_given_up_at_the_deadline() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            RemoteEnv(TOY, Client(f"http://127.0.0.1:{s.getsockname()[1]}", deadline=0.3, retries=1, backoff=0.01))
        assert time.monotonic() - began < 3


def test_a_full_server_is_waited_for_and_then_named() -> None:
    with threaded(toy_app(max_sessions=1)) as url:
        held, other = RemoteEnv(TOY, quick(url)), RemoteEnv(TOY, quick(url))
        held.reset(options={"task": "to-1"})
        threading.Timer(0.5, held.close).start()
        other.reset(options={"task": "to-2"})
        with pytest.raises(InfrastructureError, match="--max-sessions"):
            RemoteEnv(TOY, quick(url, deadline=0.5)).reset(options={"task": "to-1"})
        assert other.step("up")[0] == "count: 1"


def test_a_lost_session_leaves_the_episode_unplayed_and_the_environment_usable() -> None:
    app = toy_app()
    with threaded(app) as url:
        env = RemoteEnv(TOY, quick(url))
        env.reset(options={"task": "to-3"})
        app.test_client().post("/api/close", json={"session": env._session})
        with pytest.raises(InfrastructureError, match="lost the episode"):
            env.step("up")
        assert env.reset(options={"task": "to-3"})[0] == "count: 0"


def test_another_environment_or_data_behind_the_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with threaded(toy_app()) as url:
        with pytest.raises(SeedbenchError, match="serves toy/Counter-v0, not seedbench/ALFWorld-v0"):
            RemoteEnv(ALFWORLD, url)
        env = RemoteEnv(TOY, quick(url))
        monkeypatch.setattr(Counter, "digest", lambda self: "toy-2")
        with pytest.raises(InfrastructureError, match="other data"):
            env.reset(options={"task": "to-1"})


@pytest.mark.parametrize(
    "address", ["", "localhost", "ftp://x", "http://", "http://h:99999", "http://u:p@h", "http://h?x"]
)
def test_bad_urls_get_one_sentence(address: str) -> None:
    with pytest.raises(SeedbenchError, match="--server"):
        Client(address)


def test_something_else_behind_the_url_gets_one_sentence() -> None:
    def site(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/html")])
        return [b"<h1>hello</h1>"]

    with threaded(site) as url, pytest.raises(SeedbenchError, match="does not answer as"):
        RemoteEnv(TOY, url)


def test_an_environment_that_is_not_registered_here_gets_one_sentence() -> None:
    with pytest.raises(SeedbenchError, match="no environment here"):
        RemoteEnv("nope/Nope-v0", "http://127.0.0.1:1")


def test_without_requests_there_is_one_sentence() -> None:
    code = (
        "import sys; sys.modules['requests'] = None; from seedbench.cli import main; "
        "main(['eval', '--agent', 'null', '--env', 'alfworld', '--server', 'http://127.0.0.1:1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "'.[serve]'" in done.stderr and "Traceback" not in done.stderr


def test_each_thread_has_its_own_connection(url: str) -> None:
    client, found = Client(url), []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append((client._session(), client._session())))
        thread.start()
        thread.join()
    (a, b), (c, d) = found
    assert a is b and c is d and a is not c


# play() and eval


def test_play_lets_calls_overlap_and_results_depend_on_the_episode_alone() -> None:
    under_way, most = 0, 0
    lock = threading.Lock()

    class Slow(Counter):
        def step(self, action: str) -> Any:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.01)
            with lock:
                under_way -= 1
            return super().step(action)

    episodes = [Episode(task(f"to-{1 + n % 5}"), seed=3, trial=n) for n in range(24)]
    episodes += [Episode(task("fault-step")), Episode(task("fault-reset"))]
    with threaded(create_app(TOY, lambda **settings: Slow())) as url:
        make = remote.connect(url, TOY)
        there = {(t.task.id, t.trial): t for t in play(make, episodes, Random(), slots=12)}
        again = [(t.task.id, t.trial) for t in play(make, episodes, Random(), slots=12)]
    here = {(t.task.id, t.trial): t for t in play(Counter, episodes, Random(), slots=12)}
    assert most > 3 and again == list(there)
    for key, mine in here.items():
        if mine.ended != "error":
            assert there[key] == mine
    assert there["fault-step", 0].error == "RemoteFault: ValueError: broken at step"
    assert len(there["fault-step", 0].steps) == 2 and there["fault-reset", 0].ended == "error"
    assert issubclass(RemoteFault, SeedbenchError) and not issubclass(RemoteFault, InfrastructureError)


BASE = ["--agent", "random", "--env", "alfworld", "--split", "seen,unseen", "--limit", 12, "--seed", 3]


def test_eval_on_a_server_gives_the_bytes_of_a_local_run(url: str, tmp_path: Path) -> None:
    run("eval", *BASE, "--out", tmp_path / "here")
    run("eval", *BASE, "--server", url, "--out", tmp_path / "there")
    run("eval", "--agent", "random", "--server", url, "--split", "seen,unseen", "--limit", 12, "--seed", 3,
        "--batch", 1, "--out", tmp_path / "one")  # fmt: skip
    for name in ("trajectories.jsonl.gz", "results.json", "report.html"):
        assert len({(tmp_path / n / name).read_bytes() for n in ("here", "there", "one")}) == 1, name
    assert json.loads((tmp_path / "there" / "run.json").read_text())["config"]["server"] == url
    assert "127.0.0.1" not in (tmp_path / "there" / "results.json").read_text()


def test_presets_and_step_limits_reach_the_server(url: str, tmp_path: Path) -> None:
    for where in ([], ["--server", url]):
        run(
            "eval",
            *BASE,
            *where,
            "--preset",
            "seed",
            "--max-steps",
            2,
            "--limit",
            2,
            "--out",
            tmp_path / f"{len(where)}",
        )
    here, there = (results(tmp_path / n)["protocol"] for n in "02")
    assert here == there and here["environments"][ALFWORLD]["max_steps"] == 2
    assert all(len(line["steps"]) == 2 for line in lines(tmp_path / "2"))


def test_a_run_takes_no_more_sessions_than_the_server_has(tmp_path: Path) -> None:
    with threaded(create_app(ALFWORLD, partial(make_env, ALFWORLD), max_sessions=2)) as url:
        run("eval", *BASE, "--server", url, "--out", tmp_path / "r")
    assert all(r["attempted"] == 12 and r["errors"] == 0 for r in results(tmp_path / "r")["results"])


MISTAKES = [
    (["--agent", "expert"], "--agent expert"),
    (["--agent", "random", "--data", "x"], "--data is the server's"),
    (["--agent", "random", "--backend", "fast"], "--backend is the server's"),
    (["--agent", "random", "--preset", "nope"], "--preset nope"),
]


@pytest.mark.parametrize("args, says", MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_get_one_sentence(
    args: list[str], says: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("eval", *args, "--server", url, "--out", tmp_path / "r", code=2)
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err and not (tmp_path / "r").exists()


@pytest.mark.parametrize("moved", [False, True], ids=["same port", "another port"])
def test_a_server_killed_in_the_middle_then_resume(moved: bool, tmp_path: Path) -> None:
    """The run says so and exits 1, what was done stays, and a new server lets it end with the bytes of a whole run."""
    long = ["--agent", "random", "--env", "alfworld", "--split", "seen", "--limit", 10, "--trials", 15, "--batch", 8]
    run("eval", *long, "--out", tmp_path / "whole")
    out = tmp_path / "r"
    journal = out / "journal.jsonl"
    with serving(tmp_path) as (url, process):
        evaluation = start("eval", *long, "--server", url, "--out", out)
        while not journal.exists() or journal.read_bytes().count(b"\n") < 10:
            assert evaluation.poll() is None, evaluation.communicate()[0]
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        said = evaluation.communicate(timeout=60)[0]
    assert evaluation.returncode == 1 and "were not played" in said and "--resume" in said
    assert "cannot be reached" in said and "Traceback" not in said
    held = journal.read_bytes()
    assert 10 <= held.count(b"\n") < 150
    assert not (out / "results.json").exists()
    with serving(tmp_path, port=0 if moved else int(url.rpartition(":")[2])) as (new, _):
        run("eval", "--resume", out, *(["--server", new] if moved else []))
    assert json.loads((out / "run.json").read_text())["config"]["server"] == new
    for name in ("trajectories.jsonl.gz", "results.json", "report.html"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_local_run_cannot_move_to_a_server(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("eval", *BASE, "--out", tmp_path / "r")
    held = json.loads((tmp_path / "r" / "run.json").read_text())
    (tmp_path / "r" / "run.json").write_text(json.dumps({**held, "status": "running"}))
    run("eval", "--resume", tmp_path / "r", "--server", url, code=2)
    assert "was not begun on a server" in capsys.readouterr().err


def test_the_prompt_can_be_rendered(env: TextEnv) -> None:
    observation, info = env.reset(seed=0)
    view = View(info["goal"], observation, tuple(info["admissible"]), ())
    assert observation in env.PROMPT.render(view)[1]["content"]
    assert env.sample(np.random.default_rng(0)) in info["admissible"]
