"""`openai:MODEL@URL` against a server that fails in every way a real one does."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import subprocess
import sys
import time
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from seedbench.agents import load_agent, public_spec
from seedbench.agents.answer import read_answer, retry_after
from seedbench.agents.endpoint import Endpoint
from seedbench.core import InfrastructureError, Reply, Sampling, SeedbenchError, View
from seedbench.rollout import Episode, play
from tests import fake_endpoint as fake
from tests.conftest import need
from tests.fake_endpoint import FakeEndpoint
from tests.toy import Counter, task

UP = "<action>up</action>"
OK = fake.says(UP)


@pytest.fixture(autouse=True)
def openai_there(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import openai  # noqa: F401
    except ImportError:
        need(None, "the openai package is missing: pip install -e '.[api]'")
    for name in ("OPENAI_API_KEY", "OPENAI_BASIC_AUTH", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def view(stream: int = 5, said: str = "count: 0") -> View:
    messages = ({"role": "system", "content": "Count."}, {"role": "user", "content": said})
    return View("g", said, (), (), stream=stream, messages=messages)


def ask(server: FakeEndpoint, *views: View, **options: Any) -> list[Reply | Exception]:
    return agent(server, **options).act(views or [view()])


def agent(server: FakeEndpoint, **options: Any) -> Endpoint:
    return Endpoint(f"openai:m@{server.url}", **{"backoff": 0.01, "deadline": 5.0, **options})


def test_an_answer_with_usage_and_reason_and_what_was_sent() -> None:
    with FakeEndpoint(OK) as server:
        one = agent(server)
        one.sampling = Sampling(0.6, 0.95, 33)
        (reply,) = one.act([view(stream=2**52 + 1, said="snow ☃ \ud800")])
        assert reply == Reply(UP, None, "stop", {"prompt_tokens": 11, "completion_tokens": 7})
        (request,) = server.requests
        assert request["path"] == "/v1/chat/completions"
        assert request["json"] == {
            "model": "m", "temperature": 0.6, "top_p": 0.95, "max_tokens": 33, "seed": (2**52 + 1) % 2**31,
            "messages": [{"role": "system", "content": "Count."}, {"role": "user", "content": "snow ☃ ?"}],
        }  # fmt: skip


@pytest.mark.parametrize(
    "bad, named",
    [
        (fake.error(429, "slow down"), "answers 429 (slow down)"),
        (fake.error(500, "oops"), "answers 500 (oops)"),
        (fake.status(503, "<html>Bad gateway</html>", "text/html"), "answers 503 (<html>Bad gateway</html>)"),
        (fake.status(502), "answers 502 (no body)"),
        (fake.status(408), "answers 408"),
        (fake.hangs(), "gave no answer within 0.3 s"),
        (fake.drips, "gave no answer within 0.3 s"),
        (fake.resets, "cannot be reached"),
        (fake.body(fake.completion(UP)[:50]), "is not JSON"),
        (fake.body(""), "is not JSON (empty)"),
        (fake.body("<html>Log in</html>", "text/html"), "is not JSON (<html>Log in</html>)"),
        (fake.body(b"\xff\xfe"), "is not JSON"),
        (fake.body("[" * 100_000), "is not JSON"),
        (fake.body("[]"), "without choices ([])"),
        (fake.body('"a text"'), "without choices"),
        (fake.body('{"error": {"message": "overloaded"}}'), "overloaded"),
        (fake.body('{"choices": []}'), "without choices"),
        (fake.body('{"choices": [null]}'), "without choices"),
        (fake.body('{"choices": [{"message": null}]}'), "without choices"),
        (fake.says(None), "without text"),
        (fake.says(None, "tool_calls"), "without text"),
        (fake.says([{"type": "text"}]), "without text"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_fault_that_passes_is_tried_again_and_one_that_stays_leaves_the_view_unplayed(bad: Any, named: str) -> None:
    with FakeEndpoint(bad, bad, OK) as server:
        (reply,) = ask(server, deadline=0.3)
        assert isinstance(reply, Reply) and reply.text == UP and len(server.requests) == 3
    with FakeEndpoint(bad) as server:
        (reply,) = ask(server, deadline=0.3, retries=2)
        assert isinstance(reply, InfrastructureError) and named in str(reply) and "tries: 3" in str(reply)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "bad, named",
    [
        (fake.error(404, "The model `m` does not exist"), "has no model m"),
        (fake.error(400, "This model's maximum context length is 100 tokens"), "maximum context length"),
        (fake.error(422, "temperature must be 1"), "temperature must be 1"),
        (fake.status(413, "<html>Too large</html>", "text/html"), "Too large"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_what_another_try_would_not_change_is_that_views_failure_at_once(bad: Any, named: str) -> None:
    with FakeEndpoint(bad, OK) as server:
        one = agent(server)
        first, second = [*one.act([view()]), *one.act([view()])]
        assert type(first) is SeedbenchError and named in str(first)
        assert isinstance(second, Reply) and len(server.requests) == 2


@pytest.mark.parametrize(
    "bad, named",
    [
        (fake.error(401, "no such key"), "OPENAI_API_KEY"),
        (fake.error(403, "not yours"), "OPENAI_API_KEY"),
        (fake.error(429, "pay first", code="insufficient_quota"), "no quota"),
        (fake.status(404, '{"detail": "Not Found"}'), "/v1"),
        (fake.status(404, "<h1>nginx: no such model here</h1>", "text/html"), "/v1"),
        (fake.status(400, "<h1>plain HTTP sent to HTTPS port</h1>", "text/html"), "HTTPS port"),
        (fake.status(405), "/v1"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_a_wrong_key_or_path_stops_the_asking_at_once(bad: Any, named: str) -> None:
    with FakeEndpoint(bad) as server:
        one = agent(server)
        replies = [*one.act([view()]), *one.act([view()] * 9)]
        assert all(isinstance(r, InfrastructureError) and named in str(r) for r in replies)
        assert len(server.requests) == 1


def test_nothing_listens() -> None:
    with FakeEndpoint(OK) as server:
        pass
    (reply,) = ask(server, retries=1)
    assert isinstance(reply, InfrastructureError) and "cannot be reached" in str(reply)


def test_retry_after_is_honoured_and_a_long_one_is_not_waited_for() -> None:
    with FakeEndpoint(fake.status(429, Retry_After="0.5"), OK) as server:
        began = time.monotonic()
        (reply,) = ask(server)
        assert isinstance(reply, Reply) and time.monotonic() - began >= 0.5
    with FakeEndpoint(fake.status(503, Retry_After="3600")) as server:
        (reply,) = ask(server)
        assert isinstance(reply, InfrastructureError) and "3600 s" in str(reply) and len(server.requests) == 1


def test_retry_after_in_all_its_forms() -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    assert 27 < retry_after({"retry-after": format_datetime(soon, usegmt=True)}) <= 30
    assert [retry_after({"retry-after": v}) for v in ("7", "2.5", "", "soon", "-3", "nan")] == [7, 2.5, 0, 0, 0, 0]
    assert retry_after({}) == 0 == retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})


def test_text_that_is_there_is_a_reply_whatever_else_is_odd() -> None:
    with FakeEndpoint(fake.says("zoë ☃ 🜚", kind="text/plain")) as server:
        assert ask(server) == [Reply("zoë ☃ 🜚", None, "stop", {"prompt_tokens": 11, "completion_tokens": 7})]
    for body, text, reason in (
        (fake.completion("", "stop"), "", "stop"),
        (fake.completion("cut", "length"), "cut", "length"),
        (fake.completion(None, "length"), "", "length"),
        (fake.completion(None, "content_filter"), "", "content_filter"),
        (fake.completion(None, "stop", refusal="I will\nnot"), "", "refusal: I will not"),
        (fake.completion("x", None), "x", ""),
    ):
        reply = read_answer(body.decode())
        assert (reply.text, reply.finish_reason) == (text, reason)
    for usage in (
        None, [], {"prompt_tokens": None}, {"prompt_tokens": True}, {"prompt_tokens": -1, "completion_tokens": 7},
        {"prompt_tokens": 11, "completion_tokens": 7.5}, {"completion_tokens": 10**400}, {"prompt_tokens": "11"},
    ):  # fmt: skip
        bare = {**json.loads(fake.completion("x")), "usage": usage}
        assert read_answer(json.dumps(bare)).usage == {}


def test_a_batch_is_asked_at_once_and_keeps_its_order() -> None:
    def echo(h: fake.Handler) -> None:
        said = h.request_json["messages"][1]["content"]
        fake.hangs(0.6 if int(said) % 2 else 0.0, fake.says(f"<{said}>"))(h)

    with FakeEndpoint(echo) as server:
        one = agent(server)
        began = time.monotonic()
        replies = one.act([view(said=str(i)) for i in range(16)])
        took = time.monotonic() - began
        assert [r.text for r in replies if isinstance(r, Reply)] == [f"<{i}>" for i in range(16)]
        assert 0.6 <= took < 8 * 0.6 / 2  # eight slow ones in about the time of one
        began = time.monotonic()
        agent(server, batch=2).act([view(said="1")] * 4)
        assert time.monotonic() - began >= 1.2  # and no more than the batch


def test_one_bad_view_takes_no_other_along() -> None:
    def act(h: fake.Handler) -> None:
        bad = {"2": fake.error(400, "too long"), "5": fake.error(500, "oops")}
        bad.get(h.request_json["messages"][1]["content"], OK)(h)

    with FakeEndpoint(act) as server:
        kinds = [type(r) for r in ask(server, *(view(said=str(i)) for i in range(8)), retries=1)]
        assert kinds == [Reply, Reply, SeedbenchError, Reply, Reply, InfrastructureError, Reply, Reply]


def test_the_breaker_stops_the_asking_after_failures_in_a_row_and_a_success_resets_it() -> None:
    with FakeEndpoint(fake.status(500)) as server:
        one = agent(server, retries=1, breaker=3)
        replies = [one.act([view()])[0] for _ in range(20)]
        assert len(server.requests) == 6  # three requests, two tries each
        assert all(isinstance(r, InfrastructureError) for r in replies)
        assert "no more are sent" in str(replies[-1]) and "no more are sent" not in str(replies[2])
    no = fake.status(500)
    with FakeEndpoint(no, no, OK, no, no, OK) as server:
        one = agent(server, retries=0, breaker=3)
        assert [isinstance(one.act([view()])[0], Reply) for _ in range(7)] == [False, False, True] * 2 + [True]


def test_a_parameter_that_a_server_does_not_know_is_put_in_another_way() -> None:
    def strict(h: fake.Handler) -> None:
        if "max_tokens" in h.request_json:
            return fake.error(400, "Unsupported parameter: use 'max_completion_tokens' instead.")(h)
        if "seed" in h.request_json:
            return fake.status(422, '{"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs"}]}')(h)
        OK(h)

    with FakeEndpoint(strict) as server:
        one = agent(server)
        assert all(isinstance(r, Reply) for r in one.act([view()] * 8))
        before = len(server.requests)
        one.act([view()])
        assert len(server.requests) == before + 1  # learnt
        assert server.requests[-1]["json"]["max_completion_tokens"] == 512


def test_no_key_and_no_password_is_ever_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-secret\n")

    def echo(h: fake.Handler) -> None:
        fake.error(500, f"you sent {h.headers['Authorization']}")(h)

    with FakeEndpoint(echo) as server:
        one = agent(server, retries=0)
        (reply,) = one.act([view()])
        assert server.requests[0]["headers"]["Authorization"] == "Bearer sk-secret-secret"
        assert "secret" not in str(reply) + json.dumps(one.describe())
        spec = "openai:m@" + server.url.replace("//", "//me:pass%40word@")
        named = Endpoint(spec, retries=0)
        (reply,) = named.act([view()])
        assert server.requests[1]["headers"]["Authorization"] == "Basic bWU6cGFzc0B3b3Jk"
        assert not {"me:pass", "word", "bWU6"} & {w for w in ("me:pass", "word", "bWU6") if w in str(reply)}
        assert named.describe()["spec"] == public_spec(spec) == named.name == f"openai:m@{server.url}"
    monkeypatch.delenv("OPENAI_API_KEY")
    with FakeEndpoint(OK) as server:
        ask(server)
        assert server.requests[0]["headers"]["Authorization"] == "Bearer none"


def test_basic_credentials_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `--resume` has: the spec without credentials."""
    with FakeEndpoint(fake.error(401, "who are you")) as server:
        (reply,) = ask(server)
        assert "OPENAI_BASIC_AUTH" in str(reply)
    monkeypatch.setenv("OPENAI_BASIC_AUTH", "me:pass@word")
    echo = '{"error": {"message": "%s is me:pass\\u0040word"}}'
    with FakeEndpoint(lambda h: fake.status(500, echo % h.headers["Authorization"])(h)) as server:
        (reply,) = ask(server, retries=0)
        assert server.requests[0]["headers"]["Authorization"] == "Basic bWU6cGFzc0B3b3Jk"
        assert "bWU6" not in str(reply) and "word" not in str(reply)
        agent_of_url = Endpoint("openai:m@" + server.url.replace("//", "//a:b@"), retries=0)
        agent_of_url.act([view()])
        assert server.requests[1]["headers"]["Authorization"] == "Basic YTpi"
    monkeypatch.setenv("OPENAI_BASIC_AUTH", "secretword")
    with pytest.raises(SeedbenchError, match="no colon") as caught:
        load_agent("openai:m@http://localhost/v1")
    assert "secretword" not in str(caught.value)


