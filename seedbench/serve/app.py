"""create_app: the Flask application around the API: errors as JSON, limits, metrics, and pages for people if any."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from seedbench.core import InfrastructureError, SeedbenchError, TextEnv
from seedbench.serve.api import Served, blueprint, reply
from seedbench.serve.sessions import Refused, Sessions

MAX_BODY = 2 << 20  # bytes: the longest action, of which a character may be escaped in 12
CODES = {404: "no_such_page", 405: "wrong_method", 413: "too_big"}


class Metrics:
    """Counts for /metrics in Prometheus' text format, and how many requests are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.under_way = 0
        self.stopping = False

    def begin(self) -> None:
        with self._lock:
            self.under_way += 1

    def end(self, endpoint: str, status: int, seconds: float) -> None:
        with self._lock:
            self.under_way -= 1
            self._requests[endpoint, status] += 1
            self._seconds[endpoint] += seconds

    def text(self, served: Served) -> str:
        """Everything counted so far. Labels are names of routes and statuses, so their number is bounded."""
        sessions = served.sessions
        live = len(sessions)
        with self._lock:
            requests, seconds = sorted(self._requests.items()), sorted(self._seconds.items())
        counted = served.sessions.counts.items()
        families: list[tuple[str, str, str, Sequence[tuple[str, float]]]] = [
            ("sessions", "gauge", "Sessions held now.", [("", live)]),
            ("sessions_limit", "gauge", "Sessions that may be held at a time.", [("", sessions.limit)]),
            *[(f"sessions_{k}_total", "counter", f"Sessions {k}.", [("", n)]) for k, n in counted],
            ("episodes_total", "counter", "Episodes begun.", [("", served.episodes)]),
            ("steps_total", "counter", "Steps taken.", [("", served.steps)]),
            ("requests_under_way", "gauge", "Requests being answered.", [("", self.under_way)]),
            ("requests_total", "counter", "Requests answered, by route and status.",
             [(f'{{route="{route}",status="{status}"}}', n) for (route, status), n in requests]),
            ("request_seconds_total", "counter", "Time spent on requests, by route.",
             [(f'{{route="{route}"}}', round(s, 6)) for route, s in seconds]),
        ]  # fmt: skip
        lines = []
        for name, kind, says, values in families:
            lines += [f"# HELP seedbench_{name} {says}", f"# TYPE seedbench_{name} {kind}"]
            lines += [f"seedbench_{name}{labels} {value}" for labels, value in values]
        return "\n".join(lines) + "\n"


def create_app(
    env_id: str,
    make: Callable[..., TextEnv],
    *,
    max_sessions: int = 1000,
    ttl: float = 3600.0,
    prefixes: Sequence[str] = ("", "/api"),
    pages: Blueprint | None = None,
    page_error: Callable[[int, str], Any] | None = None,
) -> Flask:
    """An application that serves `env_id`, made by `make(max_steps=..., split=...)`.

    The API lies under each of `prefixes`; `pages` are mounted at the root, and `page_error(status, cause)` renders an
    error of theirs. Raises SeedbenchError where the environment cannot be made.
    """
    app = Flask("seedbench.serve", static_folder=None)
    app.url_map.merge_slashes = False  # no redirect to an address made of the Host header
    app.config["MAX_CONTENT_LENGTH"] = app.config["MAX_FORM_MEMORY_SIZE"] = MAX_BODY
    served, metrics = Served(env_id, make, Sessions(max_sessions, ttl)), Metrics()
    app.extensions["seedbench"] = metrics
    for prefix in prefixes:
        app.register_blueprint(blueprint(served, f"api{prefix.replace('/', '_')}"), url_prefix=prefix or None)
    if pages is not None:
        app.register_blueprint(pages)

    @app.get("/metrics", endpoint="metrics")
    @app.get("/api/metrics", endpoint="metrics")
    def show_metrics() -> Response:
        return Response(metrics.text(served), content_type="text/plain; version=0.0.4; charset=utf-8")

    @app.before_request
    def begin() -> Response | None:
        g.began = time.perf_counter()
        metrics.begin()
        if metrics.stopping:
            return reply({"error": "stopping", "message": "the server is stopping"}, 503)
        return None

    @app.after_request
    def seal(response: Response) -> Response:
        g.status = response.status_code
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    @app.teardown_request
    def end(error: BaseException | None) -> None:  # also where an error's page failed in its turn
        if "began" in g:
            route = (request.endpoint or "none").rpartition(".")[2]
            metrics.end(route, g.get("status", 500), time.perf_counter() - g.began)

    def failed(status: int, code: str, message: str, retry_after: float | None = None) -> Any:
        api = pages is None or request.path.startswith("/api/")
        if api or page_error is None:
            response = reply({"error": code, "message": message}, status)
        else:
            response = app.make_response(page_error(status, message))
        if retry_after is not None:
            response.headers["Retry-After"] = str(max(1, round(retry_after)))
        return response

    @app.errorhandler(Refused)
    def refused(error: Refused) -> Any:
        return failed(error.status, error.code, error.message, error.retry_after)

    @app.errorhandler(SeedbenchError)
    def bad_setting(error: SeedbenchError) -> Any:
        if isinstance(error, InfrastructureError):
            return failed(503, "unavailable", str(error), 1.0)
        return failed(400, "bad_setting", str(error))

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Any:
        status = error.code or 500
        if error.response is not None or status < 400:  # a redirect
            return error.get_response()
        own = error.description if error.description != type(error).description else None  # what abort() was given
        causes = {404: "there is nothing at this address", 413: f"the request is larger than {MAX_BODY} bytes"}
        if pages is None:
            causes[404] += f"; the API is {', '.join(_routes(app))}"
        return failed(status, CODES.get(status, "bad_request"), own or causes.get(status, error.name))

    @app.errorhandler(Exception)
    def unexpected(error: Exception) -> Any:
        app.logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return failed(500, "server_failed", f"the server failed ({type(error).__name__}); its log says where")

    return app


def _routes(app: Flask) -> list[str]:
    return sorted({str(rule) for rule in app.url_map.iter_rules() if str(rule).startswith("/api/")})
