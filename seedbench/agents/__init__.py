"""Agents, and `load_agent`, which makes one from what follows `--agent` on the command line."""

from __future__ import annotations

from pathlib import Path

from seedbench.core import Agent, SeedbenchError

SPECS = "random, null, expert, or the path or hub id of a Hugging Face causal LM"


def load_agent(spec: str, *, batch: int = 64, device: str = "auto", chat_template: Path | None = None) -> Agent:
    """The agent a spec names. A word is a scripted agent; anything else is a model folder or hub id.

    Raises SeedbenchError with the cure when the spec names nothing that can be loaded.
    """
    from seedbench.agents import scripted

    if spec in scripted.AGENTS:
        return scripted.AGENTS[spec]()
    if not spec:
        raise SeedbenchError(f"--agent is empty: give one of {SPECS}.")
    from seedbench.agents.local import LocalAgent

    return LocalAgent(spec, batch=batch, device=device, chat_template=chat_template)