def test_an_answer_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbench.agents.connection.BIGGEST_BODY", 2**20)
    bomb = gzip.compress(b" " * 2**22)
    for act in (fake.floods, lambda h: h.send(bomb, headers={"Content-Encoding": "gzip"})):
        with FakeEndpoint(act) as server:
            (reply,) = ask(server, retries=0, deadline=30.0)
            assert isinstance(reply, InfrastructureError) and "an answer of more than" in str(reply)
    packed = gzip.compress(fake.completion(UP))
    with FakeEndpoint(lambda h: h.send(packed, headers={"Content-Encoding": "gzip"})) as server:
        (reply,) = ask(server)
        assert isinstance(reply, Reply) and reply.text == UP


@pytest.mark.parametrize("name, value", [("HTTP_PROXY", "zzz://me:hidden@x"), ("SSL_CERT_FILE", "/nope/nothing")])
def test_a_bad_proxy_or_certificate_is_one_sentence(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SeedbenchError) as caught:
        load_agent("openai:m@http://localhost/v1")
    said = str(caught.value)
    assert name in said and said.endswith(".") and "\n" not in said and "hidden" not in said


def test_what_a_server_says_is_shown_on_one_line_and_never_obeyed() -> None:
    nasty = "\x1b[2J\x1b]0;title\x07 red\r\nnext \u202e \x00 \ud800 " + "x" * 1000
    for act in (fake.error(500, nasty), fake.error(401, nasty), fake.error(400, nasty), fake.says(None, nasty)):
        with FakeEndpoint(act) as server:
            said = str(ask(server, retries=0)[0])
        assert "[2J" in said and "\x1b[2J" not in said
        assert said.encode() and len(said) < 500
        assert not {"\x1b", "\x07", "\r", "\n", "\u202e", "\x00"} & set(said)


