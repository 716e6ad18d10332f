"""`seedbench serve`: what the API answers, what it refuses, and what no client can break."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Blueprint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbench import cli
from seedbench.core import SeedbenchError
from seedbench.exam import make_env
from seedbench.serve.app import create_app
from seedbench.serve.server import _write_port
from seedbench.serve.sessions import Refused, Sessions
from tests.servers import serving
from tests.toy import Counter

ALFWORLD = "seedbench/ALFWorld-v0"


def counter(max_steps: int = 6, split: str = "train") -> Counter:
    env = Counter()
    env.max_steps = max_steps
    return env


def client(**options: Any) -> Any:
    return create_app("toy/Counter-v0", counter, **options).test_client()


def post(c: Any, name: str, **body: Any) -> dict[str, Any]:
    answer = c.post(f"/api/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json


def refused(answer: Any, status: int, code: str) -> str:
    """The sentence of an error, which is JSON and holds no traceback."""
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "application/json" and answer.json["error"] == code
    assert "Traceback" not in answer.text and ".py" not in answer.text
    return answer.json["message"]


def test_an_episode_over_the_api() -> None:
    c = client()
    health = c.get("/health").json
    assert (health["status"], health["env"], health["digest"]) == ("ok", "toy/Counter-v0", "toy-1")
    assert [t["id"] for t in c.get("/api/tasks?split=seen").json["tasks"]] == [f"to-{n}" for n in range(1, 6)]
    first = post(c, "reset", task="to-2", seed=1)
    assert (first["turn"], first["observation"], first["done"], first["digest"]) == (0, "count: 0", False, "toy-1")
    one = post(c, "step", session=first["session"], action="up")
    assert (one["turn"], one["reward"], one["info"]["steps"]) == (1, 0.0, 1)
    two = post(c, "step", session=first["session"], action="up", turn=2)
    assert (two["terminated"], two["done"], two["reward"], two["info"]["won"]) == (True, True, 1.0, True)
    assert c.get(f"/api/state?session={first['session']}").json == two
    assert "reset" in refused(
        c.post("/api/step", json={"session": first["session"], "action": "up"}), 409, "episode_over"
    )
    again = post(c, "reset", session=first["session"], task="to-1")
    assert (again["turn"], again["session"]) == (3, first["session"])
    assert post(c, "close", session=first["session"]) == {"closed": True}
    refused(c.post("/api/close", json={"session": first["session"]}), 404, "unknown_session")


def test_the_api_says_what_the_environment_says() -> None:
    c = create_app(ALFWORLD, partial(make_env, ALFWORLD)).test_client()
    env = make_env(ALFWORLD)
    task = env.tasks("unseen")[3]
    assert c.get("/digest").json["digest"] == env.digest()
    assert c.get("/digest?max_steps=3").json["digest"] == make_env(ALFWORLD, max_steps=3).digest() != env.digest()
    said, (observation, info) = post(c, "reset", task=task.id, seed=5), env.reset(seed=5, options={"task": task.id})
    assert (said["observation"], said["info"], said["task"]) == (observation, info, task.id)
    for _ in range(env.max_steps):
        action = env.expert()
        assert action is not None
        said = post(c, "step", session=said["session"], action=action)
        observation, reward, terminated, truncated, info = env.step(action)
        assert (said["observation"], said["reward"], said["info"]) == (observation, reward, info)
        if terminated or truncated:
            break
    assert said["done"] and said["info"]["won"]
    # The reply adds its own bookkeeping and nothing about the goal beyond the environment's words.
    extra = set(said) - {"observation", "reward", "terminated", "truncated", "info"}
    assert extra == {"session", "turn", "task", "done"}


def test_a_request_that_comes_twice_is_played_once() -> None:
    c = client()
    session = post(c, "reset", task="to-3")["session"]
    first = post(c, "step", session=session, action="up", turn=1)
    assert post(c, "step", session=session, action="up", turn=1) == first
    assert post(c, "step", session=session, action="up", turn=2)["observation"] == "count: 2"
    for turn, action in ((2, "down"), (1, "up"), (4, "up"), (0, "up")):
        answer = c.post("/api/step", json={"session": session, "action": action, "turn": turn})
        assert "which is 3" in refused(answer, 409, "wrong_turn")
    assert c.get(f"/api/state?session={session}").json["observation"] == "count: 2"


MALFORMED: list[tuple[str, bytes]] = [
    ("step", b""), ("step", b"{"), ("step", b"[]"), ("step", b"null"), ("step", b"\xff\xfe"), ("step", b"[" * 200_000),
    ("step", b'{"session": "x"}'), ("step", b'{"session": 5, "action": "up"}'), ("step", b'{"action": "up"}'),
    ("step", b'{"session": "S", "action": ["up"]}'), ("step", b'{"session": "S", "action": null}'),
    ("step", b'{"session": "S", "action": "up", "turn": "1"}'),
    ("step", b'{"session": "S", "action": "up", "turn": true}'),
    ("step", b'{"session": "S", "action": "up", "turn": -1}'),
    ("step", b'{"session": "S", "action": "up", "turn": 1.5}'),
    ("step", b'{"session": "S", "action": "up", "turn": 1e400}'), ("step", b'{"session": "S", "action": "up", "x": 1}'),
    ("step", b'{"session": "S", "action": "up", "turn": ' + b"9" * 5000 + b"}"),
    ("reset", b'{"task": 5}'), ("reset", b'{"task": {}}'), ("reset", b'{"seed": -1}'), ("reset", b'{"seed": "1"}'),
    ("reset", b'{"seed": NaN}'), ("reset", b'{"seed": 1e3}'), ("reset", b'{"seed": 99999999999999999999999}'),
    ("reset", b'{"max_steps": 0}'), ("reset", b'{"max_steps": "9"}'), ("reset", b'{"max_steps": 1000000000}'),
    ("reset", b'{"split": 1}'), ("reset", b'{"turn": 1}'), ("reset", b'{"session": "S", "max_steps": 3}'),
    ("reset", b'{"goal": {}}'), ("close", b"{}"), ("close", b'{"session": null}'), ("close", b'"S"'),
    ("reset", b'{"task": "' + b"x" * 5000 + b'"}'),
]  # fmt: skip


@pytest.mark.parametrize("name, body", MALFORMED, ids=[f"{n} {b[:50]!r}" for n, b in MALFORMED])
def test_malformed_requests_are_answered_400_and_change_nothing(name: str, body: bytes) -> None:
    c = client()
    session = post(c, "reset", task="to-3")["session"]
    before = c.get(f"/api/state?session={session}").json
    message = refused(c.post(f"/api/{name}", data=body.replace(b'"S"', b'"%s"' % session.encode())), 400, "malformed")
    assert message and len(message) < 400
    assert c.get(f"/api/state?session={session}").json == before
    assert c.get("/health").json["sessions"] == 1


def test_what_is_not_there() -> None:
    c = client()
    for path in ("/api/nope", "/api/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/step/x", "//api//tasks"):
        refused(c.get(path), 404, "no_such_page")
    refused(c.get("/api/step"), 405, "wrong_method")
    refused(c.post("/api/tasks"), 405, "wrong_method")
    for name in ("nope", "", "../x", "x" * 999, "' OR 1=1", "<script>", "\0"):
        refused(c.post("/api/step", json={"session": name, "action": "up"}), 404, "unknown_session")
        refused(c.get("/api/state", query_string={"session": name}), 404, "unknown_session")
    refused(c.get("/api/state"), 400, "malformed")
    refused(c.get("/api/tasks"), 400, "malformed")
    refused(c.get("/api/tasks?split=seen&x=1"), 400, "malformed")
    for steps in ("x", "-1", "0", "1e3", "9" * 50, "٣"):
        refused(c.get("/api/digest", query_string={"max_steps": steps}), 400, "malformed")
    alfworld = create_app(ALFWORLD, partial(make_env, ALFWORLD)).test_client()
    assert "no-such" in refused(alfworld.post("/api/reset", json={"task": "no-such"}), 400, "bad_task")
    assert "no-such" in refused(alfworld.get("/api/tasks?split=no-such"), 400, "bad_split")
    assert alfworld.get("/health").json["sessions"] == 0  # a session whose first reset is refused is not kept


def test_huge_bodies_are_refused_unread() -> None:
    c = client()
    session = post(c, "reset", task="to-3")["session"]
    big = json.dumps({"session": session, "action": "x" * (2 << 20)})
    assert "2097152 bytes" in refused(c.post("/api/step", data=big), 413, "too_big")
    assert post(c, "step", session=session, action="x" * 100_000)["info"]["is_action_valid"] is False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["reset", "step", "close"]),
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["session", "action", "task", "seed"]), inner),
    ),
)
def test_no_json_makes_the_server_fail(fuzzed: Any, name: str, body: object) -> None:
    answer = fuzzed.post(f"/api/{name}", data=json.dumps(body))
    assert answer.status_code in (200, 400, 404, 429) and answer.json


@pytest.fixture(scope="module")
def fuzzed() -> Any:
    return create_app(ALFWORLD, partial(make_env, ALFWORLD), max_sessions=20).test_client()


def test_a_fault_of_the_environment_is_told_without_a_traceback() -> None:
    c = client()
    session = post(c, "reset", task="fault-step")["session"]
    post(c, "step", session=session, action="up")
    answer = c.post("/api/step", json={"session": session, "action": "up"})
    assert refused(answer, 500, "environment_failed") == "ValueError: broken at step"
    refused(c.post("/api/step", json={"session": session, "action": "up"}), 404, "unknown_session")
    assert "broken at reset" in refused(c.post("/api/reset", json={"task": "fault-reset"}), 500, "environment_failed")
    answer = c.post("/api/reset", json={"task": "gone"})
    assert "the server is gone" in refused(answer, 503, "unavailable") and answer.headers["Retry-After"] == "1"
    assert c.get("/health").json["sessions"] == 0


def test_sessions_are_isolated() -> None:
    c = client()
    one, two = (post(c, "reset", task=t)["session"] for t in ("to-2", "to-5"))
    post(c, "step", session=one, action="up")
    assert post(c, "step", session=two, action="down")["observation"] == "count: -1"
    assert post(c, "step", session=one, action="up")["info"]["won"]
    assert post(c, "step", session=two, action="up")["observation"] == "count: 0"


def test_sessions_are_capped_and_closing_makes_room() -> None:
    c = client(max_sessions=3)
    held = [post(c, "reset", task="to-1")["session"] for _ in range(3)]
    answer = c.post("/api/reset", json={"task": "to-1"})
    assert "--max-sessions" in refused(answer, 429, "too_many_sessions")
    assert 1 <= int(answer.headers["Retry-After"]) <= 5
    post(c, "close", session=held[1])
    post(c, "reset", task="to-1")
    assert c.get("/health").json["sessions"] == 3


def test_idle_sessions_expire() -> None:
    now = [0.0]
    sessions = Sessions(limit=2, ttl=10, clock=lambda: now[0])
    names = []
    for _ in range(2):
        with sessions.open() as session:
            session.env = counter()
            names.append(session.id)
    now[0] = 9
    with sessions.use(names[0]):
        pass
    now[0] = 10
    assert len(sessions) == 1 and sessions.counts["expired"] == 1
    with pytest.raises(Refused), sessions.use(names[1]):
        pass
    with sessions.open(), sessions.use(names[0]):  # room again, and one under way does not expire
        now[0] = 100
        assert len(sessions) == 2
    now[0] = 200
    assert len(sessions) == 0


def test_two_requests_of_one_session_are_served_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(limit=2, ttl=10)
    with sessions.open() as session:
        name = session.id
    monkeypatch.setattr("seedbench.serve.sessions.BUSY_WAIT", 0.05)
    with sessions.use(name), pytest.raises(Refused, match="under way") as refusal, sessions.use(name):
        pass
    assert refusal.value.status == 409


def test_64_clients_race_one_session() -> None:
    """Without turn numbers every step counts once; with them, one of the racers wins each turn."""
    app = create_app("toy/Counter-v0", partial(counter, max_steps=1000))
    session = post(app.test_client(), "reset", task="to-5", seed=0)["session"]

    def race(k: int) -> tuple[int, int]:
        answer = app.test_client().post("/api/step", json={"session": session, "action": "down"})
        return answer.status_code, answer.json["info"]["steps"]

    def contest(k: int) -> int:
        body = {"session": session, "action": f"racer {k}", "turn": 65}
        return app.test_client().post("/api/step", json=body).status_code

    with ThreadPoolExecutor(64) as pool:
        assert sorted(pool.map(race, range(64))) == [(200, n) for n in range(1, 65)]
        assert sorted(pool.map(contest, range(64))) == [200] + [409] * 63
    assert app.test_client().get(f"/api/state?session={session}").json["observation"] == "count: -64"


def test_metrics_are_prometheus_text() -> None:
    c = client()
    session = post(c, "reset", task="to-2")["session"]
    post(c, "step", session=session, action="up")
    c.get("/no/such/<page>\n")
    answer = c.get("/metrics")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert values["seedbench_sessions"] == 1 and values["seedbench_steps_total"] == 1
    assert values['seedbench_requests_total{route="step",status="200"}'] == 1
    assert values['seedbench_requests_total{route="none",status="404"}'] == 1
    assert values["seedbench_requests_under_way"] == 1  # this one


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def episodes(c: Any, tasks: list[str], n: int) -> None:
    """Half of them closed, half abandoned, so that the cap and the TTL do their work too."""
    for k in range(n):
        while (answer := c.post("/api/reset", json={"task": tasks[k % len(tasks)], "seed": k})).status_code == 429:
            time.sleep(0.05)
        session = answer.json["session"]
        c.post("/api/step", json={"session": session, "action": "look" if k % 3 else "x" * 5000})
        if k % 2:
            c.post("/api/close", json={"session": session})


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc, which this system lacks")
@pytest.mark.parametrize(
    "n", [2_000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["2,000 episodes", "100,000 episodes"]
)
def test_memory_stays_flat(n: int) -> None:
    c = create_app(ALFWORLD, partial(make_env, ALFWORLD), max_sessions=50, ttl=0.05).test_client()
    tasks = [t.id for t in make_env(ALFWORLD).tasks("seen")[:20]]
    episodes(c, tasks, 1000)
    before = resident()
    episodes(c, tasks, n)
    grown = resident() - before
    assert grown < 3e6, f"{n} episodes grew the process by {grown} bytes"


def test_2000_episodes_over_http_leave_the_server_flat_and_sigterm_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-sessions", 100, "--ttl", 60) as (url, process):
        tasks = [t.id for t in make_env(ALFWORLD).tasks("seen")[:20]]

        def play(n: int) -> None:
            with requests.Session() as http:
                for k in range(n):
                    said = http.post(f"{url}/api/reset", json={"task": tasks[k % 20], "seed": k}, timeout=30).json()
                    http.post(f"{url}/api/step", json={"session": said["session"], "action": "look"}, timeout=30)
                    closed = http.post(f"{url}/api/close", json={"session": said["session"]}, timeout=30)
                    assert closed.status_code == 200

        def memory() -> int:
            return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        flat = Path("/proc/self/statm").exists()
        play(200)
        before = memory() if flat else 0
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(play, [450] * 4))
        assert not flat or memory() - before < 6e6
        assert requests.get(f"{url}/health", timeout=30).json()["sessions"] == 0
        process.send_signal(signal.SIGTERM)
        out = process.communicate(timeout=20)[0]
        assert process.returncode == 0 and out.endswith("stopped\n")
        assert not list(tmp_path.glob("port*"))


def test_sigterm_lets_a_request_under_way_end() -> None:
    """In this process: the drain waits for the request and refuses new ones."""
    from seedbench.serve import server

    began, go = threading.Event(), threading.Event()

    class Slow(Counter):
        def step(self, action: str) -> Any:
            began.set()
            assert go.wait(10)
            return super().step(action)

    app = create_app("toy/Counter-v0", lambda **settings: Slow())
    session = post(app.test_client(), "reset", task="to-1")["session"]
    with ThreadPoolExecutor(2) as pool, pytest.MonkeyPatch.context() as patch:
        stopped = threading.Event()
        patch.setattr(server._thread, "interrupt_main", stopped.set)
        slow = pool.submit(app.test_client().post, "/api/step", json={"session": session, "action": "up"})
        assert began.wait(10)
        drain = pool.submit(server._drain, app)
        while not app.extensions["seedbench"].stopping:
            time.sleep(0.001)
        refused(app.test_client().get("/health"), 503, "stopping")
        assert not stopped.is_set()
        go.set()
        assert slow.result().json["info"]["won"]
        drain.result()
        assert stopped.is_set()


MISTAKES = [
    (["env", "alfwold"], "alfwold is not an environment"),
    (["env", "alfworld", "--port", "70000"], "--port is 70000"),
    (["env", "alfworld", "--ttl", "0"], "--ttl is 0"),
    (["env", "alfworld", "--max-sessions", "0"], "--max-sessions is 0"),
    (["env", "alfworld", "--threads", "0"], "--threads is 0"),
    (["env", "alfworld", "--data", "no_such_folder"], "no_such_folder"),
    (["env", "alfworld", "--port", "0", "--port-file", "no/such/folder/f"], "--port-file"),
]


@pytest.mark.parametrize("args, says", MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_get_one_sentence(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["serve", *args])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and says in err and err.startswith("seedbench: ") and "Traceback" not in err


def test_a_port_in_use_gets_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        command = [sys.executable, "-m", "seedbench", "serve", "env", "alfworld", "--port", url.rpartition(":")[2]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "cannot listen" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["flask", "waitress"])
def test_a_missing_package_gets_one_sentence(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None; from seedbench.cli import main; "
        "main(['serve', 'env', 'alfworld', '--port', '0'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "'.[serve]'" in done.stderr and "Traceback" not in done.stderr


def test_an_action_is_bounded_and_a_session_keeps_a_hash_of_it() -> None:
    app = create_app("toy/Counter-v0", counter)
    c = app.test_client()
    session = post(c, "reset", task="to-2")["session"]
    assert "100000" in refused(c.post("/api/step", json={"session": session, "action": "x" * 100_001}), 413, "too_big")
    one = post(c, "step", session=session, action="😀" * 100_000, turn=1)
    assert post(c, "step", session=session, action="😀" * 100_000, turn=1) == one
    refused(c.post("/api/step", json={"session": session, "action": "😀", "turn": 1}), 409, "wrong_turn")


def test_double_slashes_are_not_redirected() -> None:
    for path in ("/api//health", "/api///health", "/api/health/"):
        answer = client().get(path, headers={"Host": "evil.example"})
        assert "Location" not in answer.headers
        refused(answer, 404, "no_such_page")


def test_no_reply_holds_a_lone_surrogate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counter, "digest", lambda self: "a\ud800b😀")
    assert client().get("/health").json["digest"] == "a�b😀"


def test_a_request_whose_error_page_fails_is_counted_to_its_end() -> None:
    def page_error(status: int, cause: str) -> Any:
        raise RuntimeError("no page")

    app = create_app("toy/Counter-v0", counter, pages=Blueprint("none", __name__), page_error=page_error)
    c = app.test_client()
    with pytest.raises(RuntimeError):
        c.get("/nothing")
    assert app.extensions["seedbench"].under_way == 0


def test_a_port_file_that_is_a_folder_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(SeedbenchError, match="--port-file"):
        _write_port(folder, 80)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
    (tmp_path / "port").write_text("1\n")
    _write_port(tmp_path / "port", 80)
    assert (tmp_path / "port").read_text() == "80\n"
