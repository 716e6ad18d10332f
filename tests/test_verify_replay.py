"""Every forgery is refused by the level that is meant to see it, and an honest run by none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seedbench import cli
from seedbench.leaderboard.entry import LEVELS
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.verify import verify
from tests.forge import FORGERIES, forge

QUIET = Options(workers=1, quiet=True)


def check(folder: Path, level: str = "replay") -> list[Finding]:
    return verify(Run(folder), level, QUIET)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, both splits, two trials, wins, losses, errors and replies without an action."""
    out = tmp_path_factory.mktemp("played") / "run"
    what = ["--agent", "tests.forge:Half", "--env", "alfworld,webshop", "--limit", "6", "--trials", "2", "--seed", "5"]
    cli.main(["eval", *what, "--out", str(out), "--quiet"])
    return out


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def test_an_honest_run_has_no_findings(played: Path) -> None:
    assert check(played) == []


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery_is_refused_at_its_level(name: str, copy: Path) -> None:
    it = FORGERIES[name]
    forge(copy, name)
    before = LEVELS.index(it.level) - 1
    if before >= 0:
        assert check(copy, LEVELS[before]) == [], "seen by a level that cannot see it"
    found = check(copy, it.level)
    assert found and {f.level for f in found} == {it.level}
    assert any(it.words in str(f) for f in found), [str(f) for f in found]


def test_a_rewritten_run_is_the_same_run(copy: Path) -> None:
    from tests.forge import Copy

    it = Copy.of(copy)
    it.figures()
    it.save()
    assert check(copy) == []
