"""Whatever lies behind --server: what `seedbench serve` would not say leaves the episode unplayed, in one sentence."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from seedbench.cli import main
from seedbench.client import Client
from seedbench.core import InfrastructureError, SeedbenchError, TextEnv
from seedbench.exam import make_env
from seedbench.remote import RemoteEnv
from seedbench.replies import read
from seedbench.serve.app import create_app
from tests.servers import threaded
from tests.test_evaluate import run
from tests.toy import Counter

ALFWORLD, TOY = "seedbench/ALFWorld-v0", "toy/Counter-v0"
DEEP = b'{"a":' * 100_000


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gym.register(id=TOY, entry_point=Counter, order_enforce=False)
    yield
    gym.registry.pop(TOY)


class Altered:
    """The toy's own server, until `alter(path, body)` gives another status, type and body."""

    def __init__(self, env_id: str = TOY, make: Callable[..., TextEnv] = lambda **settings: Counter()) -> None:
        self.app = create_app(env_id, make)
        self.alter: Callable[[str, bytes], tuple[str, str, bytes] | None] = lambda path, body: None

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        said: list[Any] = []
        start: Any = lambda *head: said.extend(head)  # noqa: E731
        body = b"".join(self.app(environ, start))
        status, kind, body = self.alter(environ["PATH_INFO"], body) or (said[0], "application/json", body)
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Altered, str]]:
    app = Altered()
    with threaded(app) as url:
        yield app, url


@pytest.fixture
def env(server: tuple[Altered, str]) -> Iterator[RemoteEnv]:
    server[0].alter = lambda path, body: None
    made = RemoteEnv(TOY, Client(server[1], backoff=0.01, deadline=3.0))
    made.reset(options={"task": "to-3"})
    yield made
    server[0].alter = lambda path, body: None
    made.close()


def ok(body: bytes) -> tuple[str, str, bytes]:
    return "200 OK", "application/json", body


FOREIGN = {
    "404": ("404 NOT FOUND", "text/html", b"<h1>no</h1>"),
    "404 of a Flask app": ("404 NOT FOUND", "application/json", b'{"error":"no_such_page","message":"no"}'),
    "400 of another API": ("400 BAD REQUEST", "application/json", b'{"error":"invalid","message":"no"}'),
    "400 that blames the request": ("400 BAD REQUEST", "application/json", b'{"error":"malformed","message":"no"}'),
    "500": ("500 OOPS", "text/html", b"oops"),
    "500 as 200": ok(b'{"error":"environment_failed","message":"x"}'),
    "308": ("308 MOVED", "text/html", b""),
    "204": ("204 NO CONTENT", "text/html", b""),
    "html": ("200 OK", "text/html", b"<h1>hello</h1>"),
    "empty": ok(b""),
    "object": ok(b"{}"),
    "list": ok(b"[]"),
    "deep": ok(DEEP),
    "no error code": ("404 NOT FOUND", "application/json", b'{"error":5}'),
}


