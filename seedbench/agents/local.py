"""Any Hugging Face causal-LM folder as an agent, batched over all episodes that wait for a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbench.core import Agent, Reply, SeedbenchError, TextEnv, Tokens, View, short_name
from seedbench.policy.checkpoint import Checkpoint
from seedbench.policy.fit import fit
from seedbench.policy.hf import HFPolicy


class LocalAgent(Agent):
    """A causal LM that reads `view.messages` through its own chat template and draws from `view.stream`."""

    def __init__(
        self,
        spec: str,
        policy: Checkpoint | None = None,
        *,
        batch: int = 64,
        device: str = "auto",
        dtype: str = "auto",
        threads: int = 0,
        chat_template: str | None = None,
        max_prompt_tokens: int | None = None,
    ):
        """Load the folder or hub id `spec`, or play with a `policy` that is loaded already. Raises SeedbenchError.

        `batch` is the most rows of one forward pass; a prompt of more than `max_prompt_tokens`, or than the context
        leaves, loses its oldest past steps (`fit`); the others are those of HFPolicy.load.
        """
        if batch < 1:
            raise SeedbenchError(f"the batch is {batch}: give 1 or more.")
        self.name = spec
        self.policy = policy or HFPolicy.load(
            spec, device=device, dtype=dtype, chat_template=chat_template, threads=threads
        )
        self.policy.max_rows = batch
        self.max_prompt_tokens = max_prompt_tokens

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        """One reply a view; a SeedbenchError in the place of a view whose prompt or logits failed."""
        answers: list[Reply | Exception | None] = [None] * len(views)
        prompts: dict[int, tuple[int, ...]] = {}
        cut: dict[int, int] = {}
        for i, view in enumerate(views):
            try:
                prompts[i], cut[i] = self._encode(view)
            except SeedbenchError as e:
                answers[i] = e
        said = self.policy.generate(
            list(prompts.values()),
            streams=[views[i].stream for i in prompts],
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            max_new_tokens=self.sampling.max_new_tokens,
        )
        for (i, prompt), g in zip(prompts.items(), said, strict=True):
            if isinstance(g, SeedbenchError):
                answers[i] = g
                continue
            usage = {"prompt_tokens": len(prompt), "completion_tokens": len(g.completion_ids)}
            usage |= {"cut_prompts": 1, "cut_steps": cut[i]} if cut[i] else {}
            tokens = Tokens(prompt, g.completion_ids, g.logprobs)
            answers[i] = Reply(self.policy.decode(g.completion_ids), tokens, g.finish_reason, usage)
        return [a for a in answers if a is not None]

    def _encode(self, view: View) -> tuple[tuple[int, ...], int]:
        """The prompt's ids and how many past steps it lacks. Without a `prompt` to render again nothing is cut."""
        if self.prompt is None:
            return self.policy.encode(view.messages), 0
        return fit(self.policy, self.prompt, view, self.max_prompt_tokens, self.sampling.max_new_tokens)

    def describe(self) -> dict[str, Any]:
        """The policy's description; of a folder's path only its own name, as results are published."""
        engine = "vllm:" if self.name.startswith("vllm:") else ""
        folder = Path(self.name.removeprefix(engine))
        return {
            "spec": engine + folder.resolve().name if folder.is_dir() else self.name,
            "kind": "local",
            **self.policy.describe(),
            **({} if self.max_prompt_tokens is None else {"max_prompt_tokens": self.max_prompt_tokens}),
        }


class Each(Agent):
    """A local agent for each environment, by Gymnasium id."""

    def __init__(self, agents: Mapping[str, LocalAgent]):
        self.agents = agents

    def of(self, env: str) -> LocalAgent:
        """Who plays there. Raises SeedbenchError."""
        if env not in self.agents:
            there = ", ".join(map(short_name, self.agents))
            raise SeedbenchError(f"{self.name} has no policy for {short_name(env)}: choose --env {there}.")
        return self.agents[env]

    def plays(self, env_id: str) -> None:
        self.of(env_id)

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        agent = self.of(self.env)
        agent.sampling = self.sampling
        return agent.act(views, envs)
