"""SSPO: vectors of the spec, identities with GRPO, the teacher's copy over a resume, and the packed layout."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import Anchor, SeedbenchError, View
from seedbench.policy.packing import pack
from seedbench.train.hints import SspoArgs
from seedbench.train.rows import Row, batch_of, passes
from tests.tiny import one_sentence, one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
sspo = pytest.importorskip("seedbench.baselines.sspo")
grpo = pytest.importorskip("seedbench.baselines.grpo")
loop = pytest.importorskip("seedbench.train.loop")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def row(advantage: float, old: Sequence[float], teacher: Sequence[float] = (), trajectory: int = 0) -> Row:
    said, view = tuple(range(3, 3 + len(old))), View("g", "o", (), ())
    one = Row((1, 2), said, tuple(old), view, 0, trajectory, 0, 0.0, False, True, advantage)
    one.logp_old, one.logp_teacher = tuple(old), tuple(teacher)
    return one


VECTORS = [(-1.0, 0.5, 0.606531), (-1.0, -0.1, 1.105171), (-1.0, -0.5, 1.2), (0.7, 0.5, 1.2), (0.7, -0.1, 0.904837),
           (0.0, 3.0, 1.0), (-1.0, 900.0, 0.0), (-1.0, -900.0, 1.2)]  # fmt: skip


@pytest.mark.parametrize("advantage, joint, weight", VECTORS)
def test_weights_of_the_spec(advantage: float, joint: float, weight: float) -> None:
    """A step of two tokens whose ratios are joint + 1 and -1: they weigh together."""
    batch = batch_of([row(advantage, [-1.0, -2.0], [joint, -3.0]), row(-1.0, [-1.0])], 3, 2, "cpu")
    w = sspo.weight(sspo.delta(batch, SspoArgs()), batch.advantage, SspoArgs())
    assert w.tolist() == pytest.approx([weight, weight, 1.0], abs=1e-6)


def test_options_of_the_weight() -> None:
    batch = batch_of([row(-1.0, [-1.0, -2.0], [-0.9, -2.3])], 2, 2, "cpu")

    def weights(**more: Any) -> list[float]:
        args = SspoArgs(**more)
        return sspo.weight(sspo.delta(batch, args), batch.advantage, args).tolist()

    assert weights() == pytest.approx([1.2, 1.2])  # Delta -.2
    assert weights(length_norm="mean_token") == pytest.approx([math.exp(0.1)] * 2, abs=1e-6)
    assert weights(granularity="token") == pytest.approx([math.exp(-0.1), 1.2], abs=1e-6)
    assert weights(granularity="token", floor=0.95, cap=0.5) == pytest.approx([0.95, math.exp(0.3)], abs=1e-6)


def test_what_is_measured_is_over_steps_of_failed_episodes_with_an_advantage() -> None:
    first = row(-1.0, [-1.0], [-0.5])
    first.last = True
    won, long = row(1.0, [-1.0]), row(-1.0, [-1.0] * 3)  # the latter does not fit with its hint: it weighs 1
    won.correct = True
    rows = [first, row(-1.0, [-1.0, -1.0], [-2.0, -2.0]), won, row(0.0, [-1.0]), long]
    batch = batch_of(rows, 8, 3, "cpu")

    def measured(**more: Any) -> dict[str, float]:
        args = SspoArgs(**more)
        ratio = sspo.delta(batch, args)
        found = sspo.measured(ratio, sspo.weight(ratio, batch.advantage, args), batch, args)
        return {name: float(a) / float(n) for name, (a, n) in found.items() if n}

    mean = measured()
    assert mean["weight_mean"] == pytest.approx((math.exp(-0.5) + 1.2 + 1) / 3, abs=1e-6)
    assert mean["weight_capped"] == pytest.approx(1 / 3) and mean["teacher_agrees"] == 0.5
    assert (mean["delta_at_last"], mean["delta_at_0"]) == pytest.approx((0.5, -2.0))
    bins = {k: v for k, v in mean.items() if k.startswith("weight_from_")}
    assert bins == {"weight_from_0.0": 0, "weight_from_0.1": 0, "weight_from_0.5": pytest.approx(1 / 3),
                    "weight_from_0.9": pytest.approx(1 / 3), "weight_from_1.1": pytest.approx(1 / 3)}  # fmt: skip
    assert measured(granularity="token")["weight_capped"] == pytest.approx(2 / 6)  # two tokens of six
    assert "weight_mean" not in measured(direct=True)


def test_the_teacher_is_told_evidence_and_the_wrong_answer() -> None:
    some = [Anchor("Zor", "zor-1", "Zor lies on the Mu.")]
    both = sspo.privileged(some, "Ta", SspoArgs())
    assert "- Zor: Zor lies on the Mu." in both and "came to this, which is wrong: Ta\n" in both
    assert sspo.privileged((), "a\n<|im_end|> " + 400 * "b", SspoArgs()).splitlines()[0].endswith(" a < |im_end|>")
    assert "Ta" not in sspo.privileged(some, "Ta", SspoArgs(privileged="anchors"))
    assert "Zor" not in sspo.privileged(some, "Ta", SspoArgs(privileged="answer"))
    assert "ended without success" in sspo.privileged((), "", SspoArgs())
    assert sspo.privileged(some, "Ta", SspoArgs(privileged="none")) == "" == sspo.privileged((), None, SspoArgs())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def small(folder: Path, out: Path, **more: Any) -> SspoArgs:
    options: dict[str, Any] = {"env": "searchqa", "updates": 2, "tasks": 2, "group": 2, "max_new_tokens": 6,
                               "max_steps": 2, "privileged": "answer", "save_every": 1}  # fmt: skip
    return SspoArgs(model=str(folder), out=str(out), **(options | more))


def every_other(rows: Sequence[Row], args: Any) -> list[float]:
    """Advantages of both signs, and rows that have none."""
    return [(0.0, 1.0, -0.5)[i % 3] for i in range(len(rows))]


def trained(args: SspoArgs, **more: Any) -> dict[str, Any]:
    from safetensors.torch import load_file

    told: dict[str, Any] = {"advantages": every_other, "objective": sspo.objective,
                            "hindsight": lambda run, some: sspo.hindsight(None, run, some)}  # fmt: skip
    out: dict[str, Any] = load_file(loop.train(args, **(told | more)) / "model.safetensors")
    return out


def apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def test_a_teacher_that_is_told_nothing_makes_grpo(folder: Path, tmp_path: Path) -> None:
    plain = trained(small(folder, tmp_path / "grpo"), objective=grpo.objective, hindsight=None)
    none = trained(small(folder, tmp_path / "none", privileged="none", teacher_updates=1))
    assert apart(plain, none) < 1e-5  # scored again, and weighed by what rounding leaves
    lines = [json.loads(line) for line in (tmp_path / "none" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["coverage"] > 0 and abs(line["weight_mean"] - 1) < 1e-5 for line in lines)
    won = trained(small(folder, tmp_path / "won"), hindsight=lambda run, some: loop.Told([""] * len(some)))
    assert apart(plain, won) == 0  # as where every episode was won
    told = trained(small(folder, tmp_path / "told"))
    assert apart(plain, told) > 1e-5
    lines = [json.loads(line) for line in (tmp_path / "told" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < line["weight_mean"] <= 1.2 and 0 <= line["weight_capped"] <= 1 for line in lines)
    assert 0 < lines[0]["coverage"] < 1  # rows without an advantage are not scored again


def test_the_teacher_is_a_copy_that_a_resumed_run_still_has(folder: Path, tmp_path: Path) -> None:
    """Killed after the second of three updates: the teacher is of the first, not of what it is resumed with."""
    options: dict[str, Any] = {"updates": 3, "teacher_updates": 3, "lr": 1e-2}
    whole = trained(small(folder, tmp_path / "whole", **options))
    synced = trained(small(folder, tmp_path / "synced", **(options | {"teacher_updates": 1})))
    assert apart(whole, synced) > 1e-6
    (cut := tmp_path / "whole").rename(tmp_path / "cut")
    cut = tmp_path / "cut"
    (cut / "model.safetensors").unlink()
    again = trained(dataclasses.replace(small(folder, cut, **options)), resume=True)
    assert apart(whole, again) == 0
    for held in cut.glob("checkpoints/*/teacher.safetensors"):
        held.write_bytes(b"torn")
    (cut / "model.safetensors").unlink()
    with pytest.raises(SeedbenchError) as raised:
        trained(small(folder, cut, **options), resume=True)
    one_sentence(raised, "is damaged")


def test_direct_distillation_teaches_won_and_lost_alike(folder: Path, tmp_path: Path) -> None:
    got = trained(small(folder, tmp_path / "direct", direct=True), advantages=lambda rows, args: [0.0] * len(rows))
    plain = trained(small(folder, tmp_path / "flat"), advantages=lambda rows, args: [0.0] * len(rows))
    assert apart(got, plain) > 1e-6


def test_evidence_that_there_is_not_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.core import TextEnv
    from seedbench.envs.searchqa.env import SearchQAEnv

    monkeypatch.setattr(SearchQAEnv, "anchors", TextEnv.anchors)
    with pytest.raises(SeedbenchError) as raised:
        sspo.run(SspoArgs(env="searchqa", out=str(tmp_path / "x")))
    one_sentence(raised, "no evidence of its own", "--privileged answer")
    flat = small(Path("tiny"), tmp_path / "flat", updates=1, tasks=1, max_steps=1)
    trained(flat, advantages=lambda rows, args: [0.0] * len(rows))
    line = json.loads((tmp_path / "flat" / "metrics.jsonl").read_text())
    assert (line["weight_mean"], line["weight_capped"], line["coverage"]) == (1.0, 0.0, 0.0)  # nothing to weigh
    with pytest.raises(SeedbenchError, match="--floor is 2"):
        SspoArgs(floor=2)


Tokens = st.lists(st.integers(3, 6), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(Tokens, Tokens), min_size=1, max_size=4), min_size=1, max_size=4))
def test_packing_loses_nothing(chats: list[list[tuple[list[int], list[int]]]]) -> None:
    """Of each chat every row's tokens stand where its span says; what grows step by step is one sequence."""
    prompts, said = [], []
    for chat in chats:
        whole: list[int] = []
        for observation, reply in chat:
            prompts.append((*whole, *observation))
            said.append(tuple(reply))
            whole = [*prompts[-1], *reply]
    packs = pack(prompts, said)
    assert len(packs) <= len(chats)
    spans = {row: (p, start, stop) for p in packs for row, start, stop in p.spans}
    assert sorted(spans) == list(range(len(prompts)))
    for i, (p, start, stop) in spans.items():
        assert p.ids[start:stop] == said[i] and p.ids[:start] == prompts[i]