@pytest.mark.parametrize("call", ["step", "reset"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_answer_leaves_the_episode_unplayed(
    name: str, call: str, env: RemoteEnv, server: tuple[Altered, str]
) -> None:
    server[0].alter = lambda path, body: FOREIGN[name]
    with pytest.raises(InfrastructureError):
        env.step("up") if call == "step" else env.reset(options={"task": "to-1"})
    server[0].alter = lambda path, body: None
    assert env.reset(options={"task": "to-1"})[0] == "count: 0"  # and the environment can be used again


def changed(body: bytes, path: str, value: Any) -> bytes:
    found = json.loads(body)
    *way, last = path.split(".")
    place = found
    for key in way:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return json.dumps(found).encode()


WRONG = [
    ("turn", 0), ("turn", 7), ("turn", True), ("turn", "1"), ("session", "other"), ("task", "to-1"),
    ("observation", None), ("observation", "\ud800"), ("reward", "1"), ("reward", float("nan")), ("reward", 10**400),
    ("terminated", 1), ("done", True), ("info", KeyError), ("info", []), ("info.won", "yes"), ("info.score", 7),
    ("info.score", float("inf")), ("info.admissible", "up"), ("info.steps", KeyError), ("info.more", "\udfff"),
    ("info.more", float("-inf")), ("info.goal", 5),
]  # fmt: skip


@pytest.mark.parametrize("path, value", WRONG, ids=[f"{p}-{i}" for i, (p, _) in enumerate(WRONG)])
def test_a_reply_that_is_not_the_one_asked_for_is_refused(
    path: str, value: Any, env: RemoteEnv, server: tuple[Altered, str]
) -> None:
    server[0].alter = lambda where, body: ok(changed(body, path, value)) if where == "/api/step" else None
    with pytest.raises(InfrastructureError):
        env.step("up")


def test_what_an_environment_adds_to_info_passes(env: RemoteEnv, server: tuple[Altered, str]) -> None:
    server[0].alter = lambda where, body: ok(changed(body, "info.more", {"a": [1, 2.5, None, "é😀"]}))
    assert env.step("up")[-1]["more"] == {"a": [1, 2.5, None, "é😀"]}  # type: ignore[typeddict-item]


@pytest.mark.parametrize("key, value", [("digest", "other"), ("task", "to-5"), ("turn", 4), ("digest", KeyError)])
def test_a_reset_of_other_data_or_another_task_is_refused(
    key: str, value: Any, env: RemoteEnv, server: tuple[Altered, str]
) -> None:
    server[0].alter = lambda where, body: ok(changed(body, key, value)) if where == "/api/reset" else None
    with pytest.raises(InfrastructureError):
        env.reset(options={"task": "to-1"})


def test_a_server_of_other_data_that_refuses_the_task_is_not_the_agents_fault(
    env: RemoteEnv, server: tuple[Altered, str]
) -> None:
    refusal = ("400 BAD REQUEST", "application/json", b'{"error":"bad_task","message":"there is no to-1"}')
    server[0].alter = lambda where, body: refusal if where == "/api/reset" else None
    with pytest.raises(SeedbenchError, match="no to-1") as of_the_task:
        env.reset(options={"task": "to-1"})
    assert not isinstance(of_the_task.value, InfrastructureError)
    server[0].alter = lambda where, body: refusal if where == "/api/reset" else ok(changed(body, "digest", "other"))
    with pytest.raises(InfrastructureError, match="other data"):
        env.reset(options={"task": "to-1"})


ROW = {"id": "to-1", "env": TOY, "split": "seen", "kind": "odd", "options": {}}
LISTS: list[Any] = [
    {"split": "seen", "pinned": True, "tasks": []},
    {"split": "seen", "tasks": [ROW]},
    {"split": "seen", "pinned": True, "tasks": [ROW, ROW]},
    {"split": "seen", "pinned": True, "tasks": [{**ROW, "extra": 1}]},
    {"split": "seen", "pinned": True, "tasks": [{**ROW, "env": "other/Env-v0"}]},
    {"split": "unseen", "pinned": True, "tasks": [{**ROW, "split": "unseen"}]},
    {"split": "seen", "pinned": 1, "tasks": [ROW]},
]


@pytest.mark.parametrize("answer", LISTS)
def test_a_bad_list_of_tasks_gets_one_sentence(answer: Any, env: RemoteEnv, server: tuple[Altered, str]) -> None:
    server[0].alter = lambda where, body: ok(json.dumps(answer).encode())
    with pytest.raises(InfrastructureError):
        env.tasks("seen")


@pytest.mark.parametrize(
    "key, value",
    [("max_sessions", "many"), ("max_steps", None), ("digest", 5), ("data", "x"), ("env", KeyError), ("api", 2)],
)
def test_a_bad_description_gets_one_sentence(key: str, value: Any, env: RemoteEnv, server: tuple[Altered, str]) -> None:
    for alter in (lambda where, body: ok(changed(body, key, value)), lambda where, body: ok(b'{"api":1}')):
        server[0].alter = alter
        with pytest.raises(SeedbenchError, match=r"does not answer as|another version"):
            RemoteEnv(TOY, server[1])


@pytest.mark.parametrize("data", [b"", b"[]", b"NaN", b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', DEEP, b"\xff"])
def test_what_no_run_could_hold_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_drips_is_given_up_at_the_deadline(head: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            try:
                connection = listener.accept()[0]
                connection.sendall(head)
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.05)
            except OSError:  # the test is over
                return

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match=r"within 0\.5 s"):
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", deadline=0.5).describe()
        assert time.monotonic() - began < 2


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch, server: tuple[Altered, str]) -> None:
    monkeypatch.setattr("seedbench.client.MAX_ANSWER", 1 << 20)
    server[0].alter = lambda where, body: ok(b" " * (2 << 20))
    with pytest.raises(InfrastructureError, match="more than"):
        Client(server[1]).describe()
    server[0].alter = lambda where, body: None


EVAL = ["--agent", "random", "--env", "alfworld", "--split", "seen", "--limit", 6, "--seed", 3]


@pytest.mark.parametrize("name", ["404", "html", "object", "400 that blames the request"])
def test_a_run_whose_server_is_replaced_exits_1_and_resumes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app, steps = Altered(ALFWORLD, partial(make_env, ALFWORLD)), 0

    def replaced(where: str, body: bytes) -> Any:
        nonlocal steps
        steps += where == "/api/step"
        return FOREIGN[name] if steps > 60 else None

    run("eval", *EVAL, "--out", tmp_path / "whole")
    app.alter = replaced
    with threaded(app) as url:
        run("eval", *EVAL, "--server", url, "--batch", 2, "--out", tmp_path / "r", code=1)
        said = capsys.readouterr().err
        assert "--resume" in said and "Traceback" not in said and not (tmp_path / "r" / "results.json").exists()
        app.alter = lambda where, body: None
        run("eval", "--resume", tmp_path / "r")
    assert (tmp_path / "r" / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_run_on_something_else_gets_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = Altered()
    app.alter = lambda where, body: FOREIGN[name]
    with threaded(app) as url, pytest.raises(SystemExit) as stop:
        main(["eval", "--agent", "random", "--env", "alfworld", "--server", url])
    err = capsys.readouterr().err
    assert stop.value.code in (1, 2) and err.count("\n") == 1 and "Traceback" not in err
