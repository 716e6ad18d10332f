"""Ranks that the data support: groups of agents that a paired test cannot tell from the group's leader.

Decimals of a success rate on a few hundred tasks order agents by chance. Here an agent shares its leader's rank unless
the test says otherwise at 5 %, Holm-adjusted over the environments that the agent is compared in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seedbench import stats
from seedbench.leaderboard.outcomes import paired

ALPHA = 0.05


class Contender(NamedTuple):
    """One agent's outcomes in one table: wins a task, out of `trials`, tasks in the table's order."""

    wins: list[int]
    trials: int

    @property
    def mean(self) -> float:
        return sum(self.wins) / (self.trials * len(self.wins))


class Standing(NamedTuple):
    """A rank, and the adjusted p of the last test against a leader; None for a leader itself."""

    rank: int
    p: float | None
    leader: str


def ranks(tables: Mapping[str, Mapping[str, Contender]]) -> dict[str, dict[str, Standing]]:
    """Standings of every table (an environment, on one split), by the agent's name.

    In rounds. In each, a table's best agent without a rank leads; every other one without a rank is tested against it.
    An agent's p-values of the round, one a table, are adjusted by Holm; where p >= .05 it shares the leader's rank.
    A rank is 1 + the number of agents with a better one. Equal success is led by the first name, so that the order of
    files on a disk decides nothing.
    """
    standing: dict[str, dict[str, Standing]] = {name: {} for name in tables}
    while open_tables := [name for name in sorted(tables) if len(standing[name]) < len(tables[name])]:
        leaders, found = {}, {name: len(standing[name]) + 1 for name in open_tables}
        for name in open_tables:
            left = sorted(set(tables[name]) - set(standing[name]), key=lambda who: (-tables[name][who].mean, who))
            leaders[name] = left[0]
        tests: dict[str, list[tuple[str, float]]] = {}
        for name in open_tables:
            for who in sorted(set(tables[name]) - set(standing[name]) - {leaders[name]}):
                tests.setdefault(who, []).append((name, _p(tables[name], leaders[name], who)))
            standing[name][leaders[name]] = Standing(found[name], None, leaders[name])
        for who, results in tests.items():
            for (name, _), p in zip(results, stats.holm([p for _, p in results]), strict=True):
                if p >= ALPHA:
                    standing[name][who] = Standing(found[name], p, leaders[name])
    return standing


def _p(table: Mapping[str, Contender], leader: str, who: str) -> float:
    one, two = table[leader], table[who]
    return paired(one.wins, one.trials, two.wins, two.trials).p
