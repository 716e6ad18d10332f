"""`seedbench submit`: verify a run by replay, write its entry, and add it to the board."""

from __future__ import annotations

import re
import shutil
import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

import seedbench
from seedbench.core import SeedbenchError
from seedbench.leaderboard import files, store
from seedbench.leaderboard.entry import Entry, Level, Verification, today
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.outcomes import of_lines
from seedbench.leaderboard.run import TOKENS, TRAJECTORIES, Run
from seedbench.leaderboard.verify import verify
from seedbench.record import write_chained, write_gzip_lines, write_json

LEVEL: Level = "replay"
NOT_SAID = {"kind", "skills_at_inference"}  # of an agent: the run itself says so
About = Mapping[str, Any]


class Done(NamedTuple):
    """What became of a submission: refused with findings, or the folder of its entry; `new` if it was not there."""

    findings: list[Finding]
    board: Path
    folder: Path | None = None
    new: bool = False


def submit(
    folder: Path,
    board: Path | None,
    about: About,
    data: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
    retriever: str | None = None,
) -> Done:
    """Enter a run on the board; nothing is written unless it verifies. The same run again changes nothing.

    Raises SeedbenchError for a partial run, a run that is on the board under another name, a board that cannot be
    read, or words about the agent that are not as the schema wants them.
    """
    board = store.board_file(board)
    store.read_board(board)  # a board that cannot be read is found before minutes of replay
    run = Run(folder, data, retriever)
    if run.is_entry:
        raise SeedbenchError(f"{folder} is an entry already: submit takes a run folder.")
    _whole(run)
    if found := verify(run, LEVEL, options):
        return Done(found, board)
    entry = make_entry(run, about)
    with store.locked_board(board):
        entries = store.read_board(board)
        home = store.submissions(board) / entry.id
        for other in entries:
            if other.results.chain_head != entry.results.chain_head:
                continue
            if _same(other, entry):
                return Done([], board, home, new=False)
            raise SeedbenchError(
                f"this run is on the board as {other.id}, with other words about it: edit that entry, or remove it "
                "from the board and from submissions/ and submit again."
            )
        _write(run, entry, home)
        store.write_board(board, [*entries, entry])
    return Done([], board, home, new=True)


def _whole(run: Run) -> None:
    try:
        part = [r for r in run.results.results if r.partial]
    except files.Unreadable:
        return  # a finding, with its sentence
    if part:
        raise SeedbenchError(
            f"{run.folder.name} is partial ({part[0].env} {part[0].split}, {part[0].tasks} tasks): run eval without "
            "--limit, and submit that."
        )


def _same(a: Entry, b: Entry) -> bool:
    return a.model_copy(update={"verification": None}) == b.model_copy(update={"verification": None})


def make_entry(run: Run, about: About) -> Entry:
    """The entry of a verified run. Raises SeedbenchError for words about it that do not fit the schema."""
    agent = run.results.agent
    spec = str(agent.get("spec", "agent"))
    card: dict[str, Any] = {"name": spec.rstrip("/").rpartition("/")[2] if "/" in spec and "@" not in spec else spec}
    card |= {"kind": str(agent.get("kind", "")), "skills_at_inference": bool(run.results.protocol.get("skill"))}
    if isinstance(agent.get("parameters"), int):
        card |= {"params": agent["parameters"], "revision": str(agent.get("revision") or "")}
    card |= about.get("agent", {})
    training = {"selection": run.results.selection or "", **about.get("training", {})}
    if run.results.selection not in (None, training["selection"]):
        raise SeedbenchError(f"training.selection: the run itself says {run.results.selection!r}; leave it out.")
    made = {
        "id": entry_id(str(card["name"]), run.results.chain_head),
        "agent": card,
        "training": training,
        "contact": about.get("contact", ""),
        "protocol": run.digests().model_dump(),
        "software": run.results.software,
        "results": run.results,
        "outcomes": of_lines(run.lines()),
        "verification": Verification(level=LEVEL, by=verifier(), date=today()),
    }
    try:
        return Entry.model_validate(made)
    except ValidationError as error:
        first = error.errors()[0]
        raise SeedbenchError(f"{'.'.join(map(str, first['loc']))} cannot be entered: {first['msg']}.") from None


def verifier() -> str:
    """Who verified: this software, by its version."""
    return f"seedbench {seedbench.__version__}"


def entry_id(name: str, digest: str) -> str:
    """A folder name that is safe anywhere: letters and digits of the agent's name, and 12 digits of the run's hash."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return f"{slug or 'agent'}-{digest[:12]}"


def about(path: Path | None, given: About) -> dict[str, Any]:
    """What a file (JSON or TOML) and the flags say of an agent and its training; flags win.

    Raises SeedbenchError for a file that is neither, or says what is not asked for.
    """
    held = {} if path is None else _read_about(path)
    held.pop("verification", None)  # the verifier's alone
    if unknown := set(held) - {"agent", "training", "contact"}:
        raise SeedbenchError(f"--about {path}: {', '.join(sorted(unknown))}: it may hold agent, training and contact.")
    said: dict[str, Any] = {}
    for part in ("agent", "training"):
        if not isinstance(told := held.get(part, {}), dict):
            raise SeedbenchError(f"--about {path}: {part} must be a table of names and values.")
        said[part] = {**told, **{k: v for k, v in given[part].items() if v is not None}}
    if own := NOT_SAID & set(said["agent"]):
        raise SeedbenchError(f"--about {path}: agent.{min(own)} comes from the run itself: leave it out.")
    contact = given["contact"] if given["contact"] is not None else held.get("contact")
    return {**said, **({} if contact is None else {"contact": contact})}


def _read_about(path: Path) -> dict[str, Any]:
    try:
        if path.suffix.lower() == ".toml":
            return tomllib.loads(files.read_bytes(path).decode("utf-8"))
        return files.parse_object(files.read_bytes(path), path.name)
    except (ValueError, RecursionError, files.Unreadable) as error:
        raise SeedbenchError(f"--about {path} cannot be read: {error}") from None


def _write(run: Run, entry: Entry, home: Path) -> None:
    """Put the entry's folder in its place in one step. Lines are written anew, so that the bytes follow from them."""
    part = home.with_name(f".{home.name}.part")
    for stale in (part, home):  # left by a kill: no board names it
        if stale.is_symlink():
            raise SeedbenchError(f"{stale} is a symbolic link: remove it.")
        if stale.exists():
            shutil.rmtree(stale)
    part.mkdir(parents=True)
    try:
        bare = ({k: v for k, v in line.items() if k not in ("prev", "hash")} for line in run.lines())
        if write_chained(part / TRAJECTORIES, bare) != entry.results.chain_head:
            raise SeedbenchError(f"{run.folder.name} changed while it was read: submit it again.")
        if run.has_tokens:
            write_gzip_lines(part / TOKENS, run.tokens())
        write_json(part / "entry.json", entry.as_json())
        part.rename(home)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
