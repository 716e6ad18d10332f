"""Questions about a generated world: drawn by relation path, proved to have one answer, and put into words."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from seedbench.core import SeedbenchError, stream
from seedbench.envs.searchqa import paths
from seedbench.envs.searchqa.phrases import CHOSEN, DESCRIBED, INFERRED, PHRASES
from seedbench.envs.searchqa.prose import WITH_ARTICLE, Article
from seedbench.envs.searchqa.relations import Both, Chain, Compare, Form, Graph, Hop, named, solve, trace
from seedbench.envs.searchqa.stock import Entity, Level
from seedbench.envs.searchqa.world import World

KINDS_OF = {"train": paths.SEEN_KINDS, "dev": paths.SEEN_KINDS, "seen": paths.SEEN_KINDS, "unseen": paths.UNSEEN_KINDS}
ANSWERS = 150  # an answer is right for at most one question in so many of a kind
WORKS = ("film", "novel", "opera", "painting")
T = TypeVar("T")


class Asked(NamedTuple):
    """A question before it has an id."""

    kind: str
    text: str
    golds: tuple[str, ...]
    form: Form
    hops: tuple[Hop, ...]


class Source(NamedTuple):
    """What questions are drawn from."""

    world: World
    graph: Graph
    articles: Mapping[str, Article]
    level: Level
    mentions: Mapping[str, int]  # in how many facts a name is the object


def source_of(world: World, articles: Sequence[Article], level: Level) -> Source:
    """Graph and counts of a world."""
    graph = Graph({entity.name: entity.facts for entity in world.entities.values()})
    mentions = Counter(value for entity in world.entities.values() for value in entity.facts.values())
    return Source(world, graph, {article.title: article for article in articles}, level, mentions)


def draw(source: Source, seed: int, split: str, size: int) -> list[Asked]:
    """`size` questions of a split, kinds in turn. Raises SeedbenchError where the world has too few."""
    kinds = KINDS_OF[split]
    quota = [len(range(start, size, len(kinds))) for start in range(len(kinds))]
    texts: set[str] = set()
    drawn = [_of_kind(source, seed, split, kind, n, texts) for kind, n in zip(kinds, quota, strict=True)]
    return [asked for row in itertools.zip_longest(*drawn) for asked in row if asked is not None]


def _of_kind(source: Source, seed: int, split: str, kind: str, size: int, texts: set[str]) -> list[Asked]:
    rng = random.Random(stream("searchqa questions", seed, split, kind))
    answers: Counter[str] = Counter()
    ends: Counter[tuple[str, str]] = Counter()
    out: list[Asked] = []
    for form in in_turn(_groups(source, kind, split, rng)):
        if len(out) == size:
            break
        asked = _ask(source, kind, form, rng)
        if asked is None or asked.text in texts:
            continue
        gold, end = normal(asked.golds[0]), (asked.hops[-1].subject, asked.hops[-1].relation)
        if answers[gold] >= max(1, size // ANSWERS) or ends[end] >= 2:
            continue
        answers[gold] += 1
        ends[end] += 1
        texts.add(asked.text)
        out.append(asked)
    if len(out) < size:
        raise SeedbenchError(f"The world has only {len(out)} of {size} {kind} questions for {split}; ask for fewer.")
    return out


def in_turn(groups: Sequence[Iterator[T]]) -> Iterator[T]:
    """One of each group in turn, until all are used up."""
    left = list(groups)
    while left:
        for group in tuple(left):
            form = next(group, None)
            if form is None:
                left.remove(group)
            else:
                yield form


def _groups(source: Source, kind: str, split: str, rng: random.Random) -> list[Iterator[Form]]:
    """The forms of a kind in the order in which they are tried; a group that is named twice comes twice as often."""

    def chains(some: Sequence[tuple[str, ...]]) -> Iterator[Form]:
        return in_turn([_chains(source, split, path, rng, kind == "popqa") for path in some])

    def shapes(plain: Sequence[paths.Shape], bridged: Sequence[paths.Shape]) -> Iterator[Form]:
        pools = [in_turn([_compares(source, split, s, rng) for s in some]) for some in (plain, bridged)]
        while (form := next(pools[rng.random() < source.level.bridged], None)) is not None:
            yield form

    if kind == "nq":
        return [chains([(relation,) for relation in paths.NQ])]
    if kind == "popqa":
        return [chains([(relation,) for relation in paths.POPQA])]
    if kind == "triviaqa":
        return [in_turn([_described(source, split, facts, rng) for facts in DESCRIBED])]
    if kind == "hotpotqa":
        bridges = chains(paths.HOTPOT_BRIDGES)
        return [bridges, bridges, bridges, shapes(paths.HOTPOT_COMPARISONS, paths.HOTPOT_BRIDGED)]
    if kind == "2wikimultihopqa":
        compositions = chains(paths.WIKI_COMPOSITIONS)
        compared = shapes(paths.WIKI_COMPARISONS, paths.WIKI_BRIDGED)
        return [compositions, compared, chains(tuple(INFERRED)), compositions, compared]
    if kind == "bamboogle":
        return [chains(paths.BAMBOOGLE)]
    return [chains(paths.MUSIQUE[hops]) for hops in source.level.hops]


def _chains(source: Source, split: str, path: tuple[str, ...], rng: random.Random, rare: bool) -> Iterator[Form]:
    """Chains from every possible start, in random order; from the least mentioned on for `rare`."""
    first = path[0].lstrip("~")
    land = [e for e in source.world.entities.values() if e.land == split and first in e.facts]
    starts = sorted({e.facts[first] for e in land}) if path[0].startswith("~") else [e.name for e in land]
    rng.shuffle(starts)
    if rare:
        starts.sort(key=lambda name: source.mentions.get(name, 0))
    for name in starts:
        yield Chain(name, path)


def _described(source: Source, split: str, facts: tuple[str, ...], rng: random.Random) -> Iterator[Form]:
    land = [e for e in source.world.entities.values() if e.land == split and all(fact in e.facts for fact in facts)]
    rng.shuffle(land)
    for entity in land:
        yield Both(tuple((fact, entity.facts[fact]) for fact in facts))


def _compares(source: Source, split: str, shape: paths.Shape, rng: random.Random) -> Iterator[Form]:
    names = [entity.name for entity in source.world.of(split, shape.domain)]
    for _ in range(4):
        rng.shuffle(names)
        for one, other in zip(names[::2], names[1::2], strict=False):
            yield Compare(one, other, shape.prefix, shape.key, shape.later, shape.tail)


# --- from a form to a question


def _ask(source: Source, kind: str, form: Form, rng: random.Random) -> Asked | None:
    """The question of a form; None unless it has exactly one answer, of which every fact is told and none is given."""
    found = solve(source.graph, form)
    if len(found) != 1:
        return None
    for step in _ways(form):
        if any(len(source.graph.walk([name], step[: n + 1])) != 1 for name in named(form) for n in range(len(step))):
            return None
    hops = trace(source.graph, form)
    if any(hop.relation not in source.articles[hop.subject].stated for hop in hops if hop.subject in source.articles):
        return None
    answer = min(found)
    if isinstance(form, Chain) and len({form.anchor, answer, *(hop.subject for hop in hops)}) < len(form.path) + 1:
        return None  # a chain that comes back to where it was
    text = WORDING[kind](source, form, rng)
    entity = source.world.entities.get(answer)
    golds = (answer, *(entity.aliases if entity else ()))
    said = f" {normal(text)} "
    if any(f" {normal(word)} " in said for word in golds) or answer in _passed(source, form):
        return None
    return Asked(kind, text, golds, form, tuple(hops))


def _ways(form: Form) -> list[tuple[str, ...]]:
    """Paths of which each step must lead to one thing only."""
    if isinstance(form, Chain):
        return [form.path]
    return [(*form.prefix, form.key)] if isinstance(form, Compare) else []


def _passed(source: Source, form: Form) -> set[str]:
    """What a comparison names or passes through, which would make its answer one of two choices."""
    if not isinstance(form, Compare):
        return set()
    ends = {name for one in (form.one, form.other) for name in source.graph.walk([one], form.prefix)}
    tails = [source.graph.walk([end], form.tail) for end in sorted(ends)]
    return {form.one, form.other, *ends} | (tails[0] if len(tails) == 2 and tails[0] == tails[1] else set())


def normal(text: str) -> str:
    """A text as answers are compared: lower case, no ASCII punctuation, no articles, single spaces."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def _called(entity: Entity, noun: bool) -> str:
    """A name as it stands within a sentence; with the noun of its kind where wanted."""
    if noun and (entity.kind in WORKS or entity.kind == "company"):
        return f"the {entity.kind} {entity.name}"
    return f"the {entity.name}" if entity.kind in WITH_ARTICLE else entity.name


