"""The command line: `seedbench COMMAND --help`. Each command is a dataclass; what it does lies where it belongs.

Only the standard library and tyro are imported before a command is known, so that help comes at once.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

import seedbench
from seedbench.core import InfrastructureError, SeedbenchError

if TYPE_CHECKING:
    from seedbench.exam import Config

# What a user may leave out; the plain metavar keeps --help readable.
OptInt = Annotated[int | None, tyro.conf.arg(metavar="INT")]
OptFloat = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
OptPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
OptStr = Annotated[str | None, tyro.conf.arg(metavar="STR")]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Eval:
    """Play an agent through frozen splits, every task once a trial, and write a result that can be replayed.

    The run folder keeps each episode as it ends. A killed run goes on with `seedbench eval --resume DIR`, which needs
    no other option and gives the bytes of an uninterrupted run.

    For example:

      seedbench eval --agent expert --env alfworld --split seen
      seedbench eval --agent ./my_checkpoint --env alfworld --split seen,unseen --temperature 0
      seedbench eval --agent random --env alfworld --data DIR --split paper --trials 4
      seedbench eval --agent openai:my-model@http://localhost:8000/v1 --env alfworld --temperature 0
    """

    agent: OptStr = None
    """random | null | expert | human | the folder or hub id of a Hugging Face causal language model |
    openai:MODEL@URL (an OpenAI-compatible endpoint, its key in OPENAI_API_KEY, or user:password in OPENAI_BASIC_AUTH) |
    replay:RUN (the texts of a finished run) | module:factory (your own agent, from the current directory)."""
    env: str = "all"
    """Comma list of environments, or all."""
    split: str = "seen,unseen"
    """Comma list of train, dev, seen, unseen, paper; or all (which leaves out paper)."""
    data: str = "mini"
    """mini (embedded) or the folder with the published files: for ALFWorld the one that holds json_2.1.1, for WebShop
    the one with items_shuffle, or where it was imported."""
    trials: int = 1
    """How often each task is played."""
    limit: OptInt = None
    """Only the first N tasks of each split; the result is marked partial."""
    seed: int = 0
    """Seed of every random choice of the run."""
    out: OptPath = None
    """Run folder; by default runs/<time>_<agent>."""
    resume: OptPath = None
    """Finish the run in this folder; every other option is restored from it."""
    skill: str = "none"
    """none, or a text file whose content the agent sees as a lesson under the task line."""
    parse: Literal["strict", "tolerant"] = "strict"
    """tolerant forgives case, spacing, articles, final punctuation and missing closing tags; recorded."""
    preset: str = "seedbench"
    """A protocol by name: sets step limit, history and sampling at once. ALFWorld and WebShop: seedbench, seed,
    verl-agent."""
    backend: Literal["fast", "textworld", "alfworld"] | None = None
    """ALFWorld's engine; by default fast."""
    max_steps: OptInt = None
    """Step limit of an episode. Default: the environment's (ALFWorld: 14 on mini, 50 on published games; WebShop
    15)."""
    history: OptInt = None
    """How many past steps the prompt shows, -1 for all. Default: the environment's (ALFWorld: 5, WebShop: 2)."""
    temperature: OptFloat = None
    """Sampling temperature, 0 for greedy. Default 0.4."""
    top_p: OptFloat = None
    """Nucleus sampling. Default 1."""
    max_new_tokens: OptInt = None
    """Longest reply, in tokens. Default 512."""
    batch: int = 64
    """Episodes under way at a time, and rows of a generation batch."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps: where a local model runs."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of a local model: auto is float32 on a CPU, bfloat16 on a GPU."""
    threads: int = 0
    """PyTorch's CPU threads; 0 chooses: one for the tiniest models, else PyTorch's own choice."""
    chat_template: OptPath = None
    """A jinja file, for a model that has no chat template of its own."""
    selection: OptStr = None
    """How the checkpoint was chosen (last, dev); stated in the result. Never choose on a reported split."""

    server: OptStr = None
    """URL of a `seedbench serve` to play on instead of here; with --resume, where it is now if it has moved."""
    quiet: bool = False
    """Print no table at the end."""

    def __call__(self) -> None:
        from seedbench import evaluate, results, view

        if self.resume is not None:
            if given := self._given() - {"resume", "server", "quiet"}:
                flags = ", ".join("--" + name.replace("_", "-") for name in sorted(given))
                raise SeedbenchError(f"--resume restores every option from the run folder: leave out {flags}.")
            out = evaluate.resume(self.resume, server=self.server)
        elif self.agent is None:
            raise SeedbenchError("--agent is missing: try `seedbench eval --agent random`, or go on with --resume DIR.")
        else:
            out = evaluate.evaluate(self._config(), self.out)
        if not self.quiet:
            view.print_table([results.load(out)])
        print(f"{out}: {', '.join(name for name in evaluate.FILES if (out / name).exists())}")

    def _given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) != f.default}

    def _config(self) -> Config:
        """The run's settings. A replay plays what its recording played, but for what is given here."""
        from seedbench import evaluate
        from seedbench.exam import Config

        names = {f.name for f in fields(Config)}
        options = {k: v for k, v in vars(self).items() if k in names}
        options["skill"] = "" if self.skill == "none" else _read_text(Path(self.skill), "--skill")
        assert self.agent is not None
        kind, colon, run = self.agent.partition("replay:")
        # Absolute, so that the run can be resumed from any folder. (Not resolve(): it fails on loops of links.)
        if os.path.isdir(run if colon else kind):
            options["agent"] = colon + os.path.abspath(run if colon else kind)
        if self.chat_template is not None:
            options["chat_template"] = os.path.abspath(self.chat_template)
        if self.data != "mini":
            options["data"] = os.path.abspath(self.data)
        if colon:
            played = vars(evaluate.config_of(Path(run)))
            options |= {k: played[k] for k in names - self._given()}
        return Config(**options)