@pytest.mark.parametrize(
    "spec",
    ["openai:", "openai:m", "openai:m@localhost:8000", "openai:@http://x", "openai:m@http://", "openai:m@http://x:99999",
     "openai:m@http://me:hidden@x:port/v1", "openai:m@http://u:hid/den@h/v1", "openai:m@http://u:80/hidden@h/v1",
     "openai:m@http://u:hidden#x@h/v1", "openai:m@http://u:hidden?x@h/v1", "openai:m@http://u:hidden x@h/v1",
     "openai:m@http://me:hidden@x/v1?key=hidden", "openai:me:hidden@x",
     "openai:m\ud800@http://x", "openai:m@http://x/v\x01", "openai:m@http://x/v\ud800", "openai:m@http://\u2603/v1"],
)  # fmt: skip
def test_a_bad_spec_is_one_sentence_without_the_password(spec: str) -> None:
    with pytest.raises(SeedbenchError, match=r"openai:MODEL@URL") as caught:
        load_agent(spec)
    if "//" in spec:
        assert not any(word in str(caught.value) for word in ("hid", "den"))


def test_a_spec_keeps_models_with_colons_and_ats() -> None:
    one = load_agent("openai:org/m@v1:7b@http://[::1]:8000/v1/", batch=7)
    assert isinstance(one, Endpoint) and (one.model, one.host, one.batch) == ("org/m@v1:7b", "[::1]:8000", 7)
    assert one.describe()["kind"] == "api" and json.dumps(one.describe())


