"""Run an application under waitress until SIGTERM or Ctrl-C, and let requests under way end first."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from seedbench.core import SeedbenchError
from seedbench.exam import environments, make_env, preset_of

if TYPE_CHECKING:
    from flask import Flask

GRACE = 10.0  # seconds that requests under way are given to end
EXTRA = "a server needs Flask and waitress: pip install -e '.[serve]'."


def serve_env(
    env: str,
    data: str,
    host: str,
    port: int,
    port_file: Path | None,
    preset: str = "seedbench",
    settings: Mapping[str, Any] = MappingProxyType({}),
    **limits: Any,
) -> None:
    """Serve one environment until stopped. `limits`: max_sessions, ttl (seconds), threads.

    `settings` are the environment's own, beside the options of the preset.
    """
    (env_id,) = _one(env)
    options = dict(preset_of(make_env(env_id, data=data, **settings), env_id, preset).options)
    threads = limits.pop("threads")
    app = _flask().create_app(env_id, partial(make_env, env_id, data=data, **settings, **options), **limits)
    run(app, host, port, threads, port_file, f"{env_id} ({data})")


def serve_webshop(data: str, observation: str, host: str, port: int, port_file: Path | None, **limits: Any) -> None:
    """Serve WebShop: pages for people at /, the API at /api."""
    (env_id,) = _one("webshop")
    threads = limits.pop("threads")
    flask = _flask()
    make = partial(make_env, env_id, data=data, observation=observation)
    site = import_module("seedbench.envs.webshop.site")
    app = flask.create_app(env_id, make, prefixes=("/api",), **site.pages(make()), **limits)
    run(app, host, port, threads, port_file, f"a shop and {env_id} ({data})")


def _one(env: str) -> list[str]:
    found = environments(env)
    if len(found) != 1:
        raise SeedbenchError(f"{env} names {len(found)} environments: a server serves one; start one server each.")
    return found


def _flask() -> Any:
    try:
        return import_module("seedbench.serve.app")
    except ModuleNotFoundError as error:
        raise SeedbenchError(EXTRA) from error


def run(app: Flask, host: str, port: int, threads: int, port_file: Path | None, what: str) -> None:
    """Listen, say where, and serve until SIGTERM or Ctrl-C. Port 0 takes a free one; `port_file` gets its number."""
    try:
        from waitress import create_server
    except ModuleNotFoundError as error:
        raise SeedbenchError(EXTRA) from error
    try:
        server: Any = create_server(
            app, host=host, port=port, threads=threads, connection_limit=1000, ident=None, backlog=1024,
            max_request_body_size=16 << 20, channel_timeout=300, asyncore_use_poll=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise SeedbenchError(
            f"cannot listen on {host} port {port} ({error}): give another --port or --host."
        ) from error
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns whenever a request waits for a thread
    bound = getattr(server, "effective_port", None) or server.effective_listen[0][1]
    if port_file is not None:
        _write_port(port_file, bound)
    address = f"[{host}]" if ":" in host else host
    print(f"serving {what} at http://{address}:{bound} (stop with Ctrl-C)", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell begins with it ignored
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_drain, args=(app,), daemon=True).start())
    try:
        server.run()  # returns on KeyboardInterrupt
    finally:
        if port_file is not None:
            port_file.unlink(missing_ok=True)
    print("stopped", flush=True)


def _write_port(path: Path, port: int) -> None:
    """In one step, so that whoever waits for the file never reads half a number."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        half.write_text(f"{port}\n", encoding="ascii")
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise SeedbenchError(f"--port-file {path} cannot be written ({error}): name a file in a folder.") from error


def _drain(app: Flask) -> None:
    """New requests are told to go; those under way end and are sent; then the main thread is stopped."""
    metrics = app.extensions["seedbench"]
    metrics.stopping = True
    until = time.monotonic() + GRACE
    while metrics.under_way and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.1)  # waitress sends what was answered
    _thread.interrupt_main()
