"""GRPO's arithmetic: vectors of the spec, the gradient by finite differences, and the loop itself."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.core import View
from seedbench.train.args import Args
from seedbench.train.rows import Row, batch_of, deal, passes
from tests.tiny import one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)
VIEW = View("g", "o", (), ())


def row(group: int, trajectory: int, reward: float, *, valid: bool = True, **more: Any) -> Row:
    given: dict[str, Any] = {"prompt_ids": (1, 2), "completion_ids": (3, 4), "logp_sampled": (-1.0, -2.0)} | more
    return Row(view=VIEW, group=group, trajectory=trajectory, step=0, reward=reward, correct=reward > 0,
               format_valid=valid, **given)  # fmt: skip


def episodes(rewards: list[float], lengths: list[int]) -> list[Row]:
    return [row(0, i, r) for i, (r, n) in enumerate(zip(rewards, lengths, strict=True)) for _ in range(n)]


def test_advantages_of_the_spec() -> None:
    one = grpo.advantages(episodes([10, 0, 0, 0], [1, 1, 1, 1]), Args())
    assert one == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    long = episodes([10, 0, 0, 0], [10, 30, 30, 30])
    traj = grpo.advantages(long, Args())
    assert traj[0] == pytest.approx(1.5, abs=1e-5) and traj[-1] == pytest.approx(-0.5, abs=1e-5)
    rows = grpo.advantages(long, Args(adv_scope="rows"))
    assert rows[0] == pytest.approx(2.985, abs=5e-4) and rows[-1] == pytest.approx(-0.3317, abs=5e-5)
    mean = grpo.advantages(long, Args(adv_norm="mean"))
    assert mean[0] == 7.5 and mean[-1] == -2.5


def test_a_group_of_one_and_a_group_without_spread() -> None:
    assert grpo.advantages([row(0, 0, 1.0)], Args()) == pytest.approx([1.0], abs=1e-5)
    assert grpo.advantages(episodes([1, 1], [2, 3]), Args()) == [0.0] * 5
    penalised = [row(0, 0, 0.0, valid=False), row(0, 0, 0.0), row(0, 1, 0.0)]
    assert grpo.advantages(penalised, Args(invalid_penalty=0.1)) == [-0.1, 0.0, 0.0]


def test_groups_do_not_touch() -> None:
    both = [row(1, 0, 5.0), row(0, 1, 1.0), row(1, 2, 0.0), row(0, 3, 0.0)]
    alone = grpo.advantages([both[0], both[2]], Args())
    assert [grpo.advantages(both, Args())[i] for i in (0, 2)] == alone


def test_k3() -> None:
    assert float(grpo.kl_k3(torch.tensor(0.0), torch.tensor(0.1))) == pytest.approx(0.005171, abs=1e-6)
    assert float(grpo.kl_k3(torch.tensor(-1.0), torch.tensor(-1.0))) == 0
    assert float(grpo.kl_k3(torch.tensor(-50.0), torch.tensor(0.0))) == 10


@pytest.mark.parametrize(
    "advantage, ratio, loss",
    [(1, 1.0, -1), (1, 1.5, -1.2), (1, 0.5, -0.5), (-1, 0.5, 0.8), (-1, 1.5, 1.5), (-1, 5.0, 3.0), (-2, 9.0, 6.0)],
)
def test_clipping_and_dual_clip(advantage: float, ratio: float, loss: float) -> None:
    one = row(0, 0, 1.0, completion_ids=(3,), logp_sampled=(-2.0,), advantage=advantage, logp_old=(-2.0,))
    batch = batch_of([one], 1, 0, "cpu")
    got, _ = grpo.policy_loss(torch.tensor([-2.0 + math.log(ratio)]), batch, Args())
    assert float(got) == pytest.approx(loss, rel=1e-6)


class Table:
    """A policy whose token log-probabilities are a free (N,) parameter."""

    def __init__(self, logp: Any):
        self.logp = logp

    def score(self, prompts: Any, completions: Any, temperature: float) -> tuple[Any, Any]:
        return self.logp, -self.logp.exp() * self.logp


def test_gradient_by_finite_differences() -> None:
    rng = np.random.default_rng(0)
    rows = [
        row(0, i, 1.0, completion_ids=(5,) * 3, logp_sampled=tuple(rng.normal(-2, 0.1, 3)),
            advantage=float(rng.normal()), logp_ref=tuple(rng.normal(-2, 0.1, 3)))
        for i in range(4)
    ]  # fmt: skip
    for r in rows:
        r.logp_old = r.logp_sampled
    batch = batch_of(rows, 12, 0, "cpu")
    for name in ("advantage", "logp_old", "logp_sampled", "logp_ref"):
        setattr(batch, name, getattr(batch, name).double())
    args = Args(kl=0.05, entropy=0.01, importance_cap=2.0)
    at = torch.tensor(rng.normal(-2, 0.1, 12), dtype=torch.float64)

    def loss(logp: Any) -> Any:
        return grpo.objective(Table(logp), batch, args)[0]

    assert torch.autograd.gradcheck(loss, (at.requires_grad_(),), eps=1e-6, atol=1e-6)


def test_sums_over_passes_are_the_whole() -> None:
    """Cutting rows into passes changes neither loss nor gradient, as each divides by the step's own token count."""
    rng = np.random.default_rng(1)
    rows = [row(0, i, 1.0, completion_ids=(5,) * (i + 1), logp_sampled=(-1.0,) * (i + 1), advantage=float(rng.normal()))
            for i in range(5)]  # fmt: skip
    for r in rows:
        r.logp_old = r.logp_sampled
    logp = torch.full((15,), -1.1, requires_grad=True)
    whole = grpo.objective(Table(logp), batch_of(rows, 15, 0, "cpu"), Args())[0]
    whole.backward()
    at, parts = 0, 0.0
    piece = torch.full((15,), -1.1, requires_grad=True)
    for some in (rows[:2], rows[2:]):
        n = sum(len(r.completion_ids) for r in some)
        loss = grpo.objective(Table(piece[at : at + n]), batch_of(some, 15, 0, "cpu"), Args())[0]
        loss.backward()
        at, parts = at + n, parts + float(loss.detach())
    assert parts == pytest.approx(float(whole.detach()), rel=1e-6)
    assert torch.allclose(logp.grad, piece.grad)


