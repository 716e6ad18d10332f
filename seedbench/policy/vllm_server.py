"""A `vllm serve` process beside training, perhaps on another machine that sees the same folder: sampled from over HTTP.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs --dtype float32 --max-num-seqs 64

Dev mode opens the calls that replace weights to anyone who reaches the port: keep it on 127.0.0.1 or behind a firewall.
Weights go through a folder, as that call takes only text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seedbench.core import InfrastructureError, Sampling, SeedbenchError
from seedbench.policy import weights
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.decoding import Generation
from seedbench.policy.vllm import Engine, checked, refuse_cold

TIMEOUT = 600.0  # seconds for one reply or one reload


class VLLMServer(Engine):
    """Plays a policy's shape at `url`; `exchange` is a folder that both processes see under the same path."""

    def __init__(self, url: str, policy: Checkpoint, exchange: Path, *, batch: int = 64):
        """Raises SeedbenchError where no vLLM in dev mode answers at `url`, InfrastructureError where nothing does."""
        super().__init__(policy.model, policy.tokenizer, policy.folder)
        self.url = url.rstrip("/").removesuffix("/v1")
        self.exchange = exchange.resolve()
        self.batch = batch
        self.http = _session(batch)
        (served, *_) = self._call("GET", "/v1/models")["data"]
        self.served, self.context = str(served["id"]), int(served["max_model_len"])

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        streams: Sequence[int],
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_new_tokens: int = 512,
    ) -> list[Generation | SeedbenchError]:
        """As VLLMPolicy.generate; one request a prompt, `batch` at a time. Raises InfrastructureError."""
        Sampling(temperature, top_p, max_new_tokens)
        refuse_cold(temperature)
        how = {
            "model": self.served, "temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens,
            "logprobs": 0, "stop_token_ids": sorted(self.stop_ids), "ignore_eos": True, "return_token_ids": True,
        }  # fmt: skip

        def one(prompt: Sequence[int], seed: int) -> Generation | SeedbenchError:
            if problem := self._problem(prompt, max_new_tokens):
                return problem
            answer = self._call("POST", "/v1/completions", {**how, "prompt": list(prompt), "seed": seed})
            choice = answer["choices"][0]
            ids, logps = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            if len(ids) != len(logps):
                raise InfrastructureError(f"{self.url} gave {len(logps)} log-probabilities for {len(ids)} tokens.")
            return checked(ids, logps, choice["finish_reason"])

        with ThreadPoolExecutor(self.batch) as pool:
            return list(pool.map(one, prompts, streams))

    def push(self, items: Iterable[tuple[str, Any]]) -> None:
        """Write the weights, every name of them, into `exchange` and have the server read them."""
        from safetensors.torch import save_file

        self.exchange.mkdir(parents=True, exist_ok=True)
        self.model.config.save_pretrained(self.exchange)
        part = self.exchange / "model.safetensors.part"
        # Copies, because a tied output layer is one tensor under two names, of which save_pretrained writes but one.
        save_file({name: t.detach().to("cpu", copy=True).contiguous() for name, t in items}, part)
        os.replace(part, self.exchange / "model.safetensors")
        self._call("POST", "/collective_rpc",
                   {"method": "reload_weights", "kwargs": {"weights_path": str(self.exchange)}})  # fmt: skip
        self._call("POST", "/reset_prefix_cache")

    def close(self) -> None:
        """Close the connections; the server runs on."""
        self.http.close()

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"kind": "vllm", "engine": "vllm serve"}

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        import requests

        try:
            answer = self.http.request(method, self.url + path, json=body, timeout=TIMEOUT)
        except ValueError as e:  # requests' errors for what is no URL are of this type, too
            raise SeedbenchError(f"--engine-url {weights.shorten(self.url)} is no URL ({weights.why(e)}).") from e
        except requests.RequestException as e:
            raise InfrastructureError(
                f"vLLM at {self.url} does not answer ({weights.why(e)}); start it and go on with --resume."
            ) from e
        if answer.status_code == 404:
            raise SeedbenchError(
                f"{self.url} knows no {path}; start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode "
                "processed_logprobs."
            )
        if answer.status_code != 200:
            raise InfrastructureError(
                f"vLLM at {self.url} answers {path} with {answer.status_code} ({weights.shorten(answer.text)}); "
                "its log says more."
            )
        return answer.json() if answer.content else None


def _session(connections: int) -> Any:
    """As many connections at a time; no proxy, as the server is near. Raises SeedbenchError without requests."""
    try:
        import requests
    except ImportError as e:
        raise SeedbenchError(f"--engine-url needs requests ({e}); install it with `pip install requests`.") from e
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=connections))
    return session
