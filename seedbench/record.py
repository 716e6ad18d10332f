"""What a run leaves on disk, so that it survives a kill and anyone can check it.

While a run plays, `journal.jsonl` (seedbench.journal) takes one line an episode as it ends. At the end the same records
are put in manifest order, chained by hash and written to `trajectories.jsonl.gz`: those bytes are a function of the
agent's outputs and the seed alone, whatever the batch size and however often the run was killed and resumed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NotRequired

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from seedbench.core import Ended, SeedbenchError, Trajectory

Record = dict[str, Any]
LONGEST_TEXT = 20_000  # characters of a file that read_text reads

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StepLine(TypedDict):
    """One turn of a line of trajectories.jsonl.gz."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    observation: str
    text: str
    action: str
    format_valid: bool
    reward: float
    prompt_sha: str


class Line(TypedDict):
    """A line of trajectories.jsonl.gz, but for `prev` and `hash`."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    task: str
    env: str
    split: str
    seed: int
    trial: int
    steps: list[StepLine]
    score: Annotated[float, Field(ge=0, le=1)]
    success: bool
    ended: Ended
    error: str
    measures: NotRequired[dict[str, Annotated[float, Field(ge=0)]]]  # what the environment measures beside the score


Key = tuple[str, str, str, int]  # env, split, task id, trial


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, real characters; NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def record(t: Trajectory) -> Record:
    """A trajectory as a line of trajectories.jsonl.gz, without `prev` and `hash`. `observation` precedes the action."""
    measured = {"measures": dict(t.measures)} if t.measures else {}
    return {
        "task": t.task.id,
        "env": t.task.env,
        "split": t.task.split,
        "seed": t.seed,
        "trial": t.trial,
        "steps": [
            {
                "observation": s.view.observation,
                "text": s.reply.text,
                "action": s.action,
                "format_valid": s.format_valid,
                "reward": s.reward,
                "prompt_sha": s.prompt_sha,
            }
            for s in t.steps
        ],
        "score": t.score,
        "success": t.success,
        "ended": t.ended,
        "error": t.error,
        **measured,
    }


def tokens(t: Trajectory) -> list[dict[str, Any]] | None:
    """Token ids and log-probabilities a step, as fed and sampled; None when the agent has none."""
    if not any(s.reply.tokens for s in t.steps):
        return None
    return [
        {"prompt_ids": k.prompt_ids, "completion_ids": k.completion_ids, "logprobs": k.logprobs} if k else {}
        for k in (s.reply.tokens for s in t.steps)
    ]


def usage(t: Trajectory) -> dict[str, int] | None:
    """Tokens of an episode as its model's server counted them; None where a turn has no count."""
    if not t.steps or not all(s.reply.usage for s in t.steps):
        return None
    names = ("prompt_tokens", "completion_tokens")
    told = {name: sum(s.reply.usage.get(name, 0) for s in t.steps) for name in names}
    cut = sum(s.reply.usage.get("cut_prompts", 0) for s in t.steps)  # prompts that lost past steps, of a local model
    return told | ({"cut_prompts": cut} if cut else {})


def key(line: Record) -> Key:
    """Which episode a record is of."""
    return line["env"], line["split"], line["task"], line["trial"]


def chain(lines: Iterable[Record]) -> Iterator[Record]:
    """Add `prev` and `hash` to each record: hash = sha256 of `prev` + the canonical JSON of the record without both."""
    prev = ""
    for line in lines:
        digest = hashlib.sha256((prev + canonical(line)).encode()).hexdigest()
        yield {**line, "prev": prev, "hash": digest}
        prev = digest


def write_chained(path: Path, records: Iterable[Record]) -> str:
    """Write trajectories.jsonl.gz atomically; returns the chain head, the hash of the last line ("" for none)."""
    head = ""
    with _gzip_writer(path) as out:
        for line in chain(records):
            out.write(canonical(line).encode() + b"\n")
            head = line["hash"]
    return head


def write_gzip_lines(path: Path, values: Iterable[object]) -> None:
    """Write canonical JSON lines, compressed, atomically and with no time in the bytes."""
    with _gzip_writer(path) as out:
        for value in values:
            out.write(canonical(value).encode() + b"\n")


def read_lines(path: Path) -> Iterator[Record]:
    """The lines of a compressed record file, one at a time. Raises SeedbenchError if it is cut short or not JSON."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as f:
            for number, text in enumerate(f, 1):
                value = json.loads(text)
                if not isinstance(value, dict):
                    raise ValueError(f"line {number} is not an object")
                yield value
    except FileNotFoundError as error:
        raise SeedbenchError(
            f"{path} is missing: is the run finished? `seedbench eval --resume {path.parent}`"
        ) from error
    except (
        OSError,
        EOFError,
        ValueError,
        zlib.error,
        RecursionError,
    ) as error:  # BadGzipFile, JSON, Unicode among them
        raise SeedbenchError(f"{path} cannot be read to its end ({error}): copy the run folder again.") from error


@contextmanager
def _gzip_writer(path: Path) -> Iterator[gzip.GzipFile]:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
        yield out
    os.replace(part, path)


def read_text(path: Path, flag: str) -> str:
    """The text of a file that an option names, to be read at every turn. Raises SeedbenchError if it cannot be read, is
    empty, or longer than any lesson."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeedbenchError(f"{flag} {path} cannot be read as a UTF-8 text file: {error}.") from error
    if not text.strip():
        raise SeedbenchError(f"{flag} {path} is empty: write the text into it, or leave the option out.")
    if len(text) > LONGEST_TEXT:
        raise SeedbenchError(
            f"{flag} {path} has {len(text):,} characters, which would stand in every prompt: give {LONGEST_TEXT:,} at "
            "most."
        )
    return text


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step, so that no reader and no kill ever sees half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: object) -> None:
    """`value` as readable JSON, in one step."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def locked(run: Path, name: str = ".lock") -> Iterator[None]:
    """Hold the run folder for this process. Raises SeedbenchError when another one has it; a kill releases it."""
    lock = FileLock(run / name)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SeedbenchError(
            f"another process is writing to {run}: wait for it or stop it, or give this run another --out."
        ) from error
    try:
        yield
    finally:
        lock.release()
