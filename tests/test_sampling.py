"""Sampling by hand-computed values, and the decode loop on a model that says a script."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[train]'")

from seedbench.core import Sampling, SeedbenchError, stream  # noqa: E402
from seedbench.policy.decoding import Generation, decode  # noqa: E402
from seedbench.policy.prefill import by_budget  # noqa: E402
from seedbench.policy.sampling import draw, log_distribution, uniforms  # noqa: E402
from tests.tiny import one_sentence  # noqa: E402


def test_draw_is_the_inverse_of_the_cumulative_sum() -> None:
    logp = torch.tensor([[0.1, 0.2, 0.0, 0.7]], dtype=torch.float64).log().repeat(7, 1)
    u = torch.tensor([0.0, 0.0999, 0.1001, 0.2999, 0.3001, 0.99, 1 - 2**-53], dtype=torch.float64)
    assert draw(logp, u).tolist() == [0, 0, 1, 1, 3, 3, 3]


def test_draw_never_picks_a_token_without_mass() -> None:
    logp = torch.tensor([[-float("inf"), 0.0, -float("inf")]])
    for u in (0.0, 0.5, 1 - 2**-53):
        assert draw(logp, torch.tensor([u], dtype=torch.float64)).item() == 1


def test_draws_follow_the_distribution() -> None:
    p = np.array([0.05, 0.15, 0.3, 0.02, 0.48])
    n = 20_000
    logp = torch.tensor(p).log().float().repeat(n, 1)
    u = torch.from_numpy(uniforms([stream("chi", i) for i in range(n)], 1)[:, 0])
    counts = np.bincount(draw(logp, u).numpy(), minlength=5)
    assert stats.chisquare(counts, p * n).pvalue > 1e-3


def test_each_row_of_uniforms_is_its_own_stream() -> None:
    whole = uniforms([7, 2**53 - 1, 7], 5)
    assert (whole[0] == whole[2]).all() and (whole[0] != whole[1]).all()
    assert (uniforms([2**53 - 1], 3)[0] == whole[1, :3]).all()


def test_top_p_by_hand() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    kept = log_distribution(logits, 1.0, 0.75)[0].exp()[0]  # 0.4 + 0.3 = 0.7 falls short, so 0.2 crosses
    np.testing.assert_allclose(kept, [0, 4 / 9, 2 / 9, 3 / 9], atol=1e-6)
    np.testing.assert_allclose(log_distribution(logits, 1.0, 0.65)[0].exp()[0], [0, 4 / 7, 0, 3 / 7], atol=1e-6)
    np.testing.assert_allclose(log_distribution(logits, 1.0, 1e-9)[0].exp()[0], [0, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(log_distribution(logits, 1.0, 1.0)[0].exp()[0], [0.1, 0.4, 0.2, 0.3], atol=1e-6)


def test_temperature_comes_before_top_p() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    p = np.array([0.1, 0.4, 0.2, 0.3]) ** 2
    p /= p.sum()  # at temperature 1/2: 0.033, 0.533, 0.133, 0.3, so 0.75 needs two tokens, not three
    np.testing.assert_allclose(log_distribution(logits, 0.5, 1.0)[0].exp()[0], p, atol=1e-6)
    np.testing.assert_allclose(log_distribution(logits, 0.5, 0.75)[0].exp()[0], [0, 16 / 25, 0, 9 / 25], atol=1e-6)


def test_extreme_temperatures_stay_finite() -> None:
    logits = torch.tensor([[3.0, 80.0, -5.0]])
    cold, fine = log_distribution(logits, 1e-30)
    assert fine.all() and cold.exp().tolist() == [[0.0, 1.0, 0.0]]
    np.testing.assert_allclose(log_distribution(logits, 1e30)[0].exp()[0], [1 / 3] * 3, atol=1e-6)


@pytest.mark.parametrize("temperature", [1e-37, 1e-40, 1e-46, 5e-324, 1e39, 1.7e308])
def test_temperatures_that_are_no_fp32_numbers(temperature: float) -> None:
    logits = torch.tensor([[3.0, 80.0, -5.0, -float("inf")], [80.0, 80.0, 0.0, 0.0]])
    logp, fine = log_distribution(logits, temperature)
    assert fine.all() and not logp.isnan().any()
    cold = [[0.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    hot = [[1 / 3, 1 / 3, 1 / 3, 0.0], [0.25] * 4]
    np.testing.assert_allclose(logp.exp(), cold if temperature < 1 else hot, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_unusable_rows_are_told_apart(bad: float) -> None:
    masked = -float("inf")
    logits = torch.tensor([[0.0, 1.0, masked], [0.0, bad, 1.0], [masked, masked, masked]])
    assert log_distribution(logits, 1.0, 0.9)[1].tolist() == [True, False, False]


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.1}])
def test_sampling_settings_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(SeedbenchError) as e:
        Sampling(**wrong)
    one_sentence(e)


def test_budget_counts_padding_and_serves_every_row() -> None:
    lengths = [50, 20, 20, 9, 9, 9, 1]
    parts = list(by_budget(lengths, 40))
    assert [(p.start, p.stop) for p in parts] == [(0, 1), (1, 3), (3, 7)]
    assert list(by_budget([], 40)) == []


class Script:
    """A model that says given tokens: logits of row r at new token t put all mass on script[r][t]."""

    def __init__(self, script: list[list[int]], vocabulary: int = 8):
        self.script, self.vocabulary = script, vocabulary
        self.batches: list[int] = []
        self.model = self
        self.device = torch.device("cpu")
        self.rows = list(range(len(script)))
        self.t = 0

    def new_cache(self) -> Script:
        return self

    def mergeable(self) -> bool:
        return False

    def batch_select_indices(self, index: Any) -> None:
        self.rows = [self.rows[i] for i in index.tolist()]

    def logits(self, ids: Any, mask: Any, cache: Any) -> Any:
        assert len(ids) == len(mask) == len(self.rows)
        self.batches.append(len(ids))
        out = torch.full((len(ids), 1, self.vocabulary), -30.0)
        for i, row in enumerate(self.rows):
            token = self.script[row][self.t]
            out[i, 0, token if token >= 0 else 0] = 30.0 if token >= 0 else float("nan")
        self.t += 1
        return out


def test_rows_leave_as_they_finish() -> None:
    net: Any = Script([[4, 5, 1], [3, 4, 5, 6, 7], [2], [6, -1], [5, 5, 5, 5, 1]])
    said = decode(net, [[3 + i] for i in range(5)], None, Sampling(0.0, 1.0, 5), frozenset({1, 2}), 0, 100)
    assert net.batches == [5, 4, 3, 2, 2]
    ends = [(g.completion_ids, g.finish_reason) if isinstance(g, Generation) else type(g) for g in said]
    assert ends == [
        ((4, 5, 1), "stop"), ((3, 4, 5, 6, 7), "length"), ((2,), "stop"), SeedbenchError, ((5, 5, 5, 5, 1), "stop"),
    ]  # fmt: skip
    assert "new token 2" in str(said[3])
