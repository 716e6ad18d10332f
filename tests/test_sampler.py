"""Training through an engine that holds weights of its own: what is sent, what is compared, what stops the run.

The engine here is a second transformers model that takes in what is pushed, and nothing else; vLLM itself is tested in
test_vllm.py, outside the default suite.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.train.args import Args
from tests.tiny import one_sentence, one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)
MESSAGES = [{"role": "user", "content": "go to fridge 1 and take the apple from the shelf"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)


def twin_of(policy: Any, noise: float = 0.0) -> Any:
    """An engine beside `policy` with random weights and an output layer of its own; its answers are off by `noise`."""
    from seedbench.policy.hf import HFPolicy
    from seedbench.policy.vllm import Engine

    class Twin(Engine):
        def __init__(self) -> None:
            super().__init__(policy.model, policy.tokenizer)
            own = copy.deepcopy(policy.model)
            own.lm_head.weight = torch.nn.Parameter(own.lm_head.weight.clone())  # no longer tied
            with torch.no_grad():
                for p in own.parameters():
                    p.normal_()
            self.own, self.pushes, self.rests, self.closed = HFPolicy(own, policy.tokenizer), 0, 0, False

        def generate(self, prompts: Any, **how: Any) -> Any:
            said = self.own.generate(prompts, **how)
            return [type(g)(g.completion_ids, tuple(x + noise for x in g.logprobs), g.finish_reason) for g in said]

        def push(self, items: Iterable[tuple[str, Any]]) -> None:
            self.own.model.load_state_dict({k: v.clone() for k, v in items}, strict=False)
            self.pushes += 1

        def rest(self) -> None:
            self.rests += 1

        def close(self) -> None:
            self.closed = True

    return Twin()


def small(folder: Path, out: Path, **more: Any) -> Args:
    given: dict[str, Any] = {"updates": 2, "tasks": 2, "group": 2, "max_new_tokens": 8, "max_steps": 2, "lr": 1e-2}
    return Args(model=str(folder), out=str(out), **(given | more))


def moving(rows: Any, args: Args) -> list[float]:
    return [1.0 if row.trajectory % 2 else -1.0 for row in rows]  # random play earns nothing to learn from


def trained(args: Args, monkeypatch: pytest.MonkeyPatch, noise: float | None = None) -> tuple[Any, list[Any]]:
    """Train, with a twin where there is a noise; the twin and the lines of metrics."""
    from seedbench.train import loop
    from seedbench.train.log import read

    made: list[Any] = []
    if noise is not None:
        monkeypatch.setattr(loop, "open_sampler", lambda a, policy, r: made.append(twin_of(policy, noise)) or made[0])
    out = loop.train(args, advantages=moving, objective=grpo.objective)
    return (made[0] if made else None), read(out / "metrics.jsonl")


def test_an_engine_that_is_sent_the_weights_trains_as_the_policy_itself(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, alone = trained(small(folder, tmp_path / "hf"), monkeypatch)
    twin, beside = trained(small(folder, tmp_path / "twin"), monkeypatch, 0.0)
    assert (twin.pushes, twin.rests, twin.closed) == (2, 2, True)
    for mine, other in zip(alone, beside, strict=True):
        assert other["prompt_digest"] == mine["prompt_digest"]
        assert other["loss"] == pytest.approx(mine["loss"], abs=1e-4)
        assert other["grad_norm"] == pytest.approx(mine["grad_norm"], rel=1e-3)
        assert other["probe"] < 1e-5 and other["gap_max"] < 1e-4 and "probe" not in mine
    from safetensors.torch import load_file

    one, two = (load_file(tmp_path / n / "model.safetensors") for n in ("hf", "twin"))
    start = load_file(folder / "model.safetensors")
    assert max(float((one[k] - start[k]).abs().max()) for k in one) > 1e-3
    # On average: AdamW makes a full step of a gradient that is rounding alone, as that of a key's bias is.
    assert sum(float((one[k] - two[k]).abs().mean()) for k in one) / len(one) < 1e-4


def test_the_ratio_starts_at_one_and_the_gap_is_what_the_correction_sees(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler that overstates by 5e-4: allowed, logged, kept out of the ratio, weighed by --importance-cap."""
    noise = 5e-4
    seen: list[Any] = []
    real = grpo.objective

    def watching(policy: Any, batch: Any, args: Args) -> Any:
        seen.append(float((batch.logp_sampled - batch.logp_old).mean()))
        return real(policy, batch, args)

    monkeypatch.setattr(grpo, "objective", watching)
    _, (line,) = trained(small(folder, tmp_path / "plain", updates=1), monkeypatch, noise)
    assert line["gap"] == pytest.approx(noise, rel=0.05) and line["gap_max"] == pytest.approx(noise, rel=0.2)
    assert line["clip_fraction"] == 0 and abs(line["kl"]) < 1e-6
    assert all(x == pytest.approx(noise, rel=0.05) for x in seen)
    _, (weighed,) = trained(small(folder, tmp_path / "cap", updates=1, importance_cap=0.5), monkeypatch, noise)
    assert weighed["grad_norm"] > 0 and weighed["loss"] == pytest.approx(line["loss"] * 0.5, rel=1e-3)