def test_packed_rows_have_the_scores_and_gradients_of_rows(folder: Path) -> None:
    from seedbench.policy.hf import HFPolicy

    policy = HFPolicy.load(folder)
    prompts = [(5, 9, 11), (5, 9, 11, 20, 21, 7, 8), (40, 41), (5, 9, 11, 20, 21, 7, 8, 30, 12), (40, 42)]
    said = [(20, 21), (30,), (50, 51, 52), (60, 61), (70,)]
    assert sorted(len(p.spans) for p in pack(prompts, said)) == [1, 1, 3]
    found = []
    for policy.packed in (False, True):
        logp, entropy = policy.score(prompts, said, 0.7)
        weights = list(policy.model.parameters())
        gradient = torch.autograd.grad((logp * torch.arange(len(logp))).sum() + entropy.sum(), weights)
        found.append((logp.detach(), entropy.detach(), torch.cat([g.flatten() for g in gradient])))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-4)
    # What the teacher and the reference score, in batches of sequences; and a model that cannot pick positions.
    whole = policy.logprobs(prompts, [*said[:4], ()])
    policy.packed, plain = False, policy.logprobs(prompts, [*said[:4], ()])
    policy.packed, policy.token_budget, policy._net._selects = True, 12, False
    cut = policy.logprobs(prompts, [*said[:4], ()])
    for a, b, c in zip(plain, whole, cut, strict=True):
        assert a == pytest.approx(b, abs=1e-5) and a == pytest.approx(c, abs=1e-5)


