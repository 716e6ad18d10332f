"""The shared loop's options: resampling, LoRA, fp32 masters, recomputation, trackers, recipes, --dry-run."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError, Task
from seedbench.train import memory, recipes
from seedbench.train.args import Args
from tests.tiny import forbid_network, one_sentence, one_torch_thread, tiny_folder, tiny_model

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def small(folder: Path, out: Path, **more: Any) -> Args:
    given: dict[str, Any] = {"updates": 1, "tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2, "save_every": 1}
    return Args(model=str(folder), out=str(out), **(given | more))


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


Won = Callable[[Task, int], bool]


def staged(monkeypatch: pytest.MonkeyPatch, won: Won) -> list[tuple[str, int]]:
    """Let `won(task, trial)` decide each episode; returns what is played, in order."""
    import dataclasses

    from seedbench.train import rollouts

    played: list[tuple[str, int]] = []
    real = rollouts.play

    def play(make: Any, episodes: Any, *args: Any, **more: Any) -> Any:
        played.extend((e.task.id, e.trial) for e in episodes)
        for t in real(make, episodes, *args, **more):
            yield dataclasses.replace(t, success=won(t.task, t.trial))

    monkeypatch.setattr(rollouts, "play", play)
    return played


def test_groups_without_spread_are_replaced(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tasks in training order, the 1st and 3rd are always lost: the 3rd, then the 4th stand in for it."""
    order: list[str] = []

    def won(task: Task, trial: int) -> bool:
        if task.id not in order:
            order.append(task.id)
        return order.index(task.id) not in (0, 2) and trial == 0

    played = staged(monkeypatch, won)
    out = grpo.run(small(folder, tmp_path / "two", resample=2, slots=1))
    assert len(order) == 4 and played == [(name, k) for name in order for k in (0, 1)]
    assert lines(out)[0]["resampled"] == 2 and lines(out)[0]["flat_groups"] == 0
    assert lines(out)[0]["success"] == 2 / 8  # replaced episodes count: the kept groups alone would say 2 / 4
    first = tuple(order)
    order.clear()
    out = grpo.run(small(folder, tmp_path / "one", resample=1, slots=1))
    assert tuple(order) == first[:3] and lines(out)[0]["resampled"] == 1 and lines(out)[0]["flat_groups"] == 0.5
    order.clear()
    out = grpo.run(small(folder, tmp_path / "none", slots=1))
    assert tuple(order) == first[:2] and lines(out)[0]["resampled"] == 0 and lines(out)[0]["flat_groups"] == 0.5


def test_resampling_needs_a_group() -> None:
    with pytest.raises(SeedbenchError) as raised:
        Args(group=1, resample=1)
    one_sentence(raised, "--group")


def test_a_share_of_the_tasks_is_the_same_share_in_every_update(folder: Path) -> None:
    from types import SimpleNamespace

    from seedbench.train.rollouts import _tasks

    def drawn(share: float, seed: int) -> list[str]:
        tasks = [SimpleNamespace(id=str(k)) for k in range(10)]
        args = small(folder, Path("x"), task_share=share, seed=seed)
        run: Any = SimpleNamespace(args=args, exam=SimpleNamespace(tasks={"train": tasks}), cursor=0)
        return [task.id for _ in range(6) for task in _tasks(run, 2)]

    some = drawn(0.55, 0)  # 6 of 10, twice over
    assert len(set(some)) == 6 and sorted(some[:6]) == sorted(some[6:])
    assert set(some) != set(drawn(0.55, 1)) and len(set(drawn(1.0, 0))) == 10
    with pytest.raises(SeedbenchError, match="--task-share is 0"):
        small(folder, Path("x"), task_share=0.0)


def test_an_adapter_begins_as_nothing_and_merges_to_what_it_computes(folder: Path, tmp_path: Path) -> None:
    from seedbench.policy.adapter import add_adapter, has_adapter, merged, without_adapter
    from seedbench.policy.hf import HFPolicy

    policy, plain = HFPolicy.load(folder), HFPolicy.load(folder)
    add_adapter(policy.model, rank=2, alpha=4.0, seed=1)
    asked: Any = ([(1, 5, 9), (7, 8)], [(3, 4), (5,)])
    before = plain.logprobs(*asked)
    assert policy.logprobs(*asked) == before and has_adapter(policy.model) and not has_adapter(plain.model)
    trained = {n: p for n, p in policy.model.named_parameters() if p.requires_grad}
    assert trained and all(".lora_" in n for n in trained)
    assert sum(p.numel() for p in trained.values()) == memory.adapter_parameters(plain.model, 2)
    with torch.no_grad():
        for i, weight in enumerate(trained.values()):
            weight += 0.05 * (1 + i % 3)
    after = policy.logprobs(*asked)
    assert abs(after[0][0] - before[0][0]) > 1e-3
    with without_adapter(policy.model):
        assert policy.logprobs(*asked) == before
    assert policy.logprobs(*asked) == after
    policy.save(tmp_path / "merged", merged(policy.model, policy.model.state_dict()))
    again = HFPolicy.load(tmp_path / "merged").logprobs(*asked)
    assert [x for r in again for x in r] == pytest.approx([x for r in after for x in r], abs=1e-4)


