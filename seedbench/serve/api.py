"""The JSON API over any TextEnv: tasks, digest, reset, step, state, close, health. Shapes: docs/serving.md."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from seedbench.core import InfrastructureError, SeedbenchError, TextEnv
from seedbench.replies import MAX_ACTION, MAX_LABEL
from seedbench.serve.sessions import Refused, Session, Sessions

API_VERSION = 1
MAX_SEED = 2**64 - 1
MAX_STEPS = 100_000
log = logging.getLogger("seedbench.serve")


class Served:
    """What a server serves: an environment's id, how one is made, and the sessions that play."""

    def __init__(self, env_id: str, make: Callable[..., TextEnv], sessions: Sessions):
        """`make` takes the settings that a client may choose: `max_steps` and `split`, each left out for the default.

        The first environment is made here, so that data that cannot be opened stops a server before it listens.
        """
        self.env_id, self._make, self.sessions = env_id, make, sessions
        self.steps = self.episodes = 0  # approximate under threads: for /metrics alone
        self.probe = lru_cache(maxsize=16)(self._probe)
        self.probe(None).digest()

    def make(self, max_steps: int | None, split: str | None = None) -> TextEnv:
        """A new environment. Raises SeedbenchError for a setting that it does not take."""
        settings = {k: v for k, v in (("max_steps", max_steps), ("split", split)) if v is not None}
        return self._make(**settings)

    def _probe(self, max_steps: int | None) -> TextEnv:
        return self.make(max_steps)

    def describe(self, max_steps: int | None = None) -> dict[str, Any]:
        """What a client must know before it plays."""
        env = self.probe(max_steps)
        return {
            "api": API_VERSION,
            "env": self.env_id,
            "digest": env.digest(),
            "data": "mini" if env.data == "mini" else "real",  # the name of a folder is the server's own business
            "max_steps": env.max_steps,
            "replay": env.replay,
            "settings": {name: getattr(env, name) for name in env.SETTINGS},
            "max_sessions": self.sessions.limit,
        }


def blueprint(served: Served, name: str = "api") -> Blueprint:
    """The routes; one app may mount them at several prefixes under several names."""
    api = Blueprint(name, __name__)
    sessions = served.sessions

    @api.get("/health")
    def health() -> Response:
        return reply({"status": "ok", **served.describe(), "sessions": len(sessions)})

    @api.get("/digest")
    def digest() -> Response:
        query = _query("max_steps")
        limit = query.get("max_steps")
        if limit is not None and not (limit.isascii() and limit.isdigit() and len(limit) < 10):
            raise _malformed("max_steps", f"an integer from 1 to {MAX_STEPS}")
        return reply(served.describe(_max_steps({} if limit is None else {"max_steps": int(limit)})))

    @api.get("/tasks")
    def tasks() -> Response:
        split = _query("split").get("split")
        if split is None:
            raise _malformed("split", "the name of a split, as in /tasks?split=seen")
        env = served.probe(None)
        try:
            found = env.tasks(_label(split, "split"))
        except SeedbenchError as error:
            raise Refused(400, "bad_split", str(error)) from error
        rows = [{"id": t.id, "env": t.env, "split": t.split, "kind": t.kind, "options": dict(t.options)} for t in found]
        return reply({"split": split, "pinned": env.pinned(split), "tasks": rows})

    @api.post("/reset")
    def reset() -> Response:
        body = _body("session", "task", "seed", "turn", "max_steps", "split")
        if body.get("session") is None:
            if body.get("turn") is not None:
                raise _malformed("turn", "left out where a session is opened: its first turn is 0")
            with sessions.open() as session:
                session.env = served.make(_max_steps(body), _label(body.get("split"), "split", optional=True))
                return _answer(served, session, body, _reset)
        if body.get("max_steps") is not None or body.get("split") is not None:
            raise _malformed("max_steps or split", "left out here: they are chosen when a session is opened")
        with sessions.use(_label(body["session"], "session")) as session:
            return _answer(served, session, body, _reset)

    @api.post("/step")
    def step() -> Response:
        body = _body("session", "action", "turn")
        if not isinstance(body.get("action"), str):
            raise _malformed("action", "a string")
        if len(body["action"]) > MAX_ACTION:
            raise Refused(413, "too_big", f"the action is longer than {MAX_ACTION} characters: send its beginning")
        with sessions.use(_label(body.get("session"), "session")) as session:
            return _answer(served, session, body, _step)

    @api.get("/state")
    def state() -> Response:
        with sessions.use(_label(_query("session").get("session"), "session")) as session:
            return _json(session.reply)

    @api.post("/close")
    def close() -> Response:
        sessions.close(_label(_body("session").get("session"), "session"))
        return reply({"closed": True})

    return api


