"""What a question of the generated set asks: the one thing that fits several facts, and a path from there.

    form = Intersect("film", ((("director", "birthplace"), "Tavora"), (("score",), "Zun Kela")), ("source", "author"))
    hubs(graph, form)                      # {"The Road to Zuvarel"}: every thing that fits
    walk(graph, form)                      # the facts that the answer rests on, in the order in which they can be found

Relations are search-QA's. A constraint is a path that leads from the thing to a name that the question tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seedbench.envs.searchqa.relations import RELATIONS, Graph, Hop

Path = tuple[str, ...]
Constraint = tuple[Path, str]  # the path, and the name or year at its end

# Whoever directs a film is a film director: a search for somebody in that part may say so.
TRADES: Mapping[str, str] = {
    "director": "film director", "author": "novelist", "composer": "composer", "score": "composer", "star": "actor",
    "architect": "architect", "painter": "painter", "winner": "athlete", "founder": "industrialist",
    "librettist": "poet", "mayor": "politician", "president": "politician",
}  # fmt: skip


class Intersect(NamedTuple):
    """The thing of a kind that fits all constraints, and the path from it to the answer."""

    kind: str
    constraints: tuple[Constraint, ...]
    tail: Path

    @property
    def hops(self) -> int:
        """How many facts the answer rests on."""
        return sum(len(path) for path, _ in self.constraints) + len(self.tail)

    @property
    def pattern(self) -> str:
        """The shape without names, by which `unseen` differs from what is trained on."""
        told = " & ".join(".".join(path) for path, _ in self.constraints)
        return f"{self.kind}: {told} > {'.'.join(self.tail)}"


def fitting(graph: Graph, kind: str, constraint: Constraint) -> set[str]:
    """Every thing of a kind that fits one constraint: of the kind are those that have the path's first relation."""
    path, value = constraint
    found = graph.walk([value], [f"~{step}" for step in reversed(path)])
    return {name for name in found if RELATIONS[path[0]].domain == kind}


def hubs(graph: Graph, form: Intersect) -> set[str]:
    """Every thing that fits all constraints."""
    return set.intersection(*(fitting(graph, form.kind, constraint) for constraint in form.constraints))


def solve(graph: Graph, form: Intersect) -> set[str]:
    """Every answer: the end of the path from each thing that fits."""
    return graph.walk(hubs(graph, form), form.tail)


def walk(graph: Graph, form: Intersect) -> list[Hop]:
    """The facts that the one answer rests on. A query holds what the question and the facts before it say.

    The first constraint is walked from its name back to the thing, which is then looked for by all that is known of it;
    the others from the thing on, to be sure of it; and then the path to the answer.
    """
    (hub,) = hubs(graph, form)
    (path, _), *others = form.constraints
    also = [f"{_said(way[0])} {value}" for way, value in others if len(way) == 1]
    hops = _back(graph, hub, path)
    hops[-1] = hops[-1]._replace(query=" ".join([hops[-1].query, *also]))
    for further in (*(path for path, _ in others), form.tail):
        hops += _forth(graph, hub, further)
    return hops


def _said(step: str) -> str:
    """What a search says of a fact before its object, where the kind of the subject is said already."""
    relation = RELATIONS[step]
    return relation.back or relation.cue.removeprefix(f"{relation.domain} ")


def _forth(graph: Graph, name: str, path: Path) -> list[Hop]:
    hops = []
    for step in path:
        hops.append(Hop(name, step, f"{name} {RELATIONS[step].cue}".strip()))
        name = graph.facts[name][step]
    return hops


def _back(graph: Graph, name: str, path: Path) -> list[Hop]:
    """From the end of the path to its start: somebody is looked for by his trade, whom he taught, where he was born."""
    hops: list[Hop] = []
    part = ""  # what the subject of the step is to the one before it
    for step in path:
        relation, value = RELATIONS[step], graph.facts[name][step]
        who = TRADES.get(part, "") if relation.domain == "person" else relation.domain if relation.back else ""
        query = " ".join(filter(None, (who, relation.back or relation.cue, value)))
        hops.insert(0, Hop(name, step, query))
        name, part = value, step
    return hops