def follow(start: str, path: Sequence[str], reworded: Callable[[], bool], rng: random.Random) -> str:
    """A question that follows a path from what `start` says."""
    said = start
    for step in path[:-1]:
        phrase = PHRASES[step.lstrip("~")]
        noun = phrase.back if step.startswith("~") else phrase.noun_reworded if reworded() else phrase.noun
        said = noun.format(x=said)
    last = PHRASES[path[-1]]
    return rng.choice(last.ask_reworded if reworded() else last.ask).format(x=said)


def _worded(source: Source, form: Form, rng: random.Random, share: float) -> str:
    """The words of any form; `share` of the phrases are other than those of the passages."""

    def reworded() -> bool:
        return rng.random() < share

    entities = source.world.entities
    if isinstance(form, Both):
        relations, values = zip(*form.facts, strict=True)
        plain, other = DESCRIBED[relations]
        return (other if reworded() else plain).format(*values)
    if isinstance(form, Compare):
        a, b = (_called(entities[name], False) for name in (form.one, form.other))
        return follow(CHOSEN[form.prefix, form.key, form.later].format(a=a, b=b), form.tail, reworded, rng)
    if form.path in INFERRED:
        return rng.choice(INFERRED[form.path]).format(x=form.anchor)
    start = _called(entities[form.anchor], rng.random() < 0.7 or share == 1)
    return follow(start, form.path, reworded, rng)


def _plain(source: Source, form: Form, rng: random.Random) -> str:
    return _worded(source, form, rng, 0.0)


def _varied(source: Source, form: Form, rng: random.Random) -> str:
    return _worded(source, form, rng, source.level.reworded)


def _lower(source: Source, form: Form, rng: random.Random) -> str:
    text = _varied(source, form, rng)
    return text[0].lower() + text[1:]


def _template(source: Source, form: Form, rng: random.Random) -> str:
    """PopQA's: one template a relation."""
    assert isinstance(form, Chain)
    entity = source.world.entities[form.anchor]
    return PHRASES[form.path[0]].ask[0].format(x=_called(entity, False))


WORDING: Mapping[str, Callable[[Source, Form, random.Random], str]] = {
    "nq": _lower,
    "triviaqa": _varied,
    "popqa": _template,
    "hotpotqa": _varied,
    "2wikimultihopqa": _plain,
    "musique": _varied,
    "bamboogle": _plain,
}
