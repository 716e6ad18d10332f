"""From a run to the board, and what CI does with a pull request: submit, board, export, and the verifying script."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seedbench.leaderboard import boardfile
from tests import boards
from tests.command import run

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "leaderboard" / "verify_submissions.sh"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a board of two real entries: ALFWorld mini, both splits whole, the second on a branch."""
    folder = tmp_path_factory.mktemp("checkout")
    board = folder / "leaderboard" / "leaderboard.json"
    (board.parent / "submissions").mkdir(parents=True)
    (board.parent / "submissions" / "README.md").write_text("Entries, one a folder.\n")
    git(folder, "init", "-q", "-b", "main")
    for name, branch in (("null", None), ("expert", "entry")):
        if branch:
            git(folder, "checkout", "-q", "-b", branch)
        played = boards.scripted(folder.parent / f"runs-{name}", name, env="alfworld")
        run("submit", played, "--board", board)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", name)
    return folder


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


def verify(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The script, with the `seedbench` and `python` of these tests."""
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, words in (("seedbench", "-m seedbench"), ("python", "")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (bin_folder / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    return subprocess.run([SCRIPT, folder, *args], capture_output=True, text=True, env=environ)


def test_submit_then_board(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = checkout / "leaderboard" / "leaderboard.json"
    capsys.readouterr()
    run("board", "--board", board, "--markdown")
    out = capsys.readouterr().out
    assert "| expert (ceiling, privileged) | - | 100.0" in out and "| null (floor) | - | 0.0" in out
    assert "Nobody has entered random here" in out and "| replay |" in out
    assert all(entry.outcomes for entry in boardfile.load(board))
    first, second = sorted((board.parent / "submissions").glob("*/"))
    run("compare", first, second, "--show", 0)
    assert "+100.0" in capsys.readouterr().out


def test_ci_takes_only_what_a_branch_changed(checkout: Path) -> None:
    done = verify(checkout, "main")
    assert done.returncode == 0 and "== expert-" in done.stdout and "null" not in done.stdout, done.stdout + done.stderr
    assert "1 submissions verified" in done.stdout


def forged(checkout: Path, tmp_path: Path, name: str) -> tuple[Path, Path]:
    folder = tmp_path / "checkout"
    shutil.copytree(checkout, folder)
    (home,) = (folder / "leaderboard" / "submissions").glob(f"{name}-*")
    return folder, home


@pytest.mark.parametrize("what", ["episode", "outcomes", "board", "name"])
def test_ci_refuses_what_is_forged(what: str, checkout: Path, tmp_path: Path) -> None:
    folder, home = forged(checkout, tmp_path, "expert" if what != "episode" else "null")
    entry = json.loads((home / "entry.json").read_text())
    if what == "episode":  # a loss turned into a win; the chain breaks
        path = home / "trajectories.jsonl.gz"
        lines = gzip.decompress(path.read_bytes()).replace(b'"success":false', b'"success":true', 1)
        path.write_bytes(gzip.compress(lines, mtime=0))
        says = "form"
    elif what == "outcomes":  # the figures stay, the outcomes that ranks rest on do not
        entry["outcomes"][0]["wins"] = "0" + entry["outcomes"][0]["wins"][1:]
        says = "outcomes: are not those of trajectories.jsonl.gz"
    elif what == "board":
        board = folder / "leaderboard" / "leaderboard.json"
        held = json.loads(board.read_text())
        held["entries"][0]["agent"]["name"] = "Somebody else"
        board.write_text(json.dumps(held))
        says = "is not on the board as its entry.json has it"
    else:
        home.rename(home.with_name("$(touch owned) x"))
        says = "not a valid entry id"
    if what == "outcomes":
        (home / "entry.json").write_text(json.dumps(entry))
    git(folder, "checkout", "-q", "-b", "forged")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    done = verify(folder, "entry")
    assert done.returncode == 1 and says in done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.rglob("owned")) and not Path("owned").exists()
