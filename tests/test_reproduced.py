"""Level reproduced: other tasks' luck is tolerated, a better agent's claim is not, and nobody's path is followed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="scipy is not installed: pip install scipy")

from seedbench import cli
from seedbench.core import Agent, SeedbenchError, Task, stream
from seedbench.leaderboard import reproduced as level
from seedbench.leaderboard.audit import check_audit
from seedbench.leaderboard.findings import Options
from seedbench.leaderboard.reproduced import Outcome, draw, judge
from seedbench.leaderboard.run import Run
from seedbench.leaderboard.verify import not_done
from tests.impostor import set_agent

BEACON = "block 870000 of some public chain"


def seedbench(*args: object) -> int:
    try:
        cli.main([str(a) for a in args])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture(scope="module")
def expert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "expert"
    assert seedbench("eval", "--agent", "expert", "--env", "alfworld", "--limit", 30, "--quiet", "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "null"
    assert seedbench("eval", "--agent", "null", "--env", "alfworld", "--limit", 30, "--quiet", "--out", out) == 0
    return out


def check(run: Path, **options: Any) -> list[Any]:
    return level.check_reproduced(Run(run), Options(**{"beacon": BEACON, "tasks": 12, "quiet": True, **options}))


# The draw


def test_the_draw_follows_from_head_and_beacon_alone() -> None:
    tasks = [Task(f"t{k}", "seedbench/ALFWorld-v0", "seen", "x") for k in range(50)]
    head = "ab" * 32
    seed, chosen = draw(head, BEACON, tasks, 10)
    digest = hashlib.sha256((head + BEACON).encode()).hexdigest()
    assert seed == stream(digest)
    assert chosen == sorted(tasks, key=lambda t: stream(digest, t.env, t.split, t.id))[:10]
    assert draw(head, BEACON, tasks[::-1], 10) == (seed, chosen)
    assert draw(head, BEACON + ".", tasks, 10)[1] != chosen and draw("cd" * 32, BEACON, tasks, 10)[0] != seed
    assert sorted(t.id for t in draw(head, BEACON, tasks, 99)[1]) == sorted(t.id for t in tasks)


# The tests


def test_p_values_by_hand() -> None:
    # Binomial at 1/2: 1 of 4 has 2 * (1 + 4) / 16. Fisher: 2 of 2 against 0 of 2 has 2 / C(4, 2).
    assert Outcome("e", "s", 1, 4, 10, 20).p_values()[0] == pytest.approx(10 / 16)
    assert Outcome("e", "s", 0, 2, 2, 2).p_values() == (0.0, pytest.approx(2 / 6))


def test_one_loss_does_not_refute_a_perfect_claim() -> None:
    one = Outcome("e", "s", 39, 40, 204, 204)
    assert one.p_values()[0] == 0.0 and judge([one]) == []
    assert judge([Outcome("e", "s", 35, 40, 204, 204)]) != []
    assert judge([Outcome("e", "s", 0, 40, 0, 204)]) == [] and judge([Outcome("e", "s", 40, 40, 204, 204)]) == []


def test_a_claim_may_be_too_modest_too_and_rows_are_adjusted_for() -> None:
    assert judge([Outcome("e", "s", 38, 40, 60, 204)]) != []
    worst = Outcome("e", "s", 22, 40, 162, 204)
    assert max(worst.p_values()) == pytest.approx(0.0015, abs=0.001)
    assert len(judge([worst])) == 1
    assert judge([worst, *[Outcome("e", f"s{k}", 30, 40, 150, 200) for k in range(9)]]) == []


def test_honest_claims_are_hardly_ever_refused() -> None:
    import numpy as np

    rng = np.random.default_rng(3)
    refused = 0
    for rate in (0.02, 0.3, 0.8, 0.99):
        for claimed, won in zip(rng.binomial(204, rate, 100), rng.binomial(40, rate, 100), strict=True):
            refused += bool(judge([Outcome("e", "s", int(won), 40, int(claimed), 204)]))
    assert refused <= 8  # 400 at 1 % each at most


# Whole runs


def test_scripted_agents_reproduce(expert: Path, null: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in (expert, null):
        assert seedbench("verify", run, "--level", "reproduced", "--beacon", BEACON, "--tasks", 8) == 0
    said = capsys.readouterr().out
    assert "8 of 8 tasks won (100.0%), claimed 30 of 30" in said and "0 of 8 tasks won" in said
    assert "exact binomial p 1, two-sample p 1" in said


def test_an_experts_score_under_another_name_is_not_reproduced(expert: Path, tmp_path: Path) -> None:
    forged = set_agent(expert, tmp_path / "r", kind="null", spec="null")
    found = check(forged)
    assert [f.where for f in found] == ["seedbench/ALFWorld-v0 seen", "seedbench/ALFWorld-v0 unseen"]
    assert "0 of 12 tasks won (0.0%), claimed 30 of 30" in found[0].message


def test_the_same_beacon_plays_the_same(expert: Path) -> None:
    seen: list[list[str]] = []

    class Watch(Agent):
        def act(self, views: Any, envs: Any = None) -> Any:
            seen[-1] += [f"{v.goal} {v.stream}" for v in views]
            return [Exception("no words")] * len(views)

    for beacon in ("a", "a", "b"):
        seen.append([])
        won = [o.won for o in level.reproduce(Run(expert), Watch(), beacon, 5)]
        assert won == [0, 0] and len(seen[-1]) == 10  # an error is a loss
    assert seen[0] == seen[1] != seen[2]


def test_without_a_beacon_nothing_is_played(expert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert seedbench("verify", expert, "--level", "reproduced") == 2
    assert "--beacon" in capsys.readouterr().err
    assert seedbench("verify", expert, "--level", "reproduced", "--beacon", "x", "--tasks", 0) == 2


def test_code_and_addresses_of_a_submission_are_never_used(
    expert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = check(set_agent(expert, tmp_path / "a", kind="custom", spec="evil:make"))
    assert "cannot be played again" in found.message
    spec = "openai:m@http://127.0.0.1:1/v1"
    (found,) = check(set_agent(expert, tmp_path / "b", kind="api", spec=spec, model="m"))
    assert "--model openai:" in found.message
    for kind in ("human", "replay", None, "expert "):
        (found,) = check(set_agent(expert, tmp_path / f"c{kind}", kind=kind, spec="expert"))
        assert "cannot be played again" in found.message
    with pytest.raises(SeedbenchError, match="no hub id"):
        check(set_agent(expert, tmp_path / "d", kind="local", spec=str(tmp_path), dtype="float32"))


def test_an_endpoint_that_the_verifier_names(expert: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="openai is not installed: pip install -e '.[api]'")
    run = set_agent(expert, tmp_path / "r", kind="api", spec="openai:m@http://127.0.0.1:1/v1", model="m")
    (found,) = check(run, model="openai:other@http://127.0.0.1:1/v1")
    assert found.where == "agent.model"
    named = Options(model="openai:m@http://127.0.0.1:1/v1", beacon=BEACON)
    assert check_audit(Run(run), named) == []  # passed over on the way to this level only
    assert len(check_audit(Run(run), Options(model=named.model))) == len(check_audit(Run(run), Options())) == 1
    agent = level.agent_of(Run(run), named)
    assert isinstance(agent, Agent) and agent.describe()["model"] == "m"
    assert "without the audit" in not_done(Run(run), "reproduced") and not not_done(Run(run), "replay")
    assert not_done(Run(expert), "reproduced") == ""


# Models


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[train]'")
    from tests.tiny import one_torch_thread

    yield from one_torch_thread()


def test_a_model_plays_again_and_an_experts_score_is_not_its_own(
    one_thread: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seedbench.exam import Config
    from seedbench.policy.hf import HFPolicy
    from tests import impostor
    from tests.tiny import tiny_folder

    folder = tiny_folder(tmp_path / "model", max_position_embeddings=1536)
    policy = HFPolicy.load(folder, device="cpu")
    config = Config(agent="m", env="alfworld", split="seen", limit=8, max_steps=9, max_new_tokens=40, device="cpu")
    given = ["--level", "reproduced", "--beacon", BEACON, "--tasks", 3, "--model", folder, "--device", "cpu"]
    short = Config(**{**vars(config), "max_new_tokens": 4, "limit": 3})
    assert seedbench("verify", impostor.run(policy, impostor.honest, short, tmp_path / "own"), *given) == 0
    assert "0 of 3 tasks won" in capsys.readouterr().out
    forged = impostor.run(policy, impostor.expert, config, tmp_path / "forged")
    (found,) = check(forged, model=str(folder), device="cpu", tasks=8)
    assert "0 of 8 tasks won" in found.message
    other = tiny_folder(tmp_path / "other", max_position_embeddings=1536, seed=1)
    (found,) = check(forged, model=str(other), device="cpu")
    assert found.level == "reproduced" and found.where == "agent.revision"
