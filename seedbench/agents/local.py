"""Any Hugging Face causal-LM folder as an agent, batched over all episodes that wait for a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seedbench.core import Agent, Reply, SeedbenchError, TextEnv, Tokens, View
from seedbench.policy.hf import HFPolicy
from seedbench.policy.sampling import Sampling


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How a local model is loaded and sampled. Temperature 0 is greedy; `batch` is the most rows at once."""

    temperature: float = 0.4
    top_p: float = 1.0
    max_new_tokens: int = 512
    batch: int = 64
    device: str = "auto"
    dtype: str = "auto"
    chat_template: str | None = None
    threads: int = 0  # of torch on a CPU; 0 lets HFPolicy.load choose


class LocalAgent(Agent):
    """A causal LM that reads `view.messages` through its own chat template and draws from `view.stream`."""

    def __init__(self, spec: str, options: LocalOptions | None = None, policy: HFPolicy | None = None):
        """Load the folder or hub id `spec`, or play with a `policy` that is loaded already. Raises SeedbenchError."""
        o = self.options = options or LocalOptions()
        self.name = spec
        Sampling(o.temperature, o.top_p, o.max_new_tokens)  # refuse what cannot be sampled before the weights are read
        if o.batch < 1:
            raise SeedbenchError(f"The batch is {o.batch}; give 1 or more.")
        self.policy = policy or HFPolicy.load(
            spec, device=o.device, dtype=o.dtype, chat_template=o.chat_template, threads=o.threads
        )
        self.policy.max_rows = o.batch

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        """One reply a view; a SeedbenchError in the place of a view whose prompt or logits failed."""
        answers: list[Reply | Exception | None] = [None] * len(views)
        prompts: dict[int, tuple[int, ...]] = {}
        for i, view in enumerate(views):
            try:
                prompts[i] = self.policy.encode(view.messages)
            except SeedbenchError as e:
                answers[i] = e
        o = self.options
        said = self.policy.generate(
            list(prompts.values()),
            streams=[views[i].stream for i in prompts],
            temperature=o.temperature,
            top_p=o.top_p,
            max_new_tokens=o.max_new_tokens,
        )
        for (i, prompt), g in zip(prompts.items(), said, strict=True):
            if isinstance(g, SeedbenchError):
                answers[i] = g
                continue
            usage = {"prompt_tokens": len(prompt), "completion_tokens": len(g.completion_ids)}
            tokens = Tokens(prompt, g.completion_ids, g.logprobs)
            answers[i] = Reply(self.policy.decode(g.completion_ids), tokens, g.finish_reason, usage)
        return [a for a in answers if a is not None]

    def describe(self) -> dict[str, Any]:
        o = self.options
        sampling = {"temperature": o.temperature, "top_p": o.top_p, "max_new_tokens": o.max_new_tokens}
        return {"spec": self.name, "kind": "local", **self.policy.describe(), "sampling": sampling, "batch": o.batch}
