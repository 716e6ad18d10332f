"""Every forgery is refused by the level that is meant to see it, and an honest run by none."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest

from seedbench import cli
from seedbench.core import SeedbenchError, Task
from seedbench.leaderboard.entry import LEVELS
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.verify import verify
from tests.forge import FORGERIES, SEARCHQA, WEBSHOP, Copy, forge
from tests.toy import Counter

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
    it = Copy.of(copy)
    it.figures()
    it.save()
    assert check(copy) == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--skill", "{skill}", "--split", "unseen"],
        ["--preset", "seed", "--split", "seen"],
        ["--parse", "tolerant", "--max-steps", "3", "--split", "dev"],
        ["--history", "-1", "--temperature", "0", "--split", "train,unseen"],
    ],
    ids=lambda flags: flags[0],
)
def test_every_setting_is_replayed(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "skill.txt").write_text("Look <b>everywhere</b>.\nÉven there.")
    out, given = tmp_path / "run", [f.format(skill=tmp_path / "skill.txt") for f in flags]
    what = ["--agent", "tests.forge:Half", "--env", "alfworld,webshop", "--limit", "3", *given]
    cli.main(["eval", *what, "--out", str(out), "--quiet"])
    assert check(out) == []
    if "--skill" in flags:
        (lessons := Copy.of(out)).results["protocol"]["skill"] = ""
        lessons.save()
        assert "the agent saw another prompt" in str(check(out)[0])


@pytest.mark.parametrize("flags", [["--top-k", "5"], ["--preset", "search-r1", "--top-k", "1"]], ids=" ".join)
def test_settings_of_one_environment_are_replayed(flags: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    what = ["--agent", "random", "--env", "searchqa", "--limit", "5", *flags]
    cli.main(["eval", *what, "--out", str(out), "--quiet"])
    assert check(out) == []
    (it := Copy.of(out)).results["protocol"]["environments"][SEARCHQA]["settings"]["top_k"] = 3
    it.save()
    (first, *_) = check(out)
    assert "digest: says" in str(first) and "--retriever" in str(first)


def test_a_protocol_cannot_name_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the protocol nor run.json makes a verifier connect; only the verifier's own --retriever may."""
    cli.main(["eval", "--agent", "null", "--env", "searchqa", "--limit", "2", "--out", str(tmp_path / "a"), "--quiet"])
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
    copy, url = Path(shutil.copytree(tmp_path / "a", tmp_path / "b")), "http://127.0.0.1:9"
    for name in ("retriever", "server", "agent", "data"):
        (it := Copy.of(copy)).results["protocol"] = {**Copy.of(tmp_path / "a").results["protocol"], name: url}
        it.save()
        assert f"protocol.{name}: nothing like it belongs there" in str(check(copy)[0])
    run = Copy.of(tmp_path / "a")
    run.run["config"]["retriever"] = url
    run.save()
    with pytest.raises(SeedbenchError, match="a verifier does not follow"):
        check(tmp_path / "a")
    assert verify(Run(tmp_path / "a", retriever="bm25"), "replay", QUIET) == []


def test_measures_of_an_episode_are_replayed(tmp_path: Path) -> None:
    cli.main(["eval", "--agent", "random", "--env", "searchqa", "--limit", "4", "--out", str(tmp_path), "--quiet"])
    it = Copy.of(tmp_path)
    it.find(SEARCHQA, 1)["measures"]["f1"] = 1.0
    it.figures()
    it.save()
    assert check(tmp_path, "parse") == []
    assert "the measures are stored as" in str(check(tmp_path)[0])


def test_processes_find_what_one_process_finds(copy: Path) -> None:
    it = Copy.of(copy)
    for line in it.lines[3:30:4]:
        line["steps"][0]["observation"] += "!"
    it.save()
    found = check(copy)
    assert len(found) == 7
    assert verify(Run(copy), "replay", Options(workers=2, quiet=True)) == found


def test_both_observations_are_printed_where_they_part(copy: Path) -> None:
    it = Copy.of(copy)
    step = it.find(WEBSHOP, 3)["steps"][1]
    honest, step["observation"] = step["observation"], step["observation"][:400] + "EDITED"
    it.save()
    (found,) = check(copy)
    assert "EDITED" in found.message and honest[395:420] in found.message.encode().decode("unicode_escape")
    assert found.where.endswith(", step 2") and len(found.message) < 1000


class Toy(Counter):
    """The counting environment, registered; `replay` and its faults are set by a test."""

    FAULTY: ClassVar[bool] = True
    noise = 0

    def __init__(self, data: str = "mini", max_steps: int = 6) -> None:
        super().__init__()
        self.max_steps = max_steps

    def tasks(self, split: str) -> tuple[Task, ...]:
        names = ["to-1", "to-2", "to-9", "fault-step", "fault-reset"]
        return tuple(Task(f"{n}", "seedbench/Toy-v0", split, "toy") for n in names)

    def step(self, action: str) -> Any:
        if not self.FAULTY and self.task == "fault-step":
            self.task = "to-99"
        observation, *rest = super().step(action)
        return observation + "~" * Toy.noise, *rest


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A run of it by an agent that counts up."""
    gym.register(id="seedbench/Toy-v0", entry_point=Toy, order_enforce=False)
    monkeypatch.setattr(Toy, "noise", 0)
    cli.main(["eval", "--agent", "expert", "--env", "toy", "--split", "seen", "--out", str(tmp_path / "r"), "--quiet"])
    yield tmp_path / "r"
    del gym.registry["seedbench/Toy-v0"]


def toy_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.forge.kinds_of", lambda env, split: {t.id: t.kind for t in Toy().tasks(split)})


def test_faults_of_an_environment_replay_as_faults(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {line["task"]: (line["ended"], len(line["steps"])) for line in Copy.of(toy).lines}
    assert ends["fault-step"] == ("error", 2) and ends["fault-reset"] == ("error", 0)
    assert check(toy) == []
    monkeypatch.setattr(Toy, "FAULTY", False)
    assert check(toy) == [], "what failed then and does not now stays a failure"


def test_an_approximate_environment_promises_its_outcome(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "replay", "score")
    it = Copy.of(toy)
    it.results["protocol"]["environments"]["seedbench/Toy-v0"]["replay"] = "score"
    it.save()
    monkeypatch.setattr(Toy, "noise", 2)
    assert check(toy) == [], "other observations, equal outcome, and prompts that follow from what is stored"
    step = it.lines[1]["steps"][1]
    honest, step["prompt_sha"] = step["prompt_sha"], "0" * 64
    it.save()
    assert "another prompt" in str(check(toy)[0])
    step["prompt_sha"] = honest
    it.lines[2].update(success=True, score=1.0)
    toy_kinds(monkeypatch)
    it.figures()
    it.save()
    assert "the outcome is stored as success True" in str(check(toy)[0])


def test_noise_breaks_an_exact_promise(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "noise", 1)
    assert "the environment shows 'count: 1~'" in str(check(toy)[0])