def test_small_steps_of_bf16_weights_are_not_lost() -> None:
    """400 steps of 1e-5 are 4e-3; each alone rounds to nothing beside a bf16 weight of 1."""
    from seedbench.train.optimizer import Optimizer

    layer = torch.nn.Linear(4, 1, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = Optimizer(layer, lr=0.0, weight_decay=0.0)
    for _ in range(400):
        layer(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.absorb()
        optimizer.step(1e-5)
    assert optimizer.masters["weight"].tolist()[0] == pytest.approx([1 - 4e-3] * 4, abs=1e-4)
    assert layer.weight.float().tolist()[0] == [1 - 2.0**-8] * 4  # the nearest bf16 number


def test_recomputed_layers_give_the_same_gradient() -> None:
    from seedbench.train.shard import layers, recompute

    found = []
    for again in (False, True):
        model = tiny_model(320)
        calls: list[int] = []
        for layer in layers(model):
            layer.self_attn.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        if again:
            recompute(model)
        model(torch.arange(12).reshape(2, 6)).logits.logsumexp(-1).sum().backward()
        found.append(({n: p.grad for n, p in model.named_parameters()}, len(calls)))
        with torch.no_grad():
            assert len(model(torch.arange(4)[None], use_cache=True).past_key_values.layers) == 2
    (plain, once), (cheap, twice) = found
    assert (once, twice) == (2, 4) and all(torch.equal(plain[n], cheap[n]) for n in plain)


def test_tensorboard_holds_the_curve_of_a_resumed_run_once(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    grpo.run(small(folder, out, updates=3, track="tensorboard"))
    (out / "model.safetensors").unlink()  # as if killed in the last update, when
    (out / "checkpoints" / "000002" / "state.json").unlink()  # that one was being written
    grpo.run(small(folder, out, updates=3, track="tensorboard"), resume=True)
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    for name in ("success", "loss", "grad_norm"):
        told = events.Scalars(name)
        assert [e.step for e in told] == [1, 2, 3]
        assert [e.value for e in told] == pytest.approx([line[name] for line in lines(out)], abs=1e-6)


def test_a_tracker_that_is_not_here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SeedbenchError) as raised:
        grpo.run(small(folder, tmp_path / "run", track="wandb"))
    one_sentence(raised, "pip install wandb")


def test_recipes_that_ship_can_be_read_and_hold_the_papers_values() -> None:
    known = {n: Args.load(recipes.find(n), "--recipe") for n in recipes.names() if n.startswith("grpo-")}
    for model in ("qwen2.5-3b", "qwen2.5-7b", "qwen3-1.7b"):
        a, w, s = (known[f"grpo-{model}-{env}"] for env in ("alfworld", "webshop", "searchqa"))
        assert [x.tasks for x in (a, w, s)] == [16, 16, 128] and {x.group for x in (a, w, s)} == {8}
        assert [x.kl for x in (a, w, s)] == [0.01, 0.01, 0.001] and {x.lr for x in (a, w, s)} == {1e-6}
        assert [x.mini_batch_rows for x in (a, w, s)] == [256, 64, 512] and w.adv_norm == "mean"
        assert [x.max_prompt_tokens for x in (a, w, s)] == [2048, 4096, 4096]
        assert {x.thinking for x in (a, w, s)} == {model != "qwen3-1.7b"}
        assert [(x.max_steps, x.history) for x in (a, w, s)] == [(30, 5), (15, 2), (4, 4)]
        assert [x.reward_scale for x in (a, w, s)] == [10, 10, 1]
    assert known["grpo-lora-alfworld"].lora_rank and known["grpo-laptop"].model == "tiny"
    with pytest.raises(SeedbenchError) as raised:
        recipes.find("grpo-nothing")
    one_sentence(raised, "grpo-laptop")


def test_dry_run_says_what_it_takes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand for the tiny model: 2 layers, hidden 48, ffn 96, 4 heads and 2 kv heads of 12."""
    from seedbench.train.dry import describe

    forbid_network(monkeypatch)
    model = tiny_model(320)
    P = model.num_parameters()
    args = Args(slots=4, max_prompt_tokens=100, max_new_tokens=28, token_budget=1000, kl=0.1)
    got = memory.estimate(args, P, P, False, model.config)
    assert got["weights"] == got["reference model"] == 4 * P and got["AdamW"] == 8 * P and got["gradients"] == 4 * P
    assert got["KV cache"] == 2 * 4 * 2 * 24 * 128 * 4
    assert got["activations"] == 1000 * 2 * 4 * (8 * 48 + 2 * 48 + 2 * 24 + 3 * 96)
    assert got["logits"] == 12 * 320 * 1000 * 28 / 128
    half = memory.estimate(args, P, P, True)
    assert (half["weights"], half["masters"], half["gradients"], half["AdamW"]) == (2 * P, 4 * P, 6 * P, 8 * P)
    assert "reference model" not in memory.estimate(Args(lora_rank=4, kl=0.1), P, 10, True)
    said = describe(Args(model=str(folder), lora_rank=4, out="x"), "grpo")
    assert f"{memory.adapter_parameters(model, 4) / 1e6:.2f} M trained" in said and "KV cache" in said
    sizes = {"grpo-qwen2.5-3b-alfworld": 3085.94, "grpo-qwen2.5-7b-webshop": 7615.62,
             "grpo-qwen3-1.7b-searchqa": 1720.57, "grpo-lora-alfworld": 3085.94}  # fmt: skip
    for name, millions in sizes.items():  # as the models' cards state them: 3.09, 7.61 and 1.7 billion
        assert f"{millions} M parameters" in describe(Args.load(recipes.find(name)), "grpo")
    away = dataclasses.replace(Args.load(recipes.find("grpo-qwen2.5-3b-alfworld")), model="some/other-model")
    with pytest.raises(SeedbenchError) as raised:
        describe(away, "grpo")
    one_sentence(raised, "some/other-model", "hf download", "--parameters")
    told = describe(away, "grpo", 3.09e9)
    assert (
        "3090.00 M parameters" in told and "not here; at least" in told and f"weights {2 * 3.09e9 / 2**30:.2f}" in told
    )
