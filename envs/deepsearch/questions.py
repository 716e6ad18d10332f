"""Questions about a generated world: drawn pattern by pattern, proved to have one answer, and put into words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seedbench.core import stream
from seedbench.envs.deepsearch.forms import Constraint, Intersect, Path, fitting, hubs, solve, walk
from seedbench.envs.deepsearch.patterns import Pattern, patterns
from seedbench.envs.searchqa.questions import Source, follow, in_turn, normal
from seedbench.envs.searchqa.relations import Graph, Hop

KINDS = ("3-hop", "4-hop", "5-hop", "6-hop")
ANSWERS = 60  # an answer is right for at most one question in so many of a kind, but for two in any case
LEAST = 2  # things that fit any one constraint: none does alone

ROLES: Mapping[str, str] = {  # what a relation's object is called after "whose"
    "director": "director", "star": "lead actor", "score": "composer", "studio": "studio", "source": "source novel",
    "author": "author", "publisher": "publisher", "setting": "town of the plot", "founder": "founder",
    "headquarters": "home town", "parent": "parent company", "seat": "town", "rector": "first rector",
    "architect": "architect", "site": "town", "winner": "first winner", "course": "town", "sponsor": "sponsor",
    "composer": "composer", "stage": "town of the premiere", "librettist": "librettist", "painter": "painter",
    "museum": "museum", "birthplace": "home town", "father": "father", "mother": "mother", "spouse": "spouse",
    "teacher": "teacher", "university": "university", "employer": "employer",
}  # fmt: skip
SAID: Mapping[str, str] = {  # what is told of a subject, in the words of the passages
    "birthplace": "was born in {}", "born": "was born in {}", "father": "was a child of {}",
    "mother": "was a child of {}", "spouse": "was married to {}", "teacher": "was a pupil of {}",
    "university": "studied at {}", "employer": "worked for {}", "country": "lies in {}",
    "river": "lies on the river {}",
    "director": "was directed by {}", "released": "was released in {}", "score": "has music by {}",
    "star": "has {} in the leading role", "studio": "was made by the studio {}", "source": "is based on the novel {}",
    "author": "was written by {}", "published": "was published in {}", "publisher": "was published by {}",
    "setting": "is set in {}", "founder": "was founded by {}", "established": "was founded in {}",
    "headquarters": "has its head office in {}", "parent": "belongs to {}", "seat": "is in {}",
    "architect": "was designed by {}", "site": "stands in {}", "opened": "was opened in {}",
    "winner": "was first won by {}", "course": "is held in {}", "first_held": "was first held in {}",
    "sponsor": "has {} as its sponsor", "composer": "was composed by {}", "stage": "was first performed in {}",
    "premiere": "was first performed in {}", "librettist": "has a libretto by {}", "painter": "was painted by {}",
    "museum": "hangs in the {}", "painted": "was painted in {}",
}  # fmt: skip


class Asked(NamedTuple):
    """A question before it has an id."""

    text: str
    golds: tuple[str, ...]
    form: Intersect
    hops: tuple[Hop, ...]

    @property
    def kind(self) -> str:
        return f"{self.form.hops}-hop"


def draw(source: Source, seed: int, split: str, kind: str) -> Iterator[Asked]:
    """Questions of a kind without end of the patterns' supply, patterns in turn, each thing and answer a few times."""
    rng = random.Random(stream("deepsearch questions", seed, split, kind))
    told = stated(source)
    chosen = [pattern for pattern in patterns(split) if f"{pattern.hops}-hop" == kind]
    rng.shuffle(chosen)
    for form in in_turn([_forms(source, told, split, pattern, rng) for pattern in chosen]):
        asked = ask(source, told, form, rng)
        if asked is not None:
            yield asked


class Spread:
    """Keeps questions of a kind apart: an answer, or a way to it, comes up only so often."""

    def __init__(self, size: int):
        self.most = max(2, size // ANSWERS)
        self.answers: Counter[str] = Counter()
        self.ends: Counter[tuple[str, Path]] = Counter()

    def open(self, asked: Asked) -> bool:
        """Whether one more such question may be asked."""
        return self.answers[normal(asked.golds[0])] < self.most and self.ends[_end(asked)] < 2

    def count(self, asked: Asked) -> None:
        """It was asked."""
        self.answers[normal(asked.golds[0])] += 1
        self.ends[_end(asked)] += 1


def _end(asked: Asked) -> tuple[str, Path]:
    return asked.hops[-1].subject, asked.form.tail


def stated(source: Source) -> Graph:
    """The facts that a passage tells of, among all facts of the world."""
    known = source.articles
    return Graph({
        name: {relation: value for relation, value in facts.items() if relation in known[name].stated}
        for name, facts in source.graph.facts.items()
    })  # fmt: skip


def _forms(source: Source, told: Graph, split: str, pattern: Pattern, rng: random.Random) -> Iterator[Intersect]:
    """The forms of a pattern in a land, one for each thing of which all that is needed is told."""
    things = source.world.of(split, pattern.kind)
    rng.shuffle(things)
    for thing in things:
        ends = [told.walk([thing.name], path) for path in pattern.paths]
        if all(len(end) == 1 for end in ends):
            constraints = tuple((path, min(end)) for path, end in zip(pattern.paths, ends, strict=True))
            yield Intersect(pattern.kind, constraints, pattern.tail)


def ask(source: Source, told: Graph, form: Intersect, rng: random.Random) -> Asked | None:
    """The question of a form; None unless exactly one thing fits among all facts of the world, no constraint alone
    singles it out, every fact of the way is told, and the answer is no name that the question says or the way passes.
    """
    if len(hubs(source.graph, form)) != 1 or len(answers := solve(told, form)) != 1:
        return None
    if any(len(fitting(told, form.kind, constraint)) < LEAST for constraint in form.constraints):
        return None
    hops = walk(told, form)
    answer = min(answers)
    passed = {hop.subject for hop in hops} | {value for _, value in form.constraints}
    text = worded(source, form, rng)
    entity = source.world.entities.get(answer)
    golds = (answer, *(entity.aliases if entity else ()))
    said = f" {normal(text)} "
    if answer in passed or any(f" {normal(gold)} " in said for gold in golds):
        return None
    return Asked(text, golds, form, tuple(hops))


def worded(source: Source, form: Intersect, rng: random.Random) -> str:
    """What is known of the thing, and the question."""
    kind = form.kind
    clauses = " and ".join(_clause(kind, constraint) for constraint in form.constraints)
    known = f"There {'was' if kind == 'person' else 'is'} {'an' if kind == 'opera' else 'a'} {kind} {clauses}."

    def reworded() -> bool:
        return rng.random() < source.level.reworded - 0.4  # mini's level asks in the passages' words

    return f"{known} {follow(f'that {kind}', form.tail, reworded, rng)}"


def _clause(kind: str, constraint: Constraint) -> str:
    (*steps, last), value = constraint
    said = SAID[last].format(value)
    if not steps:
        return f"{'who' if kind == 'person' else 'which'} {said}"
    owner = "'s ".join(ROLES[step] for step in steps)
    return f"whose {owner} {said}"