def _answer(
    served: Served, session: Session, body: Mapping[str, Any], play: Callable[[Served, Session, Any], dict[str, Any]]
) -> Response:
    """Play one turn, or repeat the reply to a request that came twice; the caller holds the session."""
    turn = _integer(body.get("turn"), "turn", 2**53)
    request_text = json.dumps([play.__name__, {k: v for k, v in body.items() if k != "turn"}], sort_keys=True)
    asked = hashlib.sha256(request_text.encode()).digest()
    if turn is not None and turn == session.turn and asked == session.request:
        return _json(session.reply)
    if turn is not None and turn != session.turn + 1:
        raise Refused(409, "wrong_turn", f"turn {turn} is not the next of this session, which is {session.turn + 1}")
    said = play(served, session, body)
    session.turn, session.request = session.turn + 1, asked
    session.over = said["done"]
    head = {"session": session.id, "turn": session.turn, "task": session.task}
    try:
        session.reply = _encode({**head, **said})
    except (TypeError, ValueError) as error:
        raise _failed(served, session, error) from error
    return _json(session.reply)


def _reset(served: Served, session: Session, body: Mapping[str, Any]) -> dict[str, Any]:
    assert session.env is not None
    task, seed = _label(body.get("task"), "task", optional=True), _integer(body.get("seed"), "seed", MAX_SEED)
    try:
        observation, info = session.env.reset(seed=seed, options=None if task is None else {"task": task})
        session.digest = session.digest or session.env.digest()
    except InfrastructureError as error:
        raise Refused(503, "unavailable", str(error), 1.0) from error
    except SeedbenchError as error:
        raise Refused(400, "bad_task", str(error)) from error
    except Exception as error:  # a fault of an environment is told, and its session goes
        raise _failed(served, session, error) from error
    served.episodes += 1
    session.task = str(info.get("task", task or ""))
    return {**_seen(observation, 0.0, False, False, info), "digest": session.digest}


def _step(served: Served, session: Session, body: Mapping[str, Any]) -> dict[str, Any]:
    assert session.env is not None
    if session.over:
        raise Refused(409, "episode_over", "the episode has ended: reset the session before the next step")
    try:
        seen = _seen(*session.env.step(body["action"]))
    except Exception as error:  # as in _reset
        raise _failed(served, session, error) from error
    served.steps += 1
    return seen


def _seen(
    observation: str, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "done": bool(terminated or truncated),
        "info": info,
    }


def _failed(served: Served, session: Session, error: Exception) -> Refused:
    """An environment that raised may be broken: its session is closed, the server's log gets the traceback."""
    served.sessions.discard(session)
    if isinstance(error, InfrastructureError):
        return Refused(503, "episode_lost", str(error))
    log.error("%s failed on %s", served.env_id, session.task or "a reset", exc_info=error)
    return Refused(500, "environment_failed", f"{type(error).__name__}: {error}")


def _body(*fields: str) -> dict[str, Any]:
    """The request's JSON object. Refused: 400 for anything else, and for a field that is not known."""
    try:
        body = json.loads(request.get_data() or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(400, "malformed", f"the body is no JSON: {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(body, dict):
        raise Refused(400, "malformed", f"the body is a JSON {type(body).__name__}: send an object")
    if unknown := [k for k in body if k not in fields]:
        raise Refused(400, "malformed", f"{unknown[0][:80]!r} is no field of this request: send {', '.join(fields)}")
    return body


def _query(*fields: str) -> dict[str, str]:
    if unknown := [k for k in request.args if k not in fields]:
        raise Refused(400, "malformed", f"{unknown[0][:80]!r} is no parameter here: give {', '.join(fields)}")
    return request.args.to_dict()


def _label(value: Any, name: str, optional: bool = False) -> Any:
    if value is None and optional:
        return None
    if not isinstance(value, str) or len(value) > MAX_LABEL:
        raise _malformed(name, f"a string of at most {MAX_LABEL} characters")
    return value


def _integer(value: Any, name: str, most: int, least: int = 0) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _malformed(name, f"an integer from {least} to {most}")
    return value


def _max_steps(body: Mapping[str, Any]) -> int | None:
    return _integer(body.get("max_steps"), "max_steps", MAX_STEPS, least=1)


def _malformed(name: str, wanted: str) -> Refused:
    return Refused(400, "malformed", f"{name} must be {wanted}")


def reply(value: Mapping[str, Any], status: int = 200) -> Response:
    """A JSON response."""
    return _json(_encode(value), status)


def _json(data: bytes, status: int = 200) -> Response:
    return Response(data, status, mimetype="application/json")


def _encode(value: Mapping[str, Any]) -> bytes:
    """UTF-8; a lone surrogate, which is no text, becomes U+FFFD."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def _plain(value: object) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in an environment's info is no JSON")
