"""`seedbench verify` and `submit`: checking a run, and entering it on the board."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from seedbench.commands.common import OptInt, OptPath, OptStr, lazy
from seedbench.core import SeedbenchError


@dataclass(frozen=True)
class Verify:
    """Check a run or an entry of the board, and print what is wrong with it. Exit 0: nothing is; 1: something is.

    form: every task once a trial, digests, hashes, and every figure computed again. parse: the texts give the actions.
    replay: the actions give the observations, rewards and outcomes, and the prompts hold nothing else. audit: the
    model gives the tokens. reproduced: it wins as often again. Each level includes those before it.
    """

    run: Positional[Path]
    """Run folder, a folder of leaderboard/submissions, or leaderboard.json: then all of its entries."""
    level: Literal["form", "parse", "replay", "audit", "reproduced"] = "replay"
    """How far to go."""
    data: OptStr = None
    """The folder with the published files, for a run on those; by default where the run found them. Of a board,
    entries on published files are skipped without it."""
    retriever: OptStr = None
    """The search engine, for a run that chose one; by default what the run names, unless that is an address."""
    workers: int = 0
    """Processes that replay; 0 takes one a core, and one alone for a small run."""
    model: OptStr = None
    """audit, reproduced: the model's folder, or its hub id if that is not the one the run names; reproduced also takes
    openai:MODEL@URL. No path or address in the run is ever followed."""
    device: str = "auto"
    """audit, reproduced: auto, cpu, cuda, cuda:1, mps."""
    chat_template: OptPath = None
    """audit, reproduced: a jinja file, for a model that was played with one."""
    beacon: OptStr = None
    """reproduced: public words from after the submission that seed the choice of tasks."""
    tasks: int = 40
    """reproduced: how many tasks of each split are played."""
    quiet: bool = False
    """No progress bars, no notes."""

    def __call__(self) -> None:
        if self.workers < 0:
            raise SeedbenchError(f"--workers is {self.workers}: give 0 (chosen for you) or more.")
        if self.tasks < 1:
            raise SeedbenchError(f"--tasks is {self.tasks}: give 1 or more.")
        names = ("workers", "quiet", "model", "device", "beacon", "tasks")
        given = {name: getattr(self, name) for name in names}
        given["chat_template"] = None if self.chat_template is None else str(self.chat_template)
        options = lazy("seedbench.leaderboard.findings", "Options")(**given)
        if self.run.is_file():
            args = (self.run, self.level, options, self.data, self.retriever)
            said = lazy("seedbench.leaderboard.verify", "verify_board")(*args)
            _print(f"skipped: {name}: {why}" for name, why in said.skipped)
            self._report(said.findings, (), f"all but {len(said.skipped)} entries" if said.skipped else "")
            sys.exit(2 if said.skipped else 0)
        run = lazy("seedbench.leaderboard.run", "Run")(self.run, self.data, self.retriever)
        found = lazy("seedbench.leaderboard.verify", "verify")(run, self.level, options)
        notes = () if self.quiet or found else lazy("seedbench.leaderboard.verify", "notes")(run)
        self._report(found, notes, "" if found else lazy("seedbench.leaderboard.verify", "not_done")(run, self.level))

    def _report(self, found: Sequence[Any], notes: Sequence[str], but: str) -> None:
        _print([*found, *(f"note: {note}" for note in notes)])
        if found:
            print(f"{self.run}: {len(found)} {'finding' if len(found) == 1 else 'findings'}")
            sys.exit(1)
        print(f"{self.run}: verified, level {self.level}{but and f', {but}'}")


@dataclass(frozen=True)
class Submit:
    """Verify a whole run by replay and enter it on the board: a folder beside the board, and a line in it.

    A run with findings, or a partial one, is refused and nothing is changed. Open a pull request with what was added.
    """

    run: Positional[Path]
    """Folder of a finished run."""
    board: OptPath = None
    """The board's file, with submissions/ beside it. Default: leaderboard/leaderboard.json of the checkout."""
    about: OptPath = None
    """JSON or TOML file with agent, training and contact, as in leaderboard/entry.schema.json."""
    name: OptStr = None
    """The agent's name on the board; by default what --agent was."""
    model: OptStr = None
    """Hub id of the model."""
    revision: OptStr = None
    """Its commit."""
    base_model: OptStr = None
    """What it was trained from."""
    params: OptInt = None
    """How many parameters it has."""
    adapter: OptStr = None
    """Adapter on the model, if any."""
    scaffold: OptStr = None
    """What surrounds the model, if anything does."""
    license: OptStr = None
    """Licence of the weights."""
    url: OptStr = None
    """Page about it, https://..."""
    contact: OptStr = None
    """Whom to ask about it."""
    algorithm: OptStr = None
    """How it was trained."""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT ...")] = ()
    """Seeds of the training runs behind it."""
    data: OptStr = None
    """The folder with the published files, for a run on those; by default where the run found them."""
    retriever: OptStr = None
    """The search engine, for a run that chose one; by default what the run names, unless that is an address."""
    workers: int = 0
    """Processes that replay; 0 takes one a core, and one alone for a small run."""

    def __call__(self) -> None:
        card = ("name", "model", "revision", "base_model", "params", "adapter", "scaffold", "license", "url")
        given: dict[str, Any] = {
            "agent": {k: getattr(self, k) for k in card},
            "training": {"algorithm": self.algorithm, "seeds": list(self.seeds) or None},
            "contact": self.contact,
        }
        options = lazy("seedbench.leaderboard.findings", "Options")(workers=self.workers)
        about = lazy("seedbench.leaderboard.submit", "about")(self.about, given)
        done = lazy("seedbench.leaderboard.submit", "submit")(
            self.run, self.board, about, self.data, options, self.retriever
        )
        if done.findings:
            _print(done.findings)
            many = "1 finding" if len(done.findings) == 1 else f"{len(done.findings)} findings"
            print(f"{self.run}: refused, {many}; nothing was changed")
            sys.exit(1)
        print(f"{done.folder}: {'entered on' if done.new else 'is already on'} {done.board} as {done.folder.name}")


def _print(lines: Iterable[object]) -> None:
    from seedbench.view import visible

    for line in lines:
        print(visible(str(line)))
