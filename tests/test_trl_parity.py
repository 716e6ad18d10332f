"""Our loss beside that of a real TRL GRPOTrainer on the same model and the same tensors, value and gradient."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from seedbench.core import View
from seedbench.train.args import Args
from seedbench.train.rows import Row, batch_of
from tests.tiny import one_torch_thread, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("trl", reason="trl is not installed: pip install -e '.[train]'")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)
CAP = 1.1  # of the truncated importance correction


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A GRPOTrainer on the tiny Qwen2; its settings are changed from test to test, its model never is."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = tiny_tokenizer()
    config = GRPOConfig(
        str(tmp_path_factory.mktemp("trl")), use_cpu=True, bf16=False, report_to="none", num_generations=2,
        per_device_train_batch_size=2, gradient_accumulation_steps=1, temperature=0.7, max_completion_length=9,
        gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    return GRPOTrainer(
        model=tiny_model(len(tokenizer)),
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "go"}] * 2),
    )


@dataclass
class Case:
    """Rows with log-probabilities of an older policy, a reference and a sampler, all near the model's own."""

    rows: list[Row]
    per_token: np.ndarray  # (N,) advantages that differ within a row
    inputs: dict[str, Any]  # the same for TRL: (B, T) tensors, prompts padded left, completions right

    @property
    def tokens(self) -> int:
        return sum(len(row.completion_ids) for row in self.rows)


