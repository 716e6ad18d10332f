"""The local policy and its agent: chat template, batched decoding, scoring, failures of single rows. No network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[train]'")

from seedbench.agents.local import LocalAgent  # noqa: E402
from seedbench.core import InfrastructureError, Message, Reply, Sampling, SeedbenchError, View, stream  # noqa: E402
from seedbench.policy.decoding import Generation, Net  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from tests.tiny import TEMPLATE, forbid_network, one_sentence, one_torch_thread, tiny_folder, tiny_model, tiny_tokenizer  # noqa: E402

CHAT = [{"role": "system", "content": "Act."}, {"role": "user", "content": "go to fridge 1"}]
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
DROPS_SYSTEM = TEMPLATE.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_network(monkeypatch)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    yield from one_torch_thread()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def policy(folder: Path) -> HFPolicy:
    return HFPolicy.load(folder, device="cpu")


def some_prompts(policy: HFPolicy, n: int = 11) -> list[tuple[int, ...]]:
    """Prompts of widely different lengths, in no order."""
    rng = np.random.default_rng(3)
    return [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, 60))) for _ in range(n)]


def views(n: int, turn: int = 0) -> list[View]:
    user = [{"role": "user", "content": f"open drawer {i} " * (i + 1)} for i in range(n)]
    return [View("g", "o", (), (), stream=stream("t", i, turn), messages=(CHAT[0], user[i])) for i in range(n)]


def texts(replies: Sequence[Reply | Exception]) -> list[str]:
    return [r.text for r in replies if isinstance(r, Reply)]


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


@given(
    st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<|im_", "end|>", "<", "|>", "fridge", " "]), max_size=12)
)
def test_no_text_of_a_prompt_can_end_its_turn(policy: HFPolicy, pieces: list[str]) -> None:
    said: list[Message] = [{"role": "system", "content": "Act."}, {"role": "user", "content": "".join(pieces)}]
    ids = policy.encode(said)
    special = {policy.tokenizer.convert_tokens_to_ids(name): name for name in ("<|im_start|>", "<|im_end|>")}
    assert [special[i] for i in ids if i in special] == ["<|im_start|>", "<|im_end|>"] * 2 + ["<|im_start|>"]
    if not any(mark in "".join(pieces) for mark in special.values()):
        assert list(ids) == policy.tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)


def test_thinking_is_switched_off_for_good(tmp_path: Path) -> None:
    """As Qwen3's template has it: the reply begins after empty thoughts. A saved folder needs no option any more."""
    switch = "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
    folder = tiny_folder(tmp_path / "model", TEMPLATE + switch)
    plain, off = HFPolicy.load(folder), HFPolicy.load(folder, thinking=False)
    begins = plain.tokenizer.encode("<think></think>", add_special_tokens=False)
    assert list(off.encode(CHAT)) == [*plain.encode(CHAT), *begins]
    off.save(tmp_path / "saved")
    again = HFPolicy.load(tmp_path / "saved")
    assert again.encode(CHAT) == off.encode(CHAT) == HFPolicy.load(tmp_path / "saved", thinking=False).encode(CHAT)
    with pytest.raises(SeedbenchError) as raised:
        HFPolicy.load(tiny_folder(tmp_path / "other"), thinking=False)
    one_sentence(raised, "--no-thinking", "enable_thinking")


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
    how: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_new_tokens": 16}
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


def test_scores_at_a_temperature_too_small_for_fp32(policy: HFPolicy) -> None:
    (said,) = policy.generate([(5, 6, 7)], streams=[1], temperature=1e-46, max_new_tokens=4)
    (greedy,) = policy.generate([(5, 6, 7)], streams=[1], temperature=0.0, max_new_tokens=4)
    assert isinstance(said, Generation) and isinstance(greedy, Generation)
    assert said.completion_ids == greedy.completion_ids and set(said.logprobs) == {0.0}
    assert set(policy.logprobs([(5, 6, 7)], [said.completion_ids], temperature=1e-46)[0]) == {0.0}


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
    agent = LocalAgent(str(folder), batch=3, device="cpu")
    agent.sampling = Sampling(max_new_tokens=10)
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
    assert texts(shuffled) == [texts(replies)[i] for i in (4, 1)]
    assert agent.act([]) == []
    other = agent.act(views(5, turn=1))
    assert texts(other) != texts(replies), "another stream must say something else"


def test_one_view_that_fails_does_not_fail_the_batch(folder: Path) -> None:
    agent = LocalAgent(str(folder), device="cpu")
    agent.sampling = Sampling(max_new_tokens=4)
    good = views(3)
    long = View("g", "o", (), (), messages=({"role": "user", "content": "open drawer 2 " * 500},))
    half = View("g", "o", (), (), messages=({"role": "user", "content": "\ud800"},))
    empty = View("g", "o", (), ())
    mixed = agent.act([good[0], long, good[1], half, empty, good[2]])
    assert [type(r) for r in mixed] == [Reply, SeedbenchError, Reply, SeedbenchError, SeedbenchError, Reply]
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

    told = LocalAgent(str(folder), device="cpu").describe()
    assert told["spec"] == folder.name and told["kind"] == "local" and told["model"] == "Qwen2ForCausalLM"
    assert told["revision"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert told["parameters"] > 50_000 and told["dtype"] == "float32"
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
