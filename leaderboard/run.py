"""A run or an entry as a verifier reads it: lazily, in bounded memory, and believing nothing."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from seedbench.core import InfrastructureError, Mode, SeedbenchError
from seedbench.exam import STATED, Config, Exam, plan
from seedbench.leaderboard import files
from seedbench.leaderboard.entry import Entry, ProtocolDigests
from seedbench.leaderboard.files import Unreadable
from seedbench.prompts import sha256_json
from seedbench.record import STRICT, Key, Line, Record
from seedbench.results import Results
from seedbench.rollout import Episode

TRAJECTORIES, TOKENS = "trajectories.jsonl.gz", "tokens.jsonl.gz"


class ChainedLine(Line):
    """A line of trajectories.jsonl.gz as it stands there."""

    prev: str
    hash: str


class StepTokens(TypedDict, total=False):
    """Token ids and log-probabilities of one turn; empty where the turn has none."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]


class TokenLine(TypedDict):
    """A line of tokens.jsonl.gz; `steps` is None for an episode without tokens."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    env: str
    split: str
    task: str
    trial: int
    steps: list[StepTokens] | None


_PLAIN = re.compile(r"[a-z0-9]+").fullmatch  # a kind of index over the passages that come with the questions
_LINE, _TOKEN_LINE = TypeAdapter(ChainedLine), TypeAdapter(TokenLine)


class Run:
    """A run folder (results.json) or an entry folder (entry.json), whichever it is.

    Every property may raise Unreadable, a SeedbenchError whose sentence is a finding.
    """

    def __init__(self, folder: Path, data: str | None = None, retriever: str | None = None):
        """`data` is the folder with the published files, for a run on those; `retriever` the search engine, for a run
        that chose one. Raises SeedbenchError for no folder."""
        if not folder.is_dir():
            raise SeedbenchError(f"{folder} is no folder: name that of a finished run, or of an entry.")
        self.folder, self._data, self._retriever = folder.resolve(), data, retriever
        self.is_entry = os.path.lexists(folder / "entry.json")  # and then a results.json beside it is a finding

    @cached_property
    def entry(self) -> Entry | None:
        """The entry; None for a run that was not submitted."""
        return Entry.loads(files.read_bytes(self.folder / "entry.json")) if self.is_entry else None

    @cached_property
    def results(self) -> Results:
        if self.entry is not None:
            return self.entry.results
        data = files.read_bytes(self.folder / "results.json")
        files.parse_object(data, "results.json")  # stricter than json: no NaN anywhere
        try:
            return Results.loads(data)
        except SeedbenchError as error:
            raise Unreadable(str(error)) from None

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """run.json, which only says what the run's folder was told; None for an entry, and where it is gone."""
        path = self.folder / "run.json"
        return None if self.is_entry or not path.exists() else files.read_object(path)

    def lines(self) -> Iterator[Record]:
        """The episodes in file order, each with `prev` and `hash`, of the shape of ChainedLine; nothing else is
        checked. Raises Unreadable at the first that is not."""
        return self._read(TRAJECTORIES, _LINE)

    @property
    def has_tokens(self) -> bool:
        return (self.folder / TOKENS).exists()

    def tokens(self) -> Iterator[Record]:
        """The lines of tokens.jsonl.gz, of the shape of TokenLine: in the order of `lines`, if the run is honest."""
        return self._read(TOKENS, _TOKEN_LINE)

    def _read(self, name: str, shape: TypeAdapter[Any]) -> Iterator[Record]:
        for number, raw in enumerate(files.read_packed_lines(self.folder / name), 1):
            yield _parsed(raw, f"{name}, line {number},", shape)

    @cached_property
    def configs(self) -> list[Config]:
        """The settings under which each environment was played, from the protocol alone, in the order of the results.

        Raises Unreadable where the protocol is none, SeedbenchError where the published files are not at hand.
        """
        rows = self.results.results
        if not rows:
            raise Unreadable(f"{self.stated} has no results: the run played nothing.")
        try:
            return [self._config(env_id) for env_id in dict.fromkeys(r.env for r in rows)]
        except Unreadable:
            raise
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            words = (
                error.errors()[0]["msg"] if isinstance(error, ValidationError) else f"{type(error).__name__} {error}"
            )
            raise Unreadable(f"the protocol in {self.stated} is not as eval writes it ({words}).") from None

    def _config(self, env_id: str) -> Config:
        p, rows = self.results.protocol, [r for r in self.results.results if r.env == env_id]
        here: Any = p["environments"][env_id]  # type: ignore[index, call-overload]
        top = {k: p[k] for k in STATED if k in p}
        how = {k: here["sampling"][k] for k in ("temperature", "top_p", "max_new_tokens")}
        how |= {k: here[k] for k in ("max_steps", "history")}
        if "top_k" in here.get("settings", {}):
            how |= {"top_k": here["settings"]["top_k"], "retriever": self._search_engine()}
        if here.get("settings", {}).get("judge"):
            how |= {"judge": here["settings"]["judge"]}  # the model; its verdicts come from a file or endpoint at hand
        splits = ",".join(r.split for r in rows)
        data = self._folder_of_data(env_id, rows[0].data)
        try:
            return Config(agent="null", env=env_id, split=splits, data=data, **how, **top)  # type: ignore[arg-type]
        except SeedbenchError as error:
            raise Unreadable(f"the protocol in {self.stated} is not as eval writes it ({error})") from None

    @cached_property
    def exams(self) -> list[Exam]:
        """The exams that the run says it took, made again here: environments, splits, tasks and prompts.

        Raises as `configs`, and Unreadable for an exam that cannot be held here.
        """
        configs = self.configs
        try:
            exams = [exam for config in configs for exam in plan(replayed(config))]
        except InfrastructureError:
            raise
        except SeedbenchError as error:
            raise Unreadable(f"its exam cannot be held here: {error}") from None
        rows = {(r.env, r.split) for r in self.results.results}
        held = {(exam.env_id, split) for exam in exams for split in exam.tasks}
        if odd := sorted(rows ^ held):  # a row may not stand for several, such as "all"
            raise Unreadable(
                f"the results in {self.stated} are not by environment and split: {' '.join(odd[0])[:200]}."
            )
        return exams

    @property
    def mode(self) -> Mode:
        """How strictly replies were parsed."""
        return self.configs[0].parse

    @property
    def trials(self) -> int:
        """How often each task was to be played."""
        return self.configs[0].trials

    def episodes(self) -> Iterator[tuple[Exam, Episode]]:
        """Every episode that the run had to play, in the order of its lines."""
        config = self.configs[0]
        for exam in self.exams:
            for episode in exam.episodes(config):
                yield exam, episode

    def digests(self) -> ProtocolDigests:
        """Hashes of what was played, as it is here."""
        index = {x.env_id: str(x.protocol["index"]) for x in self.exams if "index" in x.protocol}
        return ProtocolDigests(
            split={
                f"{x.env_id} {split}": sha256_json([[t.id, t.kind] for t in tasks])
                for x in self.exams
                for split, tasks in x.tasks.items()
            },
            env={x.env_id: x.protocol["digest"] for x in self.exams},
            index=index,
            prompt={x.env_id: x.protocol["prompt_digest"] for x in self.exams},
        )

    @property
    def stated(self) -> str:
        """The file in which the run makes its claims."""
        return "entry.json" if self.is_entry else "results.json"

    def _folder_of_data(self, env_id: str, data: str) -> str:
        if data == "mini":
            return "mini"
        if data != "real":
            raise Unreadable(f"the results in {self.stated} are on data {data[:40]!r}, which is neither mini nor real.")
        told = (self.config or {}).get("config", {})
        found = self._data or (told.get("data") if isinstance(told, dict) else None)
        if not isinstance(found, str) or found == "mini" or not Path(found).is_dir():
            raise SeedbenchError(
                f"this run of {env_id} was played on published files: name their folder with --data DIR."
            )
        return found

    def _search_engine(self) -> str | None:
        """What the verifier names, or else what run.json does, unless that is an address. An entry names none."""
        told = (self.config or {}).get("config", {})
        found = self._retriever or (told.get("retriever") if isinstance(told, dict) else None)
        if found is None or (isinstance(found, str) and (self._retriever or Path(found).is_dir() or _PLAIN(found))):
            return found
        raise SeedbenchError(
            f"this run searched {str(found)[:100]!r}, which a verifier does not follow: name the same index, or a "
            "server of the same, with --retriever."
        )


def replayed(config: Config) -> Config:
    """The same exam on the environment's fastest engine: an equal digest promises equal bytes."""
    return dataclasses.replace(config, backend=None)


def _parsed(raw: bytes, name: str, shape: TypeAdapter[Any]) -> Record:
    value = files.parse_object(raw, name)
    try:
        shape.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise Unreadable(f"{name} is no record: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    return value


def place(number: int, key: Key) -> str:
    """Where an episode stands, for a finding: its line in the file (from 1) and what it is of."""
    env, split, task, trial = key
    return f"line {number} ({env} {split} {task}, trial {trial})"