def case(trainer: Any, sizes: tuple[int, ...], seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    policy = policy_of(trainer)
    rows = []
    for i, n in enumerate(sizes):
        prompt, said = (tuple(int(x) for x in rng.integers(3, 300, k)) for k in (4 + 3 * i, n))
        now = np.array(policy.logprobs([prompt], [said], temperature=trainer.temperature)[0])
        old, ref, drawn = (tuple(now + rng.normal(0, 0.4, n)) for _ in range(3))
        rows.append(Row(prompt, said, drawn, View("g", "o", (), ()), 0, i, 0, 1.0, True, True,
                        float(rng.normal(0, 2)), old, ref))  # fmt: skip
    case = Case(rows, rng.normal(0, 2, sum(sizes)), {})
    case.inputs = {
        "prompt_ids": padded([r.prompt_ids for r in rows], left=True),
        "prompt_mask": padded([(1,) * len(r.prompt_ids) for r in rows], left=True),
        "completion_ids": padded([r.completion_ids for r in rows]),
        "completion_mask": padded([(1,) * n for n in sizes]),
        "old_per_token_logps": padded([r.logp_old for r in rows]),
        "ref_per_token_logps": padded([r.logp_ref for r in rows]),
        "advantages": torch.tensor([r.advantage for r in rows], dtype=torch.float32),
        "num_items_in_batch": torch.tensor(float(sum(sizes))),
    }
    ratio = (case.inputs["old_per_token_logps"] - padded([r.logp_sampled for r in rows])).exp()
    case.inputs["importance_sampling_ratio"] = ratio.clamp(max=CAP)
    return case


def padded(rows: list[Any], left: bool = False) -> Any:
    kind = torch.long if isinstance(rows[0][0], int) else torch.float32
    whole = torch.zeros(len(rows), max(map(len, rows)), dtype=kind)
    for i, row in enumerate(rows):
        at = slice(-len(row), None) if left else slice(0, len(row))
        whole[i, at] = torch.tensor(row, dtype=kind)
    return whole


def policy_of(trainer: Any) -> Any:
    from seedbench.policy.hf import HFPolicy

    return HFPolicy(trainer.model, trainer.processing_class)


def set_trainer(trainer: Any, args: Args, kind: str) -> None:
    """Their names for our settings."""
    trainer.loss_type = kind
    trainer.epsilon_low = args.clip
    trainer.epsilon_high = args.clip if args.clip_high is None else args.clip_high
    trainer.args.delta = args.dual_clip or None  # a ratio of at most delta costs a negative advantage the same
    trainer.beta = args.kl
    trainer.args.use_bias_correction_kl = False  # TRL would weigh the KL term by the ratio, which the papers do not
    trainer.entropy_coef, trainer._entropy_bonus_enabled = args.entropy, args.entropy > 0
    trainer.use_vllm = args.importance_cap > 0  # TRL corrects what vLLM sampled, and nothing else
    trainer.vllm_importance_sampling_correction = True


def value_and_gradient(model: Any, loss: Any) -> tuple[float, Any]:
    model.zero_grad()
    loss.backward()
    return float(loss.detach()), torch.cat([p.grad.flatten() for p in model.parameters()])


def theirs(trainer: Any, inputs: dict[str, Any]) -> tuple[float, Any]:
    trainer.model.eval()
    return value_and_gradient(trainer.model, trainer._compute_loss(trainer.model, inputs))


def ours(trainer: Any, some: Case, args: Args, advantage: Any = None) -> tuple[float, Any]:
    policy = policy_of(trainer)
    batch = batch_of(some.rows, some.tokens, 0, "cpu")
    if advantage is not None:
        batch.advantage = advantage
    return value_and_gradient(trainer.model, grpo.objective(policy, batch, args)[0])


def agree(one: tuple[float, Any], other: tuple[float, Any], factor: float = 1.0) -> None:
    assert one[0] == pytest.approx(other[0] * factor, abs=1e-6) and abs(one[0]) > 1e-3
    size = float(one[1].norm())
    assert float((one[1] - other[1] * factor).norm()) < 1e-5 * size and size > 1e-2  # fp32, in another order of sums


SETTINGS: dict[str, dict[str, float]] = {
    "plain": {"dual_clip": 0.0},
    "clip-higher": {"dual_clip": 0.0, "clip_high": 0.28},
    "dual clip": {"dual_clip": 1.4},
    "KL": {"dual_clip": 0.0, "kl": 0.3},
    "all": {"dual_clip": 1.4, "clip": 0.1, "clip_high": 0.3, "kl": 0.3, "entropy": 0.05, "importance_cap": CAP},
}


@pytest.mark.parametrize("kind", ["dapo", "bnpo"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("per_token", [False, True], ids=["(B,)", "(B,T)"])
def test_token_mean(trainer: Any, name: str, kind: str, per_token: bool) -> None:
    """dapo divides by the tokens of the whole step, bnpo by those of the batch; here the batch is the step."""
    args = Args(temperature=0.7, **SETTINGS[name])  # type: ignore[arg-type]
    set_trainer(trainer, args, kind)
    some = case(trainer, (5, 9, 1, 7))
    advantage = None
    if per_token:
        some.inputs["advantages"] = padded(np.split(some.per_token, np.cumsum([5, 9, 1])))
        advantage = torch.tensor(some.per_token, dtype=torch.float32)
    agree(ours(trainer, some, args, advantage), theirs(trainer, some.inputs))


def test_every_branch_of_the_clip_is_taken(trainer: Any) -> None:
    """The vectors above would prove little if no ratio left the interval, on either side and for either sign."""
    some = case(trainer, (5, 9, 1, 7))
    batch = batch_of(some.rows, some.tokens, 0, "cpu")
    now, _ = policy_of(trainer).score(batch.prompts, batch.completions, 0.7)
    ratio, advantage = (now - batch.logp_old).exp(), torch.tensor(some.per_token)
    for sign in (-1, 1):
        of = ratio[advantage * sign > 0]
        assert (of < 0.8).any() and (of > 1.28).any() and ((of > 0.8) & (of < 1.2)).any()
    assert ((ratio > 1.4) & (advantage < 0)).any()
    correction = (batch.logp_old - batch.logp_sampled).exp()
    assert (correction > CAP).any() and (correction < CAP).any()


def test_means_over_rows_and_over_a_constant(trainer: Any) -> None:
    """grpo is the mean of the rows' means, the same where rows are equally long; dr_grpo divides by a constant."""
    args = Args(temperature=0.7, dual_clip=0.0, clip_high=0.28, kl=0.1)
    set_trainer(trainer, args, "grpo")
    even = case(trainer, (6, 6, 6))
    agree(ours(trainer, even, args), theirs(trainer, even.inputs))
    uneven = case(trainer, (2, 9, 4))
    assert abs(ours(trainer, uneven, args)[0] - theirs(trainer, uneven.inputs)[0]) > 1e-3
    set_trainer(trainer, args, "dr_grpo")
    agree(theirs(trainer, uneven.inputs), ours(trainer, uneven, args), uneven.tokens / (3 * 9))