@dataclass(frozen=True)
class Play:
    """Play one episode yourself, with numbered actions, history and undo. Nothing is kept.

    To be measured like any other agent, use `seedbench eval --agent human`.
    """

    env: Positional[str]
    """Which environment, alfworld for example."""
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

    def __call__(self) -> None:
        data = self.data if self.data == "mini" else os.path.abspath(self.data)
        _lazy("seedbench.agents.human", "run")(self.env, data, self.split, self.task, self.seed, self.max_steps)


@dataclass(frozen=True)
class Table:
    """One table over finished runs, each figure with its interval."""

    runs: Positional[tuple[Path, ...]]
    """Run folders."""

    def __call__(self) -> None:
        from seedbench import results, view

        if not self.runs:
            raise SeedbenchError("table needs the folders of finished runs, for example runs/*.")

        view.print_table([results.load(run) for run in self.runs])


@dataclass(frozen=True)
class DataList:
    """List the environments, their data sets and how many tasks each split holds."""

    data: str = "mini"
    """mini, or a folder of published files."""
    env: str = "all"
    """Comma list of environments, or all."""

    def __call__(self) -> None:
        _lazy("seedbench.data", "print_list")(self.env, self.data)


@dataclass(frozen=True)
class DataImport:
    """Verify published files against the committed manifest and copy what an environment needs into one folder."""

    env: Positional[Literal["alfworld", "webshop"]]
    """Which environment the files belong to."""
    source: Positional[Path]
    """ALFWorld: the folder that holds json_2.1.1, or the published zip archive. WebShop: the folder with the original's
    items_shuffle, items_ins_v2 and items_human_ins files, .json or .json.xz."""
    dest: Positional[Path]
    """Folder to fill; pass it to --data afterwards. An interrupted import goes on where it stopped."""

    def __call__(self) -> None:
        _lazy("seedbench.data", "run_import")(self.env, self.source, self.dest)


@dataclass(frozen=True)
class DataCheck:
    """Check every file of a data set against the committed manifest.

    Exit 1 if a file is damaged, differs or is missing from a split that is there. A folder may lack whole splits.
    """

    env: Positional[Literal["alfworld", "webshop"]]
    """Which environment the files belong to."""
    data: Positional[str] = "mini"
    """mini, or the folder of published or generated files."""

    def __call__(self) -> None:
        _lazy("seedbench.data", "run_check")(self.env, self.data)


@dataclass(frozen=True)
class DataGenerate:
    """Make tasks of your own, by the generator that made `mini`; results on them are marked unpinned."""

    env: Positional[Literal["alfworld", "webshop"]]
    """Which environment to generate for."""
    dest: Positional[Path]
    """New folder; pass it to --data afterwards."""
    seed: int = 0
    """Seed of the generator; another seed gives other tasks."""
    level: int = 2
    """Difficulty, 1 to 4; mini is 2. ALFWorld: more furniture, objects and distractors, and longer episodes.
    WebShop: more near misses, options and attributes asked for, more words said otherwise than the shop does."""
    train: OptInt = None
    """Tasks of the train split. Without any of the four, as many as mini has; with some, only those splits."""
    dev: OptInt = None
    """Tasks of the dev split."""
    seen: OptInt = None
    """Tasks of the seen split."""
    unseen: OptInt = None
    """Tasks of the unseen split."""

    def __call__(self) -> None:
        given = {split: getattr(self, split) for split in ("train", "dev", "seen", "unseen")}
        sizes = {split: n for split, n in given.items() if n is not None} or None
        _lazy("seedbench.data", "run_generate")(self.env, self.dest, self.seed, self.level, sizes)


@dataclass(frozen=True)
class Data:
    """List, import, check and generate the games, goals and questions that environments play."""

    command: OmitSubcommandPrefixes[
        Annotated[DataList, subcommand("list")]
        | Annotated[DataImport, subcommand("import")]
        | Annotated[DataCheck, subcommand("check")]
        | Annotated[DataGenerate, subcommand("generate")]
    ]

    def __call__(self) -> None:
        self.command()


