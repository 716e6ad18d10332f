"""The local policy: sampling, batched decoding, scoring, and every way a model folder can be wrong. No network."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="torch is not installed: pip install seedbench[train]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install seedbench[train]")

from tiny import TEMPLATE, tiny_folder, tiny_model, tiny_tokenizer  # noqa: E402

from seedbench.agents.local import LocalAgent, LocalOptions  # noqa: E402
from seedbench.core import InfrastructureError, Reply, SeedbenchError, View, stream  # noqa: E402
from seedbench.policy.decoding import Generation, Net, by_budget, decode  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from seedbench.policy.sampling import Sampling, draw, log_distribution, uniforms  # noqa: E402

CHAT = [{"role": "system", "content": "Act."}, {"role": "user", "content": "go to fridge 1"}]
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
DROPS_SYSTEM = TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, address: Any) -> None:
        raise OSError(f"a test tried to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small lose time to more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def policy(folder: Path) -> HFPolicy:
    return HFPolicy.load(folder, device="cpu")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def some_prompts(policy: HFPolicy, n: int = 11) -> list[tuple[int, ...]]:
    """Prompts of widely different lengths, in no order."""
    rng = np.random.default_rng(3)
    return [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, 60))) for _ in range(n)]


def views(n: int, turn: int = 0) -> list[View]:
    user = [{"role": "user", "content": f"open drawer {i} " * (i + 1)} for i in range(n)]
    return [View("g", "o", (), (), stream=stream("t", i, turn), messages=(CHAT[0], user[i])) for i in range(n)]


def one_sentence(error: pytest.ExceptionInfo[SeedbenchError], *words: str) -> None:
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text, text
    for word in words:
        assert word in text, (word, text)


# Sampling


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_unusable_rows_are_told_apart(bad: float) -> None:
    masked = -float("inf")
    logits = torch.tensor([[0.0, 1.0, masked], [0.0, bad, 1.0], [masked, masked, masked]])
    assert log_distribution(logits, 1.0, 0.9)[1].tolist() == [True, False, False]


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.1}])
def test_sampling_settings_that_mean_nothing(wrong: dict[str, float]) -> None:
    with pytest.raises(SeedbenchError) as e:
        Sampling(**wrong)  # type: ignore[arg-type]
    one_sentence(e)


# Encoding


def test_prompt_ids_are_those_of_the_chat_template(policy: HFPolicy) -> None:
    expected = policy.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert list(policy.encode(CHAT)) == expected
    assert policy.tokenizer.decode(expected).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_a_template_given_as_a_file_is_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("MARK{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    other = HFPolicy.load(folder, device="cpu", chat_template=str(tmp_path / "own.jinja"))
    assert other.decode(other.encode(CHAT)) == "MARK[system]Act.[user]go to fridge 1"
    assert other.describe()["chat_template_sha256"] != HFPolicy.load(folder).describe()["chat_template_sha256"]


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM], ids=["refuses", "drops"])
def test_system_text_is_merged_where_the_template_has_no_system_role(template: str, tmp_path: Path) -> None:
    merged = HFPolicy.load(tiny_folder(tmp_path, template), device="cpu")
    assert merged.merges_system and "merged" in merged.describe()["system_role"]
    text = merged.tokenizer.decode(merged.encode(CHAT))
    assert text == "<|im_start|>user\nAct.\n\ngo to fridge 1<|im_end|>\n<|im_start|>assistant\n"


def test_the_end_of_turn_of_the_template_stops(policy: HFPolicy) -> None:
    assert policy.stop_ids == {policy.tokenizer.eos_token_id, policy.tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_decode_keeps_spaces_and_leaves_special_tokens_out(policy: HFPolicy) -> None:
    ids = policy.tokenizer.encode(" a , b .  do n't<|im_end|>", add_special_tokens=False)
    assert policy.decode(ids) == " a , b .  do n't"


# Generating and scoring


@pytest.mark.parametrize("temperature,top_p", [(0.0, 1.0), (1.0, 1.0), (0.7, 0.9)])
def test_a_batch_says_what_each_row_alone_says(policy: HFPolicy, temperature: float, top_p: float) -> None:
    prompts = some_prompts(policy)
    streams = [stream("row", i) for i in range(len(prompts))]
    how = {"temperature": temperature, "top_p": top_p, "max_new_tokens": 16}
    together = policy.generate(prompts, streams=streams, **how)
    alone = [policy.generate([p], streams=[s], **how)[0] for p, s in zip(prompts, streams, strict=True)]
    backwards = policy.generate(prompts[::-1], streams=streams[::-1], **how)[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert isinstance(a, Generation) and isinstance(b, Generation) and isinstance(c, Generation)
        assert a.completion_ids == b.completion_ids == c.completion_ids and a.finish_reason == b.finish_reason
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3", "gemma2", "gpt2"])
@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_scoring_repeats_the_log_probabilities_of_sampling(kind: str, temperature: float) -> None:
    extra = {"sliding_window": 8, "head_dim": 12} if kind == "gemma2" else {}
    tokenizer = tiny_tokenizer()
    policy = HFPolicy(tiny_model(len(tokenizer), kind=kind, **extra), tokenizer)
    prompts = some_prompts(policy)
    said = policy.generate(
        prompts, streams=list(range(len(prompts))), temperature=temperature, max_new_tokens=9 + bool(temperature)
    )
    completions = [g.completion_ids for g in said if isinstance(g, Generation)]
    scored = policy.logprobs(prompts, completions, temperature=temperature)
    for g, s in zip(said, scored, strict=True):
        assert isinstance(g, Generation)
        np.testing.assert_allclose(g.logprobs, s, atol=1e-4)


def test_scoring_in_parts_and_without_picking_positions_changes_nothing(folder: Path) -> None:
    policy = HFPolicy.load(folder, device="cpu")
    prompts = some_prompts(policy)
    completions = [p[: k % 4] for k, p in enumerate(prompts)]
    whole = policy.logprobs(prompts, completions, temperature=0.8)
    assert [len(row) for row in whole] == [len(c) for c in completions] and whole[0] == []
    policy.token_budget = 70
    policy._net._selects = False
    for a, b in zip(whole, policy.logprobs(prompts, completions, temperature=0.8), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_scores_against_a_plain_forward_pass(policy: HFPolicy) -> None:
    prompt, completion = (5, 6, 7, 8), (9, 10, 0)
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt + completion])).logits[0].double() / 0.5
    expected = [torch.log_softmax(logits[3 + k], -1)[t].item() for k, t in enumerate(completion)]
    np.testing.assert_allclose(policy.logprobs([prompt], [completion], temperature=0.5)[0], expected, atol=1e-5)


def test_greedy_is_what_transformers_generates(policy: HFPolicy) -> None:
    for prompt in some_prompts(policy, 6):
        mine = policy.generate([prompt], streams=[0], temperature=0.0, max_new_tokens=24)[0]
        with torch.inference_mode():
            theirs = policy.model.generate(
                torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                max_new_tokens=24, eos_token_id=sorted(policy.stop_ids), pad_token_id=0,
            )[0, len(prompt) :].tolist()  # fmt: skip
        assert isinstance(mine, Generation) and list(mine.completion_ids) == theirs


@pytest.mark.parametrize("kind,extra", [("qwen2", {}), ("gemma2", {"sliding_window": 8, "head_dim": 12})])
def test_prefill_in_parts_changes_nothing(kind: str, extra: dict[str, Any]) -> None:
    tokenizer = tiny_tokenizer()
    policy = HFPolicy(tiny_model(len(tokenizer), kind=kind, **extra), tokenizer)
    prompts, streams = some_prompts(policy), list(range(11))
    whole = policy.generate(prompts, streams=streams, max_new_tokens=12)
    policy.token_budget, policy.max_rows = 64, 9
    assert policy._net.mergeable() == (kind == "qwen2")
    for a, b in zip(whole, policy.generate(prompts, streams=streams, max_new_tokens=12), strict=True):
        assert isinstance(a, Generation) and isinstance(b, Generation) and a.completion_ids == b.completion_ids
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


def test_budget_counts_padding_and_serves_every_row() -> None:
    lengths = [50, 20, 20, 9, 9, 9, 1]
    parts = list(by_budget(lengths, 40))
    assert [(p.start, p.stop) for p in parts] == [(0, 1), (1, 3), (3, 7)]
    assert list(by_budget([], 40)) == []


class Script:
    """A model that says given tokens: logits of row r at new token t put all mass on script[r][t]."""

    def __init__(self, script: list[list[int]], vocabulary: int = 8):
        self.script, self.vocabulary, self.batches = script, vocabulary, []
        self.model = self
        self.device = torch.device("cpu")
        self.rows = list(range(len(script)))
        self.t = 0

    def new_cache(self) -> Script:
        return self

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
    said = decode(net, [[3]] * 5, None, Sampling(0.0, 1.0, 5), frozenset({1, 2}), 0, 100)
    assert net.batches == [5, 4, 3, 2, 2]
    ends = [(g.completion_ids, g.finish_reason) if isinstance(g, Generation) else type(g) for g in said]
    assert ends == [
        ((4, 5, 1), "stop"), ((3, 4, 5, 6, 7), "length"), ((2,), "stop"), SeedbenchError, ((5, 5, 5, 5, 1), "stop"),
    ]  # fmt: skip
    assert "new token 2" in str(said[3])


def test_a_row_that_ends_early_leaves_the_others_alone(policy: HFPolicy) -> None:
    prompts = some_prompts(policy)
    streams = list(range(len(prompts)))
    free = policy.generate(prompts, streams=streams, temperature=1.0, max_new_tokens=20)
    third = {g.completion_ids[2] for g in free if isinstance(g, Generation) and len(g.completion_ids) > 2}
    stops = policy.stop_ids
    policy.stop_ids = stops | third  # every row now ends by its third token, at different places
    try:
        cut = policy.generate(prompts, streams=streams, temperature=1.0, max_new_tokens=20)
    finally:
        policy.stop_ids = stops
    for a, b in zip(free, cut, strict=True):
        assert isinstance(a, Generation) and isinstance(b, Generation) and b.finish_reason == "stop"
        end = next(k for k, t in enumerate(a.completion_ids) if t in stops | third)
        assert b.completion_ids == a.completion_ids[: end + 1]


# The agent


def test_agent_replies_with_tokens_as_sampled(folder: Path) -> None:
    agent = LocalAgent(str(folder), LocalOptions(max_new_tokens=10, batch=3, device="cpu"))
    seen = views(5)
    replies = agent.act(seen)
    for view, reply in zip(seen, replies, strict=True):
        assert isinstance(reply, Reply) and reply.tokens
        assert reply.tokens.prompt_ids == agent.policy.encode(view.messages)
        assert len(reply.tokens.completion_ids) == len(reply.tokens.logprobs) <= 10
        assert reply.text == agent.policy.decode(reply.tokens.completion_ids)
        assert reply.usage["completion_tokens"] == len(reply.tokens.completion_ids)
        assert reply.usage["prompt_tokens"] == len(reply.tokens.prompt_ids)
    shuffled = agent.act([seen[i] for i in (4, 1)])
    assert [r.text for r in shuffled if isinstance(r, Reply)] == [r.text for r in (replies[4], replies[1])]
    assert agent.act([]) == []
    other = agent.act(views(5, turn=1))
    assert [r.text for r in other] != [r.text for r in replies], "another stream must say something else"


def test_one_view_that_fails_does_not_fail_the_batch(folder: Path) -> None:
    agent = LocalAgent(str(folder), LocalOptions(max_new_tokens=4, device="cpu"))
    good = views(3)
    long = View("g", "o", (), (), messages=({"role": "user", "content": "open drawer 2 " * 500},))
    half = View("g", "o", (), (), messages=({"role": "user", "content": "\ud800"},))
    empty = View("g", "o", (), ())
    mixed = agent.act([good[0], long, good[1], half, empty, good[2]])
    assert [type(r) for r in mixed] == [Reply, SeedbenchError, Reply, SeedbenchError, Reply, Reply]
    assert "context is 512" in str(mixed[1]) and "--history" in str(mixed[1])
    for a, b in zip((mixed[i] for i in (0, 2, 5)), agent.act(good), strict=True):
        assert isinstance(a, Reply) and isinstance(b, Reply) and a.tokens and b.tokens
        assert a.tokens.completion_ids == b.tokens.completion_ids


def test_prompts_without_tokens_or_of_another_vocabulary(policy: HFPolicy) -> None:
    said = policy.generate([(), (5, 6), (9999,)], streams=[1, 2, 3], max_new_tokens=3)
    assert [type(g) for g in said] == [SeedbenchError, Generation, SeedbenchError]
    assert policy.generate([], streams=[]) == [] and policy.logprobs([], []) == []
    with pytest.raises(SeedbenchError, match="no tokens"):
        policy.logprobs([()], [(5,)])


def test_describe_names_what_was_played(folder: Path) -> None:
    import hashlib

    told = LocalAgent(str(folder), LocalOptions(device="cpu")).describe()
    assert told["spec"] == str(folder) and told["kind"] == "local" and told["model"] == "Qwen2ForCausalLM"
    assert told["revision"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert told["parameters"] > 50_000 and told["dtype"] == "float32" and told["versions"]["torch"] == torch.__version__
    assert told["sampling"] == {"temperature": 0.4, "top_p": 1.0, "max_new_tokens": 512}
    json.dumps(told)


def test_save_and_load_again(policy: HFPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path / "saved")
    again = HFPolicy.load(tmp_path / "saved", device="cpu")
    assert again.encode(CHAT) == policy.encode(CHAT)
    prompts = some_prompts(policy, 3)
    assert again.generate(prompts, streams=[1, 2, 3], max_new_tokens=6) == policy.generate(
        prompts, streams=[1, 2, 3], max_new_tokens=6
    )


def test_weights_with_nan_fail_each_row_with_a_sentence(folder: Path) -> None:
    policy = HFPolicy.load(folder, device="cpu")
    policy.model.get_input_embeddings().weight.data[77] = float("nan")
    policy.model.config.tie_word_embeddings = False
    policy.model.lm_head.weight = torch.nn.Parameter(torch.nan_to_num(policy.model.lm_head.weight.detach().clone()))
    said = policy.generate([(5, 6), (5, 77), (8,)], streams=[1, 2, 3], temperature=0.0, max_new_tokens=3)
    assert isinstance(said[1], SeedbenchError) and "not finite" in str(said[1])
    assert isinstance(said[0], Generation) and isinstance(said[2], Generation)


def test_out_of_memory_halves_the_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = HFPolicy.load(folder, device="cpu")
    prompts, streams = some_prompts(policy), list(range(11))
    expected = policy.generate(prompts, streams=streams, max_new_tokens=5)
    real, most, tried = Net.logits, 3, []

    def small(self: Net, ids: Any, *args: Any, **kwargs: Any) -> Any:
        tried.append(len(ids))
        if len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, ids, *args, **kwargs)

    monkeypatch.setattr(Net, "logits", small)
    said = policy.generate(prompts, streams=streams, max_new_tokens=5)
    assert tried[:3] == [11, 5, 2] and policy.max_rows == 2
    for a, b in zip(expected, said, strict=True):
        assert isinstance(a, Generation) and isinstance(b, Generation) and a.completion_ids == b.completion_ids
    most = 0
    with pytest.raises(InfrastructureError) as e:
        policy.generate(prompts, streams=streams, max_new_tokens=5)
    one_sentence(e, "--device cpu")
    with pytest.raises(InfrastructureError):
        policy.logprobs(prompts, prompts)


def test_other_runtime_errors_are_not_swallowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = HFPolicy.load(folder, device="cpu")

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Net, "logits", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        policy.generate([(5,)], streams=[0], max_new_tokens=2)


# Folders that are wrong


def broken_folder(copy: Path, how: str) -> tuple[str, ...]:
    """Break a good copy; returns the words that the sentence must hold."""
    config, weights = copy / "config.json", copy / "model.safetensors"
    if how == "no config":
        config.unlink()
        return ("config.json is missing",)
    if how == "config cut":
        config.write_text(config.read_text()[:40])
        return ("config.json", "not a JSON object")
    if how == "no weights":
        weights.unlink()
        return ("model.safetensors is missing",)
    if how == "pickle":
        weights.rename(copy / "pytorch_model.bin")
        return ("pickle", "pytorch_model.bin", "save_pretrained")
    if how == "weights cut":
        weights.write_bytes(weights.read_bytes()[:-100])
        return ("model.safetensors", "cut short")
    if how == "weights empty":
        weights.write_bytes(b"")
        return ("model.safetensors", "cut short")
    if how == "shard gone":
        weights.rename(copy / "model-00001-of-00002.safetensors")
        names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
        (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        return ("model-00002-of-00002.safetensors is missing",)
    if how == "adapter":
        weights.unlink()
        (copy / "adapter_config.json").write_text("{}")
        return ("adapter", "merge")
    if how == "no tokenizer":
        (copy / "tokenizer.json").unlink()
        return ("no tokenizer", "tokenizer.json is missing")
    if how == "tokenizer cut":
        (copy / "tokenizer.json").write_text('{"version": ')
        return ("tokenizer", "cannot be loaded")
    if how == "no template":
        (copy / "chat_template.jinja").unlink()
        return ("no chat template", "chat_template.jinja", "--chat-template FILE")
    if how == "template broken":
        (copy / "chat_template.jinja").write_text("{% for m in messages %}")
        return ("chat template", "cannot be rendered")
    changes: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "remote code": (
            {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}},
            ("Python code of its own", "never run"),
        ),
        "unknown type": ({"model_type": "from_the_future"}, ("from_the_future", "upgrade transformers")),
        "not causal": ({"model_type": "clip"}, ("causal language model",)),
        "more layers": ({"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}, ("lack", "tensors")),
        "other shape": ({"intermediate_size": 64}, ("cannot be loaded",)),
    }
    change, words = changes[how]
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    return words


HOWS = (
    "no config,config cut,no weights,pickle,weights cut,weights empty,shard gone,adapter,no tokenizer,tokenizer cut,"
    "no template,template broken,remote code,unknown type,not causal,more layers,other shape"
).split(",")


@pytest.mark.parametrize("how", HOWS)
def test_a_broken_folder_gets_one_sentence(how: str, copy: Path) -> None:
    words = broken_folder(copy, how)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(copy, device="cpu")
    one_sentence(e, *words)


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(len(tokenizer) - 20).save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(tmp_path, device="cpu")
    one_sentence(e, "tokenizer", str(len(tokenizer)), str(len(tokenizer) - 20))


@pytest.mark.parametrize("offline", [False, True])
def test_a_name_that_is_neither_folder_nor_reachable(offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if offline:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load("seedbench-tests/no-such-model", device="cpu")
    one_sentence(e, "not a folder", "hub cannot be reached", "HF_HUB_OFFLINE")


def test_paths_that_cannot_be_hub_ids(tmp_path: Path, folder: Path) -> None:
    for path, word in ((tmp_path / "nowhere", "no folder"), (folder / "config.json", "is a file")):
        with pytest.raises(SeedbenchError) as e:
            HFPolicy.load(path)
        one_sentence(e, word)


def test_unknown_devices_dtypes_and_templates(folder: Path, tmp_path: Path) -> None:
    for wrong in ({"device": "gpu9"}, {"device": "meta"}, {"dtype": "int3"}, {"chat_template": str(tmp_path / "no")}):
        with pytest.raises(SeedbenchError) as e:
            HFPolicy.load(folder, **wrong)
        one_sentence(e)
    if not torch.cuda.is_available():
        with pytest.raises(SeedbenchError, match="--device cpu"):
            HFPolicy.load(folder, device="cuda:7")
    with pytest.raises(SeedbenchError, match="batch"):
        LocalAgent(str(folder), LocalOptions(batch=0))


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_without_the_train_extra(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(folder)
    one_sentence(e, "pip install seedbench[train]")


def test_bfloat16_where_asked_for(folder: Path) -> None:
    policy = HFPolicy.load(folder, device="cpu", dtype="bfloat16")
    said = policy.generate([(5, 6, 7)], streams=[1], max_new_tokens=4)[0]
    assert policy.describe()["dtype"] == "bfloat16" and isinstance(said, Generation)