def test_a_run_stops_where_engine_and_policy_disagree(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SeedbenchError) as off:
        trained(small(folder, tmp_path / "off"), monkeypatch, 0.01)
    one_sentence(off, "does not play the weights that are trained", "0.01")
    assert not (tmp_path / "off" / "model.safetensors").exists()


def test_a_push_without_the_tied_output_layer_is_found_at_once(folder: Path) -> None:
    """As the weights of an engine are random before the first push, before any update has moved anything."""
    from seedbench.policy.hf import HFPolicy
    from seedbench.train.sampler import refresh

    policy = HFPolicy.load(folder)
    twin = twin_of(policy)
    push = twin.push
    twin.push = lambda items: push((k, v) for k, v in items if k != "lm_head.weight")
    with pytest.raises(SeedbenchError) as stale:
        refresh(twin, policy, Args(), lambda: MESSAGES)
    one_sentence(stale, "log-probabilities differ by")
    twin.push = push
    assert refresh(twin, policy, Args(), lambda: MESSAGES)["probe"] < 1e-5


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_there_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    from seedbench.agents import load_agent

    with pytest.raises(SeedbenchError) as missing:
        load_agent(f"vllm:{folder}")
    one_sentence(missing, "pip install -e '.[vllm]'", "make .venv-vllm")
    with pytest.raises(SeedbenchError) as missing:
        grpo.run(small(folder, tmp_path / "run", engine="vllm"))
    one_sentence(missing, "pip install -e '.[vllm]'")


def test_flags_that_mean_nothing_together_are_refused() -> None:
    with pytest.raises(SeedbenchError) as wrong:
        Args(engine_url="http://127.0.0.1:1")
    one_sentence(wrong, "--engine vllm")
    with pytest.raises(SeedbenchError) as wrong:
        Args(engine_memory=1.5)
    one_sentence(wrong, "--engine-memory")


@pytest.fixture
def undeveloped() -> Iterator[str]:
    """A server that samples but was not started in dev mode, and whose reply has no numbers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"data": [{"id": "m", "max_model_len": 4096}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if self.path != "/v1/completions":
                self.answer({}, 404)
                return
            assert asked["prompt"] in ([5, 6], [7]) and asked["return_token_ids"] and asked["ignore_eos"]
            logps = [-1.0] if asked["seed"] == 1 else [float("nan")]
            choice = {"token_ids": [asked["prompt"][0]], "logprobs": {"token_logprobs": logps}, "finish_reason": "stop"}
            self.answer({"choices": [choice]})

        def answer(self, body: Any, code: int = 200) -> None:
            raw = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_a_server_lacks_is_one_sentence(folder: Path, tmp_path: Path, undeveloped: str) -> None:
    from seedbench.policy.hf import HFPolicy
    from seedbench.policy.vllm import weights_of
    from seedbench.policy.vllm_server import VLLMServer

    policy = HFPolicy.load(folder)
    server = VLLMServer(undeveloped + "/v1/", policy, tmp_path / "exchange", batch=2)
    fine, strange, empty = server.generate([(5, 6), (7,), ()], streams=[1, 2, 3], max_new_tokens=4)
    assert fine.completion_ids == (5,) and fine.logprobs == (-1.0,)
    assert isinstance(strange, SeedbenchError) and isinstance(empty, SeedbenchError)
    with pytest.raises(SeedbenchError) as closed:
        server.push(weights_of(policy.model))
    one_sentence(closed, "VLLM_SERVER_DEV_MODE=1")
    from safetensors.torch import load_file

    sent = load_file(tmp_path / "exchange" / "model.safetensors")
    assert set(sent) == set(policy.model.state_dict()) and "lm_head.weight" in sent
    with pytest.raises(InfrastructureError) as gone:
        VLLMServer("http://127.0.0.1:1", policy, tmp_path)
    one_sentence(gone, "--resume")
    with pytest.raises(SeedbenchError) as bad:
        VLLMServer("nonsense", policy, tmp_path)
    one_sentence(bad, "no URL")