def test_without_the_package_the_cure_is_named() -> None:
    code = (
        "import sys; sys.modules['openai'] = None\n"
        "from seedbench.agents import load_agent\n"
        "load_agent('openai:m@http://localhost/v1')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert "pip install -e '.[api]'" in done.stderr.splitlines()[-1]


def test_episodes_end_to_end_and_unplayed_ones_stay_apart() -> None:
    def act(h: fake.Handler) -> None:
        asked = h.request_json["messages"][1]["content"]
        (fake.error(500, "oops") if "reach 3" in asked else OK)(h)

    left: list[str] = []
    with FakeEndpoint(act) as server:
        todo = [Episode(task(f"to-{n}")) for n in range(1, 6)]
        one = agent(server, retries=1)
        got = {t.task.id: t for t in play(Counter, todo, one, on_unplayed=lambda e, error: left.append(e.task.id))}
    assert left == ["to-3"] and sorted(got) == ["to-1", "to-2", "to-4", "to-5"]
    assert all(t.success and t.steps[0].reply.usage["completion_tokens"] == 7 for t in got.values())


def test_python_ends_at_once_while_a_request_hangs() -> None:
    """Ctrl-C, in a process of its own: no thread waits for the server."""
    with FakeEndpoint(fake.hangs(60)) as server:
        code = (
            "import signal, threading\n"
            "from seedbench.agents.endpoint import Endpoint\nfrom seedbench.core import View\n"
            "main = threading.main_thread().ident\n"
            "threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT)).start()\n"
            f"Endpoint('openai:m@{server.url}').act([View('g', 'o', (), ())] * 3)"
        )
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ},
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        assert "KeyboardInterrupt" in done.stderr and "Traceback" in done.stderr and time.monotonic() - began < 30
        assert "pending" not in done.stderr and "Exception ignored" not in done.stderr
