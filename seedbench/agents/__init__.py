"""Agents, and `load_agent`, which makes one from what follows `--agent` on the command line."""

from __future__ import annotations

from typing import Any

from seedbench.core import Agent, SeedbenchError

SPECS = "random, null, expert, or the path or hub id of a Hugging Face causal LM"


def load_agent(spec: str, **options: Any) -> Agent:
    """The agent a spec names. A word is a scripted agent; anything else is a model folder or hub id.

    `options` are those of seedbench.agents.local.LocalAgent; scripted agents need none. Raises SeedbenchError with
    the cure when the spec names nothing that can be loaded.
    """
    from seedbench.agents import scripted

    if spec in scripted.AGENTS:
        return scripted.AGENTS[spec]()
    if not spec:
        raise SeedbenchError(f"--agent is empty: give one of {SPECS}.")
    from seedbench.agents.local import LocalAgent

    return LocalAgent(spec, **options)
