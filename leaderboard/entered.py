"""An entry as the board takes it: who it is, which exam it took, and whether it may be ranked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seedbench.leaderboard.outcomes import Outcomes
from seedbench.record import canonical
from seedbench.results import Results

ROLES = {"null": "floor", "random": "floor", "expert": "ceiling"}
CHOSEN_ON_THE_TEST = ("seen", "unseen", "paper")
SAME_AGENT = ("base_model", "scaffold", "skills_at_inference", "algorithm", "train_splits")


@dataclass(frozen=True)
class Entered:
    """What the board needs of an entry."""

    id: str
    name: str
    results: Results
    outcomes: tuple[Outcomes, ...] = ()
    seeds: tuple[int, ...] = ()  # of its training; () for an agent that was not trained
    level: str = ""  # of verification; "" for none
    findings: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # model, algorithm and so on, to be shown

    @property
    def role(self) -> str:
        return ROLES.get(str(self.results.agent.get("kind", "")), "agent")

    def key(self) -> tuple[str, ...]:
        """Entries with one key are one row: the same agent but for its training seed and checkpoint."""
        own = {k: v for k, v in self.facts.items() if k in SAME_AGENT}
        return self.name, self.role, str(self.results.selection), canonical(own)

    def outside(self) -> str:
        """Why the entry is not ranked at all, "" if it is."""
        if self.role != "agent":
            return self.role
        if self.results.agent.get("needs_env") is not False:  # who does not say it is taken to have been
            return "privileged: it was given the environment itself"
        if self.results.selection in CHOSEN_ON_THE_TEST:
            return "checkpoint chosen on a reported split"
        return "verification found faults" if self.findings else ""


def exam_of(results: Results, env: str) -> dict[str, Any]:
    """What two results on `env` must share to be compared: all of the protocol but seed, trials, limit and sampling."""
    environments = results.protocol.get("environments")
    held = environments.get(env, {}) if isinstance(environments, dict) else {}
    shared = {k: v for k, v in held.items() if k != "sampling"} if isinstance(held, dict) else {}
    return {**shared, "parse": results.protocol.get("parse")}


def digest_of(exam: Mapping[str, Any]) -> str:
    """A short name for an exam, where several stand on one board."""
    return hashlib.sha256(canonical(exam).encode()).hexdigest()[:8]
