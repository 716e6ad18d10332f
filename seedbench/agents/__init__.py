"""Agents, and `load_agent`, which makes one from what follows `--agent` on the command line."""

from __future__ import annotations

import os
from typing import Any

from seedbench.core import Agent, SeedbenchError

SPECS = (
    "random, null, expert, human, tiny, the path or hub id of a Hugging Face causal LM, vllm:PATH, openai:MODEL@URL, "
    "replay:RUN, or module:factory"
)


def load_agent(spec: str, **options: Any) -> Agent:
    """The agent a spec names. A word is a scripted agent or a person; a prefix or module:factory, one of those.

    Anything else is a model folder or hub id. `options` are those of seedbench.agents.local.LocalAgent; endpoints take
    `batch` of them, and the others need none. Raises SeedbenchError with the cure when the spec names nothing that can
    be loaded.
    """
    from seedbench.agents import scripted

    if spec in scripted.AGENTS:
        return scripted.AGENTS[spec]()
    if not spec:
        raise SeedbenchError(f"--agent is empty: give one of {SPECS}.")
    if spec == "human":
        from seedbench.agents.human import Human

        return Human()
    if spec == "tiny":
        from seedbench.agents.tiny import Tiny

        return Tiny(**options)
    if spec.startswith("openai:"):
        from seedbench.agents.endpoint import Endpoint

        return Endpoint(spec, batch=options.get("batch", 64))
    if spec.startswith("vllm:"):
        from seedbench.agents.local import LocalAgent
        from seedbench.policy.vllm import VLLMPolicy

        most = options.pop("max_prompt_tokens", None)
        policy = VLLMPolicy.load(spec.removeprefix("vllm:"), **options)
        return LocalAgent(spec, policy, batch=options.get("batch", 64), max_prompt_tokens=most)
    if spec.startswith("replay:"):
        from seedbench.agents.replay import Replay

        return Replay(spec)
    if ":" in spec and not os.path.exists(
        spec
    ):  # never raises, as Path.exists does for a name too long; no hub id holds a colon
        from seedbench.agents import custom
        from seedbench.agents.answer import clip

        if custom.SPEC.fullmatch(spec):
            return custom.load_custom(spec)
        raise SeedbenchError(f"--agent {clip(spec)} is no folder and no known kind of agent: give one of {SPECS}.")
    from seedbench.agents.local import LocalAgent

    return LocalAgent(spec, **options)


def public_spec(spec: str) -> str:
    """`spec` without the user and password that the URL of an endpoint may hold: this is what may be written."""
    if not spec.startswith("openai:"):
        return spec
    from seedbench.agents import connection

    return connection.read_spec(spec)[0]
