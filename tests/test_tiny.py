"""The policies that ship: small, playing, audited, and able to read and to write a lesson."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from tests.command import run
from tests.tiny import one_torch_thread

pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[local]'")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def test_one_policy_an_environment_of_two_megabytes_with_one_tokenizer() -> None:
    import gymnasium as gym

    from seedbench.core import short_name
    from seedbench.policy.fresh import every, shipped

    known = {short_name(env_id) for env_id, spec in gym.registry.items() if spec.namespace == "seedbench"}
    assert set(every()) == known
    words = (shipped("tokenizer") / "tokenizer.json").read_bytes()
    for env in every():
        assert (shipped(env) / "model.safetensors").stat().st_size <= 2e6
        assert (shipped(env) / "tokenizer.json").read_bytes() == words


def test_the_agent_picks_by_environment_and_its_run_is_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seedbench.policy.fresh import every

    out = tmp_path / "run"
    small = ("--env", ",".join(every()), "--limit", 3, "--split", "seen", "--max-new-tokens", 64, "--max-steps", 4)
    run("eval", "--agent", "tiny", *small, "--out", out, "--quiet")
    results = json.loads((out / "results.json").read_text())
    assert all(r["attempted"] == 3 and r["errors"] == 0 for r in results["results"])
    told = results["agent"]
    assert len({{**told, **own}["revision"] for own in told["policies"].values()}) == len(results["results"])
    capsys.readouterr()
    run("verify", out, "--level", "audit")
    assert "verified, level audit" in " ".join(capsys.readouterr().out.split())


def test_a_run_of_other_weights_fails_the_audit(tmp_path: Path) -> None:
    from seedbench.leaderboard import audit
    from seedbench.policy.fresh import load_policy

    class Run:
        class results:
            agent: dict[str, Any] = {"kind": "local", "spec": "tiny", "policies": {"alfworld": {"revision": "0" * 64}}}  # noqa: RUF012

    policy = load_policy("tiny", "alfworld")
    found = audit.wrong_model(Run, {"seedbench/ALFWorld-v0": policy})  # type: ignore[arg-type]
    assert any(f.where == "agent.revision" for f in found)


def test_an_environment_without_a_policy_is_said() -> None:
    from seedbench.agents.tiny import Tiny

    with pytest.raises(
        SeedbenchError, match="tiny has no policy for nowhere: choose --env alfworld, deepsearch, searchqa, webshop"
    ):
        Tiny().plays("seedbench/Nowhere-v0")


def test_the_tiny_policy_writes_lessons_that_are_read() -> None:
    """Of its own won episodes; whether they are true is what `python -m seedbench.baselines.hint_gap` measures."""
    from seedbench.agents.scripted import Expert
    from seedbench.baselines.skills import analysis
    from seedbench.baselines.skills.parse import parse
    from seedbench.exam import Config, plan
    from seedbench.policy.decoding import Generation
    from seedbench.policy.fresh import load_policy
    from seedbench.rollout import Episode, play

    policy = load_policy("tiny", "alfworld")
    exam = plan(Config("expert", env="alfworld", split="train"))[0]
    episodes = [Episode(task) for task in exam.tasks["train"][:120:10]]
    won = list(play(exam.make, episodes, Expert(), prompt=exam.prompt))
    prompts = [policy.encode(analysis.messages(t)) for t in won]
    said = policy.generate(prompts, streams=[0] * len(prompts), temperature=0, max_new_tokens=128)
    lessons = [parse(policy.decode(g.completion_ids)) for g in said if isinstance(g, Generation)]
    assert len([lesson for lesson in lessons if lesson]) >= 10