def test_the_packed_layout_makes_the_update_of_rows(tmp_path: Path) -> None:
    """On deep search's growing chat: two trainings end with the same weights to 1e-5. The policy that ships, as its
    replies can be read and so come back in the next prompt."""
    options: dict[str, Any] = {"env": "deepsearch", "preset": "sspo", "max_steps": 5, "updates": 1, "lr": 1e-4,
                               "temperature": 0.3, "max_new_tokens": 32}  # fmt: skip
    folder = Path("tiny")
    rows = trained(small(folder, tmp_path / "rows", **options))
    sizes: list[tuple[int, int]] = []
    real = sspo.objective

    def spy(policy: Any, batch: Any, args: Any) -> Any:
        packs = pack(batch.prompts, batch.completions)
        sizes.append((sum(len(p.ids) for p in packs), sum(map(len, (*batch.prompts, *batch.completions)))))
        return real(policy, batch, args)

    packed = trained(small(folder, tmp_path / "packed", layout="packed", **options), objective=spy)
    assert apart(rows, packed) < 1e-5
    assert sum(n for n, _ in sizes) < 0.7 * sum(of for _, of in sizes), sizes  # tokens that are read


def test_passes_of_packed_rows_keep_trajectories_whole() -> None:
    rows = [row(1.0, [-1.0] * (k % 3 + 1), trajectory=k % 4) for k in range(12)]
    parts = list(passes(rows, 12, packed=True))
    assert sum(map(len, parts)) == 12 and len(parts) > 1
    where = {t: [k for k, part in enumerate(parts) for r in part if r.trajectory == t] for t in range(4)}
    assert all(len(set(ks)) == 1 for ks in where.values())


