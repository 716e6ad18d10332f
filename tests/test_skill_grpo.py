"""Skill-GRPO: what the actor sees, identity with GRPO without a skill, and a cache that outlives a killed run."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seedbench.core import Lesson, SeedbenchError, Task, Trajectory
from seedbench.train.hints import SkillGrpoArgs
from tests.tiny import one_sentence, one_torch_thread, tiny_folder

pytest.importorskip("torch")
skill_grpo = pytest.importorskip("seedbench.baselines.skill_grpo")
source = pytest.importorskip("seedbench.baselines.skills.hindsight")
loop = pytest.importorskip("seedbench.train.loop")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def small(folder: Path, out: Path, **more: Any) -> SkillGrpoArgs:
    given: dict[str, Any] = {"updates": 2, "tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2, "save_every": 1,
                             "analysis_tokens": 8}  # fmt: skip
    return SkillGrpoArgs(model=str(folder), out=str(out), **(given | more))


def lines(out: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("seconds")} for line in read]


def test_no_skill_is_grpo_to_the_bit_and_a_file_is_read_at_every_step(folder: Path, tmp_path: Path) -> None:
    from seedbench.baselines import grpo
    from seedbench.train.args import Args

    given = {k: v for k, v in vars(small(folder, tmp_path / "grpo")).items() if k not in ("skill", "analysis_tokens")}
    plain = grpo.run(Args(**given))
    none = skill_grpo.run(small(folder, tmp_path / "none", skill="none"))
    assert lines(none) == lines(plain)
    assert (none / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()

    (tmp_path / "skill.md").write_text("mind the gap\n")
    args = small(folder, tmp_path / "file", skill=str(tmp_path / "skill.md"), updates=1)
    context, hindsight = skill_grpo.context_of(args, {})
    seen = []

    def watched(policy: Any, batch: Any, args: Any) -> Any:
        seen.extend(policy.tokenizer.decode(list(r.prompt_ids)) for r in batch.rows)
        assert not batch.taught.any()
        return skill_grpo.objective(policy, batch, args)

    loop.train(args, advantages=skill_grpo.advantages, objective=watched, context=context, hindsight=hindsight)
    assert len(seen) == lines(tmp_path / "file")[0]["rows"] and all(s.count("Lesson:\nmind the gap\n\n") for s in seen)
    assert lines(tmp_path / "file")[0]["prompt_digest"] != lines(plain)[0]["prompt_digest"]


def test_static_skills_go_by_the_kind_of_task(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = ModuleType("seedbench.baselines.skills.bank")
    bank.static = lambda task: f"for {task.kind}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, bank.__name__, bank)
    context, hindsight = skill_grpo.context_of(SkillGrpoArgs(), {})
    assert context(Task("a", "e", "train", "heat")) == "for heat" and hindsight is None


def test_the_bank_has_a_skill_for_every_kind_of_training_task() -> None:
    bank = pytest.importorskip("seedbench.baselines.skills.bank", reason="the bank of static skills is not there yet")
    from seedbench.exam import Config, plan

    for exam in plan(Config("expert", env="all", split="train")):
        assert all(bank.static(task) for task in {t.kind: t for t in exam.tasks["train"]}.values())


def test_a_skill_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "long").write_text("go on " * 5_000)
    for name, word in (("nowhere", "cannot be read"), ("empty", "is empty"), ("long", "has 30,000 characters")):
        path = tmp_path / name
        with pytest.raises(SeedbenchError) as error:
            skill_grpo.context_of(SkillGrpoArgs(skill=str(path)), {})
        one_sentence(error, "--skill", word)


def test_a_skill_file_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "skill.md"
    file.write_text("Look first.")
    args = SkillGrpoArgs(
        model="fresh", updates=3, tasks=1, group=2, max_new_tokens=4, max_steps=1, save_every=1, threads=1,
        out=str(tmp_path / "run"), skill=str(file),
    )  # fmt: skip

    skill_grpo.run(dataclasses.replace(args, updates=2))
    for left in ("model.safetensors", "train.json"):
        (tmp_path / "run" / left).unlink()
    file.write_text("Look last.")
    with pytest.raises(SeedbenchError, match=r"--skill .*skill\.md has changed since the run began"):
        skill_grpo.run(args, resume=True)
    file.write_text("Look first.")
    skill_grpo.run(args, resume=True)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_success_is_remembered_before_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One analysis a kind and update; a failure's skill never takes a success's place, an unreadable one none's."""
    asked: list[list[str]] = []

    def analyse(policy: Any, episodes: Sequence[Trajectory], tokens: int) -> tuple[list[str], dict[str, float]]:
        asked.append([t.task.id for t in episodes])
        return [t.task.id if t.task.id != "mute" else "" for t in episodes], {}

    def episode(name: str, kind: str, success: bool, ended: Any = "truncated") -> Trajectory:
        return Trajectory(Task(name, "e", "train", kind), 0, 0, (), float(success), success, ended)

    monkeypatch.setattr(source, "analyse", analyse)
    ranks = SimpleNamespace(gather=list)
    run: Any = SimpleNamespace(args=SkillGrpoArgs(skill="hindsight"), policy=None, ranks=ranks)
    memory: dict[str, tuple[bool, str]] = {}
    batch = [episode("f1", "heat", False), episode("s1", "heat", True), episode("s2", "heat", True),
             episode("f2", "cool", False), episode("x", "look", False, "error")]  # fmt: skip
    told = skill_grpo.remember(memory, run, batch)
    assert asked == [["s1", "f2"]] and memory == {"heat": (True, "s1"), "cool": (False, "f2")}
    assert told.hints == [""] * 5
    skill_grpo.remember(memory, run, [episode("f3", "heat", False), episode("mute", "cool", True)])
    assert asked[1] == ["mute"] and memory == {"heat": (True, "s1"), "cool": (False, "f2")}
    skill_grpo.remember(memory, run, [episode("s3", "heat", True), episode("f4", "cool", False)])
    assert memory == {"heat": (True, "s3"), "cool": (False, "f4")}


def test_a_killed_run_goes_on_with_the_skills_it_had(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seedbench.baselines.grpo import objective

    monkeypatch.setattr(source, "parse", lambda text: Lesson("", f"say {len(text)} {text[:3]!r}"))
    whole = skill_grpo.run(small(folder, tmp_path / "whole", skill="hindsight", updates=3))

    class Killed(Exception):
        pass

    def dies(policy: Any, batch: Any, args: Any) -> Any:
        if batch.update == 2:
            raise Killed
        return objective(policy, batch, args)

    cut = small(folder, tmp_path / "cut", skill="hindsight", updates=3)
    with monkeypatch.context() as patched:
        patched.setattr(skill_grpo, "objective", dies)
        with pytest.raises(Killed):
            skill_grpo.run(cut)
    state = json.loads((tmp_path / "cut" / "checkpoints" / "000002" / "state.json").read_text())
    assert state["memory"] and all("say" in skill for _, skill in state["memory"].values())
    skill_grpo.run(cut, resume=True)
    assert lines(whole) == lines(tmp_path / "cut") and len(lines(whole)) == 3
    assert (whole / "model.safetensors").read_bytes() == (tmp_path / "cut" / "model.safetensors").read_bytes()
    assert lines(whole)[-1]["skills_known"] > 0
