"""SEED and its relatives: vectors of the spec, identities with GRPO, what the teacher scores, and a deployed policy."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbench.core import Lesson, SeedbenchError, Task, Trajectory, View
from seedbench.train.hints import RelativesArgs, SeedArgs
from seedbench.train.rows import Row, batch_of
from tests.command import run as command
from tests.tiny import one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
seed = pytest.importorskip("seedbench.baselines.seed")
relatives = pytest.importorskip("seedbench.baselines.relatives")
source = pytest.importorskip("seedbench.baselines.skills.hindsight")
loop = pytest.importorskip("seedbench.train.loop")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def row(logp_old: Sequence[float], teacher: Sequence[float] = (), advantage: float = 0.0, prompt: int = 2) -> Row:
    n = len(logp_old)
    one = Row((1,) * prompt, (3,) * n, tuple(logp_old), View("g", "o", (), ()), 0, 0, 0, 0.0, False, True, advantage)
    one.logp_old, one.logp_teacher = tuple(logp_old), tuple(teacher)
    return one


@pytest.mark.parametrize("gap, gate, loss", [(0.2, 0.731059, 0.146212), (-0.2, 0.268941, -0.053788), (0.0, 0.5, 0.0)])
def test_gate_loss_and_gradient_of_the_spec(gap: float, gate: float, loss: float) -> None:
    """One taught row of two tokens, of four that the step teaches, and one untaught row, which has no part in it."""
    batch = batch_of([row([-1.0, -2.0], [-1.0 + gap, -2.0 + gap]), row([-1.0])], 9, 4, "cpu")
    logp = batch.logp_old.clone().requires_grad_()
    got, metrics = seed.distillation(logp, batch, SeedArgs())
    got.backward()
    assert float(got.detach()) == pytest.approx(2 * loss / 4, abs=1e-6)
    assert logp.grad.tolist() == pytest.approx([-gate / 4, -gate / 4, 0.0], abs=1e-6)
    assert float(metrics["gate_mean"][0]) / 2 == pytest.approx(gate, abs=1e-6) and int(metrics["gate_mean"][1]) == 2
    assert int(metrics["gate_above_half"][0]) == (2 if gap > 0 else 0)
    if gap == 0:
        assert float(metrics["gate_mean"][0]) == 1.0  # exactly one half each


def test_the_fixed_gate_is_half_whatever_the_gap() -> None:
    batch = batch_of([row([-1.0, -2.0], [-0.2, -5.0])], 2, 2, "cpu")
    logp = batch.logp_old.clone().requires_grad_()
    seed.distillation(logp, batch, SeedArgs(gate="fixed"))[0].backward()
    assert logp.grad.tolist() == [-0.25, -0.25]


def test_nothing_taught_adds_nothing() -> None:
    batch = batch_of([row([-1.0, -2.0], advantage=1.0)], 2, 0, "cpu")
    logp = batch.logp_old.clone().requires_grad_()
    loss, _ = seed.distillation(logp, batch, SeedArgs())
    loss.backward()
    assert float(loss.detach()) == 0 and logp.grad.tolist() == [0.0, 0.0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def test_gradient_is_the_gate_weighted_likelihood(folder: Path) -> None:
    """Through the model: the directional derivative equals finite differences of -mean(gate logp), gate held."""
    from seedbench.policy.hf import HFPolicy

    policy = HFPolicy.load(folder)
    policy.model.double()
    prompts, said = [(1, 5, 9, 11), (7, 8)], [(30, 40), (50, 60, 70)]
    rows = [row([-1.0] * 2, [-2.0, -7.0]), row([-1.0] * 3, [-6.0, -5.0, -4.0])]
    batch = batch_of(rows, 5, 5, "cpu")
    batch.logp_teacher = batch.logp_teacher.double()
    weights = list(policy.model.parameters())
    logp, _ = policy.score(prompts, said)
    assert len(logp) == 5  # completion tokens, and no others
    found = torch.autograd.grad(seed.distillation(logp, batch, SeedArgs())[0], weights)
    gate = torch.sigmoid(5 * (batch.logp_teacher - logp.detach()))
    generator = torch.Generator().manual_seed(0)
    way = [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in weights]
    values = []
    with torch.no_grad():
        for step in (3e-4, -6e-4):  # log-probabilities are float32
            for w, v in zip(weights, way, strict=True):
                w += step * v
            values.append(float(-(gate * policy.score(prompts, said)[0]).sum() / 5))
    slope = sum(float((g * v).sum()) for g, v in zip(found, way, strict=True))
    assert (values[0] - values[1]) / 6e-4 == pytest.approx(slope, rel=1e-3)


def small(folder: Path, out: Path, **more: Any) -> SeedArgs:
    given: dict[str, Any] = {"updates": 1, "tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2,
                             "analysis_tokens": 8, "mini_batches": 2}  # fmt: skip
    return SeedArgs(model=str(folder), out=str(out), **(given | more))


def every_other(rows: Sequence[Row], args: Any) -> list[float]:
    """Advantages of both signs, and rows that have none."""
    return [(0.0, 1.0, -0.5)[i % 3] for i in range(len(rows))]


def trained(args: SeedArgs, **more: Any) -> bytes:
    given: dict[str, Any] = {"advantages": every_other, "objective": seed.objective, "hindsight": seed.hindsight}
    return (loop.train(args, **(given | more)) / "model.safetensors").read_bytes()


def lines(args: SeedArgs) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(args.out) / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def grpo_bytes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from seedbench.baselines import grpo

    args = small(folder, tmp_path_factory.mktemp("grpo") / "run")
    return trained(args, objective=grpo.objective, hindsight=None)


def test_lambda_0_is_grpo_to_the_bit_and_another_is_not(folder: Path, tmp_path: Path, grpo_bytes: bytes) -> None:
    args = small(folder, tmp_path / "zero", skills="rules", lambda_opd=0.0, share_every=1)
    assert trained(args) == grpo_bytes
    assert all(0 < line["gate_mean"] < 1 and line["coverage"] == 1 and line["part_share"] == 0 for line in lines(args))
    assert trained(small(folder, tmp_path / "some", skills="rules", lambda_opd=0.1)) != grpo_bytes


def test_no_readable_skill_and_out_of_schedule_are_grpo(folder: Path, tmp_path: Path, grpo_bytes: bytes) -> None:
    """Random weights write no JSON: every episode is left untaught, whatever lambda."""
    own = small(folder, tmp_path / "own", lambda_opd=1.0)
    assert trained(own) == grpo_bytes
    line = lines(own)[-1]
    assert line["parse_rate"] == line["coverage"] == line["opd_loss"] == 0 and line["analysed"] == 4
    assert line["analyzer_tokens"] > 0 and line["analyzer_seconds"] > 0
    late = small(folder, tmp_path / "late", lambda_opd=1.0, skills="rules", opd_start=1, updates=2)
    trained(late)
    assert [line["coverage"] for line in lines(late)] == [0, 1]
    for wrong in ({"opd_start": 2}, {"opd_start": 1, "opd_stop": 1}):
        with pytest.raises(SeedbenchError, match="would never speak"):
            dataclasses.replace(late, **wrong)


def test_only_the_prompt_differs_between_the_passes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "parse", lambda text: Lesson("so", "mind the gap"))
    seen: list[Row] = []

    def watched(policy: Any, batch: Any, args: Any) -> Any:
        seen.extend(batch.rows)
        asked = [policy.tokenizer.decode(list(r.prompt_ids)) for r in batch.rows]
        assert not any("Lesson:" in text or "mind the gap" in text for text in asked)
        after = ["\n\nPast steps" if "\n\nPast steps" in text else "\n\nNow:" for text in asked]
        told = [t.replace(a, f"\n\nLesson:\nmind the gap{a}", 1) for t, a in zip(asked, after, strict=True)]
        ids = [policy.tokenizer.encode(text, add_special_tokens=False) for text in told]
        scored = policy.logprobs(ids, batch.completions, temperature=args.temperature)
        assert batch.logp_teacher.tolist() == pytest.approx([x for one in scored for x in one], abs=1e-4)
        assert not torch.allclose(batch.logp_teacher, batch.logp_old, atol=1e-2)
        return seed.objective(policy, batch, args)

    args = small(folder, tmp_path / "run", mini_batches=1, lambda_opd=0.1, share_every=1)
    trained(args, objective=watched)
    line = lines(args)[0]
    assert len(seen) == line["rows"] == 8 and all(len(r.logp_teacher) == len(r.completion_ids) for r in seen)
    assert line["parse_rate"] == line["coverage"] == 1 and 0 < line["gate_mean"] < 1 and line["opd_loss"] != 0
    assert line["part_share"] > 0 and line["rescore_seconds"] > 0


def test_a_teacher_that_reads_the_actors_prompt_has_gate_one_half(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seedbench.train import scoring

    real = scoring.fit
    monkeypatch.setattr(scoring, "fit", lambda policy, prompt, view, *more: real(
        policy, prompt, dataclasses.replace(view, hint=""), *more))  # fmt: skip
    args = small(folder, tmp_path / "run", mini_batches=1, skills="rules")
    trained(args)
    assert lines(args)[0]["gate_mean"] == pytest.approx(0.5, abs=1e-5)
    assert lines(args)[0]["skill_gap"] == pytest.approx(0, abs=1e-5)


def episode(task: str, success: bool = False, ended: Any = "truncated") -> Trajectory:
    return Trajectory(Task(task, "e", "train", "kind"), 0, 0, (), float(success), success, ended)


def test_failed_only_and_crashed_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Env:
        def lesson(self, trajectory: Trajectory) -> Lesson:
            return Lesson("", f"of {trajectory.task.id}")

    ranks = SimpleNamespace(rank=0, world=1, sum=lambda values: list(values))
    batch = [episode("a", True), episode("b"), episode("c", ended="error")]
    for failed_only, expected in ((False, ["of a", "of b", ""]), (True, ["", "of b", ""])):
        run = SimpleNamespace(args=SeedArgs(skills="rules", failed_only=failed_only), update=0, ranks=ranks,
                              exam=SimpleNamespace(make=Env))  # fmt: skip
        assert seed.hindsight(run, batch).hints == expected


def test_shuffled_skills_are_the_same_ones_of_other_tasks() -> None:
    batch = [episode(task) for task in "aaabbbbccd"]
    skills = ["", *(f"{t.task.id}{i}" for i, t in enumerate(batch[1:]))]
    for draw in range(20):
        got = source.shuffle(skills, batch, draw)
        assert sorted(got) == sorted(skills) and got[0] == ""
        assert all(not skill or skill[0] != t.task.id for skill, t in zip(got, batch, strict=True))
    assert source.shuffle(skills, batch, 1) != source.shuffle(skills, batch, 2)
    assert source.shuffle(["x", ""], batch[:2], 0) == ["x", ""]


@pytest.mark.parametrize(
    "method, loss", [("sdar", 0.146212), ("opsd", 0.146212), ("grpo_opsd", 0.2), ("skill_sd", 0.0214028)]
)
def test_terms_of_the_relatives(method: Any, loss: float) -> None:
    batch = batch_of([row([-1.0], [-0.8])], 1, 1, "cpu")
    got = relatives.term(torch.tensor([-1.0]), batch, RelativesArgs(method=method))
    assert float(got[0]) == pytest.approx(loss, abs=1e-6)


class Table:
    """A policy whose token log-probabilities are a free (N,) parameter."""

    def __init__(self, logp: Any):
        self.logp = logp

    def score(self, prompts: Any, completions: Any, temperature: float) -> tuple[Any, Any]:
        return self.logp, -self.logp.exp() * self.logp


@pytest.mark.parametrize("method", ["grpo_opsd", "skill_sd"])
def test_gradient_of_relatives_without_a_gate(method: Any) -> None:
    batch = batch_of([row([-1.0, -2.0], [-1.3, -1.9], 0.7), row([-1.5], (), -0.4)], 3, 2, "cpu")
    for name in ("advantage", "logp_old", "logp_sampled", "logp_teacher"):
        setattr(batch, name, getattr(batch, name).double())
    at = torch.tensor([-1.1, -2.05, -1.45], dtype=torch.float64, requires_grad=True)
    args = RelativesArgs(method=method, weight=0.3)
    assert torch.autograd.gradcheck(lambda x: relatives.objective(Table(x), batch, args)[0], (at,), atol=1e-6)


def test_sdar_is_seed_and_opsd_leaves_the_reward_out() -> None:
    batch = batch_of([row([-1.0, -2.0], [-1.3, -1.9], 2.0)], 2, 2, "cpu")

    def gradient(objective: Any, args: Any, part: Any = batch) -> list[float]:
        logp = torch.tensor([-1.1, -2.05], requires_grad=True)
        objective(Table(logp), part, args)[0].backward()
        return list(logp.grad.tolist())

    assert gradient(relatives.objective, RelativesArgs(method="sdar")) == gradient(seed.objective, SeedArgs())
    none = batch_of([row([-1.0, -2.0], [-1.3, -1.9], 0.0)], 2, 2, "cpu")
    opsd = gradient(relatives.objective, RelativesArgs(method="opsd"))
    assert opsd == gradient(seed.objective, SeedArgs(), none) != gradient(seed.objective, SeedArgs())


@pytest.mark.parametrize(
    "advantage, gap, update, scaled",
    [(-1, 0.2, 0, -0.909365), (-1, 0.5, 0, -0.9), (-1, -0.5, 0, -1.1), (2, 0.1, 0, 2.105171), (-1, 0.5, 50, -0.95),
     (-1, 0.5, 150, -1), (0, 0.5, 0, 0)],
)  # fmt: skip
def test_rlsd_scales_advantages(advantage: float, gap: float, update: int, scaled: float) -> None:
    batch = batch_of([row([-1.0], [-1.0 + gap], advantage), row([-1.0], (), 3.0)], 2, 1, "cpu", update)
    got = relatives.rlsd_advantage(torch.tensor([-1.0, -1.0]), batch, RelativesArgs(method="rlsd"))
    assert got.tolist() == pytest.approx([scaled, 3.0], abs=1e-5)


def test_recipes_are_grpos_with_the_papers_own_constants(capsys: pytest.CaptureFixture[str]) -> None:
    from seedbench.train import recipes
    from seedbench.train.args import Args
    from seedbench.train.hints import SkillGrpoArgs

    for name in (n.removeprefix("grpo-") for n in recipes.names() if n.startswith("grpo-qwen")):
        plain = vars(Args.load(recipes.find(f"grpo-{name}")))
        one = SeedArgs.load(recipes.find(f"seed-{name}"))
        assert isinstance(one, SeedArgs) and vars(one) == plain | {
            "skills": "own", "analysis_tokens": 4096, "failed_only": False, "opd_start": 0, "opd_stop": None,
            "share_every": 0, "lambda_opd": 0.01, "beta_opd": 5.0, "gate": "learned",
        }  # fmt: skip
        far = {"max_steps": 50, "history": 2} if plain["env"] == "alfworld" else {}  # SDAR's, where it differs
        more = {"skill": "static", "analysis_tokens": 128}
        assert vars(SkillGrpoArgs.load(recipes.find(f"skill-grpo-{name}"))) == plain | far | more
    command("train", "seed", "--recipe", "seed-qwen2.5-3b-alfworld", "--dry-run", "--parameters", "3.09e9")
    said = " ".join(capsys.readouterr().out.split())
    assert "128 times an update, an analysis reads" in said and "at most 4096 tokens" in said and "30 steps" in said


def test_relatives_through_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rlsd"
    command("train", "relatives", "--method", "rlsd", "--skills", "rules", "--model", folder, "--out", out, "--updates",
            1, "--tasks", 1, "--group", 2, "--max-new-tokens", 8, "--max-steps", 1)  # fmt: skip
    line = json.loads((out / "metrics.jsonl").read_text())
    assert line["coverage"] == 1 and np.isfinite(line["loss"]) and line["grad_norm"] > 0
    assert json.loads((out / "train.json").read_text())["method"] == "rlsd"


def test_a_deployed_policy_never_sees_a_skill(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained with skills, evaluated plainly: every prompt of the evaluation is the one that has no hint."""
    from seedbench.prompts import Prompt, prompt_sha

    made = tmp_path / "seed"
    command("train", "seed", "--skills", "rules", "--model", folder, "--out", made, "--updates", 1, "--tasks", 1,
            "--group", 2, "--max-new-tokens", 8, "--max-steps", 2)  # fmt: skip
    assert json.loads((made / "metrics.jsonl").read_text())["coverage"] == 1
    real, plain = Prompt.render, set()

    def watched(self: Prompt, view: View, hint: str = "") -> Any:
        messages = real(self, view, hint)
        assert not hint and not view.hint
        assert not any("Lesson:" in m["content"] for m in messages)
        plain.add(prompt_sha(messages))
        return messages

    run = tmp_path / "eval"
    with monkeypatch.context() as patched:
        patched.setattr(Prompt, "render", watched)
        patched.setattr(Prompt, "digest", lambda self: "not of interest here")  # it renders hints on purpose
        command("eval", "--agent", made, "--env", "alfworld", "--split", "seen", "--limit", 1, "--max-steps", 2,
                "--max-new-tokens", 8, "--out", run, "--quiet")  # fmt: skip
    assert json.loads((run / "run.json").read_text())["config"]["skill"] == ""
    with gzip.open(run / "trajectories.jsonl.gz", "rt") as file:
        recorded = [step["prompt_sha"] for line in file for step in json.loads(line)["steps"]]
    assert recorded and set(recorded) <= plain
