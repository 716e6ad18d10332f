"""`seedbench play`, `serve` and `doctor`: people, servers and the machine itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, arg, subcommand

from seedbench.commands.common import OptInt, OptPath, OptStr, index_or_url, lazy
from seedbench.core import SeedbenchError

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Play:
    """Play one episode yourself, with numbered actions, history and undo. Nothing is kept.

    To be measured like any other agent, use `seedbench eval --agent human`.
    """

    env: Annotated[str, Positional, arg(metavar="ENV")]
    """alfworld, webshop, searchqa, deepsearch, or one of yours."""
    data: str = "mini"
    """mini (embedded) or the folder with the published files."""
    split: str = "seen"
    """train, dev, seen, unseen or paper."""
    task: OptStr = None
    """A task's id, or a part of it that fits no other; by default one drawn by the seed."""
    seed: int = 0
    """Seed of the draw and of the environment."""
    max_steps: OptInt = None
    """Step limit. Default: the environment's."""
    retriever: OptStr = None
    """searchqa: bm25, lucene, dense, hybrid, the folder of an index, or the URL of a search server."""

    def __call__(self) -> None:
        data = self.data if self.data == "mini" else os.path.abspath(self.data)
        settings = {"max_steps": self.max_steps, "retriever": index_or_url(self.retriever)}
        settings = {k: v for k, v in settings.items() if v is not None}
        lazy("seedbench.agents.human", "run")(self.env, data, self.split, self.task, self.seed, settings)


@dataclass(frozen=True)
class _Listen:
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in. There is no password: keep it behind a firewall."""
    data: str = "mini"
    """mini (embedded) or the folder with the published files."""
    port_file: OptPath = None
    """File that holds the port's number while the server listens."""

    def _check_port(self) -> None:
        if not 0 <= self.port < 65536:
            raise SeedbenchError(f"--port is {self.port}: give 0 (any free one) to 65535.")


@dataclass(frozen=True)
class _Serve(_Listen):
    max_sessions: int = 1000
    """Episodes held at a time; one more is answered 429."""
    ttl: float = 3600.0
    """Seconds after which a session that nobody uses ends."""
    threads: int = 8
    """Requests answered at a time."""

    def options(self) -> dict[str, Any]:
        """Arguments of seedbench.serve.server, checked."""
        for name, value, least in (("max-sessions", self.max_sessions, 1), ("threads", self.threads, 1)):
            if value < least:
                raise SeedbenchError(f"--{name} is {value}: it must be at least {least}.")
        if not 0 < self.ttl < float("inf"):
            raise SeedbenchError(f"--ttl is {self.ttl}: give seconds above 0.")
        self._check_port()
        data = self.data if self.data == "mini" else str(Path(self.data).resolve())
        return {**{k: v for k, v in vars(self).items() if k != "env"}, "data": data}


@dataclass(frozen=True)
class ServeEnv(_Serve):
    """Serve an environment over HTTP: agents play on it with `seedbench eval --server URL`, or through its JSON API."""

    env: Positional[str] = tyro.MISSING
    """Which environment, alfworld for example."""
    preset: str = "seedbench"
    """The rules that clients play by, where presets differ in them (searchqa); they give the same --preset."""
    retriever: OptStr = None
    """searchqa: bm25, lucene, dense, hybrid, the folder of an index, or the URL of a search server."""
    top_k: OptInt = None
    """searchqa: passages shown a search."""

    def __call__(self) -> None:
        options = self.options()
        settings = {"retriever": index_or_url(options.pop("retriever")), "top_k": options.pop("top_k")}
        settings = {k: v for k, v in settings.items() if v is not None}
        lazy("seedbench.serve.server", "serve_env")(env=self.env, settings=settings, **options)


@dataclass(frozen=True)
class ServeWebshop(_Serve):
    """Serve WebShop: a shop for people in the browser, and the JSON API under /api for agents."""

    observation: Literal["text", "text_rich", "html", "url", "json"] = "text"
    """What agents are shown."""

    def __call__(self) -> None:
        lazy("seedbench.serve.server", "serve_webshop")(**self.options())


@dataclass(frozen=True)
class ServeSearch(_Listen):
    """Serve a search index over HTTP: POST /retrieve as Search-R1's own server, for agents of any code base."""

    index: OptPath = None
    """Index folder, from `seedbench index build`. Default: BM25 over the passages of --data."""
    corpus: OptPath = None
    """The index's corpus, where it has moved."""
    cache: int = 10_000
    """Queries whose passages are kept, for when they come again; 0 keeps none."""
    queue: int = 20_000
    """Queries that may wait; a request beyond them is answered 503."""
    threads: int = 1
    """Batches searched for at a time; Lucene spreads each over threads of its own."""

    def __call__(self) -> None:
        self._check_port()
        data = self.data if self.data == "mini" else str(Path(self.data).resolve())
        lazy("seedbench.serve.asgi", "serve_search")(**{**vars(self), "data": data})


@dataclass(frozen=True)
class Serve:
    """Serve environments or a search index over HTTP until SIGTERM or Ctrl-C."""

    command: OmitSubcommandPrefixes[
        Annotated[ServeEnv, subcommand("env")]
        | Annotated[ServeWebshop, subcommand("webshop")]
        | Annotated[ServeSearch, subcommand("search")]
    ]

    def __call__(self) -> None:
        self.command()


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what is missing and the command that cures it. Exit 1 if the base does not work."""

    def __call__(self) -> None:
        lazy("seedbench.doctor", "run")()