def test_deal_is_even_and_passes_hold_every_row() -> None:
    part = deal(10, 3, np.random.default_rng(0))
    assert sorted(np.bincount(part)) == [3, 3, 4]
    rows = [row(0, i, 1.0, prompt_ids=(1,) * (i + 1)) for i in range(9)]
    got = list(passes(rows, 12))
    assert sorted(r.trajectory for some in got for r in some) == list(range(9))
    assert all(len(some) * max(len(r.prompt_ids) + 2 for r in some) <= 12 for some in got if len(some) > 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def small(folder: Path, out: Path, **more: Any) -> Args:
    given: dict[str, Any] = {"updates": 2, "tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2, "save_every": 1}
    return Args(model=str(folder), out=str(out), **(given | more))


def test_the_policys_scores_are_what_was_sampled(folder: Path) -> None:
    from seedbench.policy.hf import HFPolicy

    policy = HFPolicy.load(folder)
    said = policy.generate([(1, 5, 9), (7,)], streams=[1, 2], max_new_tokens=6)
    logp, entropy = policy.score([(1, 5, 9), (7,)], [g.completion_ids for g in said])  # type: ignore[union-attr]
    sampled = [x for g in said for x in g.logprobs]  # type: ignore[union-attr]
    assert logp.tolist() == pytest.approx(sampled, abs=1e-5)
    assert (entropy > 0).all() and logp.requires_grad


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lora": {"lora_rank": 4, "kl": 0.1},
    "bf16": {"dtype": "bfloat16", "activation_checkpointing": True, "lr": 1e-4},
    "resample": {"resample": 2, "warmup": 1.0, "max_prompt_tokens": 1500, "epochs": 2, "mini_batch_rows": 3, "kl": 0.1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_killed_run_goes_on_with_the_same_curve(options: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    from seedbench.train import loop
    from seedbench.train.log import read

    whole = grpo.run(small(folder, tmp_path / "whole", updates=3, **options))

    class Killed(Exception):
        pass

    def dies(policy: Any, batch: Any, args: Args) -> Any:
        if len(read(tmp_path / "cut" / "metrics.jsonl")) == 2:
            raise Killed
        return grpo.objective(policy, batch, args)

    cut = small(folder, tmp_path / "cut", updates=3, **options)
    with pytest.raises(Killed):
        loop.train(cut, advantages=grpo.advantages, objective=dies)
    grpo.run(cut, resume=True)

    def curve(out: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in x.items() if not k.endswith("seconds")} for x in read(out / "metrics.jsonl")]

    assert curve(whole) == curve(tmp_path / "cut") and len(curve(whole)) == 3
    assert (whole / "model.safetensors").read_bytes() == (tmp_path / "cut" / "model.safetensors").read_bytes()


def test_two_processes_make_the_update_of_one(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    grpo.run(small(folder, tmp_path / "one", updates=1, mini_batches=2, threads=1))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "seedbench", "train", "grpo", "--model", str(folder), "--out", str(tmp_path / "two"),
               "--updates", "1", "--tasks", "2", "--group", "2", "--max-new-tokens", "8", "--max-steps", "2",
               "--mini-batches", "2", "--threads", "1"]  # fmt: skip
    subprocess.run([*launch, *command], check=True, capture_output=True)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    start = load_file(folder / "model.safetensors")
    assert max(float((one[k] - start[k]).abs().max()) for k in one) > 1e-4
    assert max(float((one[k] - two[k]).abs().max()) for k in one) < 1e-5
    lines = [json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in ("one", "two")]
    assert [line["processes"] for line in lines] == [1, 2]
    assert lines[0]["prompt_digest"] == lines[1]["prompt_digest"]


def test_a_line_holds_what_others_read_and_idle_rows_dilute_nothing(folder: Path, tmp_path: Path) -> None:
    """Rows without advantage are not computed: they stay in the loss's mean and out of every other one."""
    from seedbench.train import loop

    seen: list[int] = []

    def one(rows: Any, args: Args) -> list[float]:
        return [1.0] + [0.0] * (len(rows) - 1)

    def counted(policy: Any, batch: Any, args: Args) -> Any:
        loss, metrics = grpo.objective(policy, batch, args)
        seen.append(len(batch.row))
        return loss, metrics | {"ones": torch.tensor(float(len(batch.row)))}

    loop.train(small(folder, tmp_path / "run", updates=1), advantages=one, objective=counted)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert line["ones"] == 1 and sum(seen) < line["tokens"] and line["entropy"] > 3
    assert line["loss"] == pytest.approx(-sum(seen) / line["tokens"], rel=1e-4) and abs(line["kl"]) < 1e-6
    names = {"update", "success", "reward", "loss", "grad_norm", "kl", "invalid_rate", "episode_steps", "prompt_digest"}
    assert names <= set(line)