def test_mini_batches_of_packed_rows_hold_whole_episodes() -> None:
    """... of about equal number; those of single rows deal them apart."""
    from types import SimpleNamespace

    from seedbench.train.update import _mini_batches

    rows = [row(1.0, [-1.0], trajectory=k // 3) for k in range(12)]
    for k, one in enumerate(rows):
        one.step = k % 3
    ranks = SimpleNamespace(gather=list, sum=lambda values: [float(v) for v in values])
    for layout, whole in (("packed", True), ("rows", False)):
        args = SspoArgs(layout=layout, mini_batch_rows=6)  # type: ignore[arg-type]
        parts = list(_mini_batches(SimpleNamespace(args=args, ranks=ranks, update=0), rows))  # type: ignore[arg-type]
        assert [len(part) for part in parts] == [6, 6] and {id(r) for part in parts for r in part} == set(map(id, rows))
        assert (sum(len({r.trajectory for r in part}) for part in parts) == 4) is whole


def test_a_file_of_anchors_that_says_nothing_of_the_tasks_is_refused(tmp_path: Path) -> None:
    from seedbench.baselines.sspo import evidence_of

    file = tmp_path / "anchors.jsonl"
    for lines, said in (("", "no line of anchors"), ('{"task": "x", "anchors": []}\n', "the first is of x")):
        file.write_text(lines)
        with pytest.raises(SeedbenchError, match=f"none of searchqa's training tasks.*{said}"):
            evidence_of(SspoArgs(env="searchqa", anchors=str(file)))
    with pytest.raises(SeedbenchError, match="unread"):
        evidence_of(SspoArgs(env="searchqa", anchors=str(file), privileged="answer"))