@dataclass(frozen=True)
class _Serve:
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in. There is no password: keep it behind a firewall."""
    data: str = "mini"
    """mini (embedded) or the folder with the published files."""
    max_sessions: int = 1000
    """Episodes held at a time; one more is answered 429."""
    ttl: float = 3600.0
    """Seconds after which a session that nobody uses ends."""
    threads: int = 8
    """Requests answered at a time."""
    port_file: OptPath = None
    """File that holds the port's number while the server listens."""

    def options(self) -> dict[str, Any]:
        """Arguments of seedbench.serve.server, checked."""
        for name, value, least in (("max-sessions", self.max_sessions, 1), ("threads", self.threads, 1)):
            if value < least:
                raise SeedbenchError(f"--{name} is {value}: it must be at least {least}.")
        if not 0 < self.ttl < float("inf"):
            raise SeedbenchError(f"--ttl is {self.ttl}: give seconds above 0.")
        if not 0 <= self.port < 65536:
            raise SeedbenchError(f"--port is {self.port}: give 0 (any free one) to 65535.")
        data = self.data if self.data == "mini" else str(Path(self.data).resolve())
        return {**{k: v for k, v in vars(self).items() if k != "env"}, "data": data}


@dataclass(frozen=True)
class ServeEnv(_Serve):
    """Serve an environment over HTTP: agents play on it with `seedbench eval --server URL`, or through its JSON API."""

    env: Positional[str] = tyro.MISSING
    """Which environment, alfworld for example."""

    def __call__(self) -> None:
        _lazy("seedbench.serve.server", "serve_env")(env=self.env, **self.options())


@dataclass(frozen=True)
class ServeWebshop(_Serve):
    """Serve WebShop: a shop for people in the browser, and the JSON API under /api for agents."""

    observation: Literal["text", "text_rich", "html", "url", "json"] = "text"
    """What agents are shown."""

    def __call__(self) -> None:
        _lazy("seedbench.serve.server", "serve_webshop")(**self.options())


@dataclass(frozen=True)
class Serve:
    """Serve environments over HTTP until SIGTERM or Ctrl-C."""

    command: OmitSubcommandPrefixes[
        Annotated[ServeEnv, subcommand("env")] | Annotated[ServeWebshop, subcommand("webshop")]
    ]

    def __call__(self) -> None:
        self.command()


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what is missing and the command that cures it. Exit 1 if the base does not work."""

    def __call__(self) -> None:
        _lazy("seedbench.doctor", "run")()


Command = (
    Annotated[Eval, subcommand("eval")]
    | Annotated[Play, subcommand("play")]
    | Annotated[Table, subcommand("table")]
    | Annotated[Data, subcommand("data")]
    | Annotated[Serve, subcommand("serve")]
    | Annotated[Doctor, subcommand("doctor")]
)


def main(argv: list[str] | None = None) -> None:
    """Run one command. Exit 0: done; 1: checked and found wanting, or not all played; 2: a mistake in the call."""
    argv = sys.argv[1:] if argv is None else argv
    if any(not arg.isprintable() and arg.encode("utf-8", "replace").decode() != arg for arg in argv):
        sys.exit(_say("an argument is not valid UTF-8 text: type it again.", 2))
    if argv == ["--version"]:
        print(f"seedbench {seedbench.__version__}")
        return
    command: Any = tyro.cli(
        Command,
        prog="seedbench",
        description="Train and measure language-model agents on long-horizon tasks.",
        args=argv,
    )
    try:
        command()
    except InfrastructureError as error:
        sys.exit(_say(error, 1))
    except SeedbenchError as error:
        sys.exit(_say(error, 2))
    except KeyboardInterrupt as error:  # a run says what it kept and how it goes on
        sys.exit(_say(error if str(error) else "stopped.", 130))
    except BrokenPipeError:  # `seedbench data list | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in FULL:
            cure = "what was finished is kept: free some and run the same command again, or go on with --resume"
            sys.exit(_say(f"no space left on the disk{where}; {cure}.", 1))
        sys.exit(_say(f"{error.strerror or error}{where}: mend that and run the command again.", 1))


def _lazy(module: str, function: str) -> Any:
    return getattr(import_module(module), function)


def _read_text(path: Path, flag: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeedbenchError(f"{flag} {path} cannot be read as a UTF-8 text file: {error}.") from error
    if not text.strip():
        raise SeedbenchError(f"{flag} {path} is empty: write the text into it, or leave the option out.")
    return text


def _say(message: object, code: int) -> int:
    from seedbench.view import visible

    line = visible(" ".join(str(message).split()))
    print("seedbench:", line if len(line) < 600 else f"{line[:300]} ... {line[-290:]}", file=sys.stderr)
    return code
