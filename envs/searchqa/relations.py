"""The relations of a generated world, and a solver that finds every answer of a question's logical form.

    form = Chain("The Road to Zuvarel", ("director", "birthplace"))
    solve(graph, form)                     # {"Tavora"}

A step is the name of a relation, from subject to object, or that name after "~", from object to subjects. Each
relation has at most one object, so only a step back can lead to several answers. `trace` gives the facts that an
answer rests on, one a hop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Relation(NamedTuple):
    """What a relation joins. `cue` is what a query says of it, `back` what it says from object to subject."""

    domain: str
    range: str  # the kind of the object; "year" and "number" are plain values
    cue: str
    back: str = ""


RELATIONS: Mapping[str, Relation] = {
    "birthplace": Relation("person", "city", "born", "born in"),
    "born": Relation("person", "year", "born", "in"),
    "died": Relation("person", "year", "died"),
    "profession": Relation("person", "word", ""),
    "father": Relation("person", "person", "father"),
    "mother": Relation("person", "person", "mother"),
    "spouse": Relation("person", "person", "married"),
    "teacher": Relation("person", "person", "teacher"),
    "university": Relation("person", "university", "studied"),
    "employer": Relation("person", "company", "worked for"),
    "country": Relation("city", "country", "town in"),
    "settled": Relation("city", "year", "town founded"),
    "river": Relation("city", "river", "river"),
    "mayor": Relation("city", "person", "first mayor"),
    "twin": Relation("city", "city", "twinned"),
    "population": Relation("city", "number", "inhabitants"),
    "capital": Relation("country", "city", "capital"),
    "independence": Relation("country", "year", "independent"),
    "president": Relation("country", "person", "first president"),
    "director": Relation("film", "person", "film directed", "directed by"),
    "released": Relation("film", "year", "film released"),
    "score": Relation("film", "person", "film music", "with music by"),
    "star": Relation("film", "person", "film leading role", "with the leading role"),
    "studio": Relation("film", "company", "film studio"),
    "source": Relation("film", "novel", "film based on novel", "based on"),
    "author": Relation("novel", "person", "novel written", "written by"),
    "published": Relation("novel", "year", "novel published"),
    "publisher": Relation("novel", "company", "novel publisher"),
    "setting": Relation("novel", "city", "novel set in", "set in"),
    "pages": Relation("novel", "number", "novel pages"),
    "founder": Relation("company", "person", "company founded by", "founded by"),
    "established": Relation("company", "year", "company founded in"),
    "headquarters": Relation("company", "city", "company head office", "head office in"),
    "parent": Relation("company", "company", "company belongs to"),
    "seat": Relation("university", "city", "university in"),
    "chartered": Relation("university", "year", "university charter"),
    "rector": Relation("university", "person", "university first rector"),
    "architect": Relation("building", "person", "architect", "designed by the architect"),
    "site": Relation("building", "city", "stands in", "stands in"),
    "opened": Relation("building", "year", "opened"),
    "height": Relation("building", "number", "metres high"),
    "winner": Relation("race", "person", "first race winner", "won by"),
    "course": Relation("race", "city", "race held in", "held in"),
    "first_held": Relation("race", "year", "race first held"),
    "sponsor": Relation("race", "company", "race sponsor"),
    "composer": Relation("opera", "person", "opera composer", "composed by"),
    "stage": Relation("opera", "city", "opera first performed in", "first performed in"),
    "premiere": Relation("opera", "year", "opera first performed"),
    "librettist": Relation("opera", "person", "opera libretto"),
    "painter": Relation("painting", "person", "painter", "by the painter"),
    "museum": Relation("painting", "building", "painting museum", "in the"),
    "painted": Relation("painting", "year", "painted"),
}


class Graph:
    """Facts by subject, and back by object. `kinds` gives the kind of each subject."""

    def __init__(self, facts: Mapping[str, Mapping[str, str]]):
        self.facts = facts
        self._back: dict[tuple[str, str], list[str]] = {}
        for subject, known in facts.items():
            for relation, value in known.items():
                self._back.setdefault((relation, value), []).append(subject)

    def step(self, names: Iterable[str], step: str) -> set[str]:
        """All that one step leads to from any of `names`."""
        if step.startswith("~"):
            return {subject for name in names for subject in self._back.get((step[1:], name), ())}
        return {self.facts[name][step] for name in names if step in self.facts.get(name, ())}

    def walk(self, names: Iterable[str], path: Iterable[str]) -> set[str]:
        """All that a path leads to."""
        reached = set(names)
        for step in path:
            reached = self.step(reached, step)
        return reached


class Chain(NamedTuple):
    """Follow a path from a named thing."""

    anchor: str
    path: tuple[str, ...]


class Both(NamedTuple):
    """The subject of several facts at once: (relation, object) pairs."""

    facts: tuple[tuple[str, str], ...]


class Compare(NamedTuple):
    """Follow `prefix` from two named things, take where the year `key` is earlier (or later), and follow `tail`."""

    one: str
    other: str
    prefix: tuple[str, ...]
    key: str
    later: bool
    tail: tuple[str, ...]


Form = Chain | Both | Compare


class Hop(NamedTuple):
    """A fact that an answer rests on, and what is searched for to find it."""

    subject: str
    relation: str
    query: str


def solve(graph: Graph, form: Form) -> set[str]:
    """Every answer of a form. A comparison of equals, or of what is not known, has none."""
    if isinstance(form, Chain):
        return graph.walk([form.anchor], form.path)
    if isinstance(form, Both):
        found = [graph.step([value], f"~{relation}") for relation, value in form.facts]
        return set.intersection(*found)
    ends = [graph.walk([name], form.prefix) for name in (form.one, form.other)]
    years = [graph.walk(end, [form.key]) for end in ends]
    if any(len(end) != 1 for end in ends) or any(len(year) != 1 for year in years) or years[0] == years[1]:
        return set()
    return graph.walk(ends[_chosen(graph, form)], form.tail)


def _chosen(graph: Graph, form: Compare) -> int:
    """Which of the two things a comparison takes: 0 or 1."""
    one, other = (int(min(graph.walk([name], (*form.prefix, form.key)))) for name in (form.one, form.other))
    return int((one < other) == form.later)


def path_of(form: Form) -> tuple[str, ...]:
    """The relation path of a form, by which `unseen` differs from what is trained on."""
    if isinstance(form, Chain):
        return form.path
    if isinstance(form, Both):
        return ("&".join(f"~{relation}" for relation, _ in form.facts),)
    return (*form.prefix, f"{'later' if form.later else 'earlier'}:{form.key}", *form.tail)


def named(form: Form) -> tuple[str, ...]:
    """What the question itself names."""
    if isinstance(form, Chain):
        return (form.anchor,)
    if isinstance(form, Both):
        return tuple(value for _, value in form.facts)
    return form.one, form.other


def trace(graph: Graph, form: Form) -> list[Hop]:
    """The facts of the one answer, in the order in which they can be found. A query holds what is known by then."""
    if isinstance(form, Chain):
        return _follow(graph, form.anchor, form.path)
    if isinstance(form, Both):
        relations = [relation for relation, _ in form.facts]
        first = RELATIONS[relations[0]]
        said = [f"{RELATIONS[relation].back} {value}".strip() for relation, value in form.facts]
        query = " ".join(said if first.domain == "person" else [first.domain, *said])
        return [Hop(min(solve(graph, form)), relation, query) for relation in relations if relation != "profession"]
    ends = [min(graph.walk([name], form.prefix)) for name in (form.one, form.other)]
    hops = []
    for name in (form.one, form.other):
        hops += _follow(graph, name, (*form.prefix, form.key))
    return hops + _follow(graph, ends[_chosen(graph, form)], form.tail)


def _follow(graph: Graph, name: str, path: Iterable[str]) -> list[Hop]:
    hops = []
    for step in path:
        reached = min(graph.step([name], step))
        relation = RELATIONS[step.lstrip("~")]
        if step.startswith("~"):
            hops.append(Hop(reached, step[1:], f"{relation.domain} {relation.back} {name}"))
        else:
            hops.append(Hop(name, step, f"{name} {relation.cue}"))
        name = reached
    return hops
