"""Questions of 3 to 6 hops about search-QA's encyclopedia: a pure function of (seed, level, sizes).

    made = generate(seed=0, level=2, sizes=SIZES)
    made.passages, made.questions["seen"], made.forms[question.id]

At the default sizes the encyclopedia of (seed, level) is the one that search-QA generates, whose passages the embedded
`mini` set shares.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple

from seedbench.core import Passage, SeedbenchError, stream
from seedbench.envs.deepsearch import rehearse
from seedbench.envs.deepsearch.forms import Intersect
from seedbench.envs.deepsearch.questions import KINDS, Asked, Spread, draw, stated
from seedbench.envs.searchqa.data import Evidence, Question
from seedbench.envs.searchqa.generate import digest_of
from seedbench.envs.searchqa.prose import common_words, write
from seedbench.envs.searchqa.questions import Source, source_of
from seedbench.envs.searchqa.relations import Graph
from seedbench.envs.searchqa.retrieval import K1, B
from seedbench.envs.searchqa.stock import LANDS, LEVELS
from seedbench.envs.searchqa.world import build
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.porter import stem

SIZES = {"train": 1200, "dev": 120, "seen": 240, "unseen": 240}
Progress = Callable[[int, int], None]


class Search(NamedTuple):
    """Passages by ascending id, questions by split with kinds in turn, each question's form, and the world's facts."""

    passages: list[Passage]
    questions: dict[str, list[Question]]
    forms: dict[str, Intersect]
    facts: Graph
    told: Graph  # of those, what the passages say


def generate(
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    prefix: str = "deepsearch-generated",
    progress: Progress = lambda done, total: None,
) -> Search:
    """A world with a land for each split, and questions that the oracle answers within the steps of `mini`. Level 0
    asks for numbers alone, in the world of level 1: for policies too small to point to a name.

    Raises SeedbenchError for an unknown level or split, and for more questions than the world can be asked.
    """
    if level and level not in LEVELS:
        raise SeedbenchError(
            f"Deep search's generator has no level {level}; choose one of 0, {', '.join(map(str, LEVELS))}."
        )
    style = LEVELS[level or 1]
    if unknown := set(sizes) - set(LANDS):
        raise SeedbenchError(f"Questions are generated for {', '.join(LANDS)}, not for {min(unknown)!r}.")
    scale = {land: max(1.0, sizes.get(land, 0) / SIZES[land]) for land in LANDS}
    world = build(seed, style, scale, frozenset(stem(word) for word in common_words()))
    articles = write(world, seed, style)
    order = list(articles)
    random.Random(stream("searchqa order", seed)).shuffle(order)
    passages = [Passage(f"p{number:05}", a.title, a.text, 0.0) for number, a in enumerate(order)]
    source = source_of(world, articles, style)
    made = Search(passages, {}, {}, source.graph, stated(source))
    writer = _Writer(source, passages, prefix, numbers=level == 0)
    for split, size in sizes.items():
        kinds = [writer.of_kind(seed, split, kind, n) for kind, n in zip(KINDS, _quota(size), strict=True)]
        made.questions[split] = []
        for asked in (one for row in zip_longest(*kinds) for one in row if one is not None):
            question, form = asked
            if question.id in made.forms:
                raise SeedbenchError(f"Two questions have the id {question.id}; choose another seed.")
            made.forms[question.id] = form
            made.questions[split].append(question)
            progress(len(made.forms), sum(sizes.values()))
    return made


def _quota(size: int) -> list[int]:
    return [len(range(start, size, len(KINDS))) for start in range(len(KINDS))]


class _Writer:
    """Makes questions of what was drawn, with evidence hop by hop, and keeps those that the oracle answers."""

    def __init__(self, source: Source, passages: Sequence[Passage], prefix: str, numbers: bool):
        self.source, self.prefix, self.numbers = source, prefix, numbers
        self.by_title = {passage.title: passage for passage in passages}
        self.index = Bm25(passages, k1=K1, b=B)
        self.texts: set[str] = set()

    def of_kind(self, seed: int, split: str, kind: str, size: int) -> list[tuple[Question, Intersect]]:
        """`size` questions. Raises SeedbenchError where the world has too few."""
        out: list[tuple[Question, Intersect]] = []
        spread = Spread(size)
        for asked in draw(self.source, seed, split, kind):
            if len(out) == size:
                break
            if asked.text in self.texts or not spread.open(asked):
                continue
            if self.numbers and not asked.golds[0].isdecimal():
                continue
            question = self._question(asked)
            if rehearse.steps(self.index, question) is not None:
                spread.count(asked)
                self.texts.add(asked.text)
                out.append((question, asked.form))
        if len(out) < size:
            raise SeedbenchError(
                f"The world has only {len(out)} of {size} {kind} questions for {split}; ask for fewer."
            )
        return out

    def _question(self, asked: Asked) -> Question:
        evidence: dict[tuple[str, int], Evidence] = {}
        for hop in asked.hops:
            passage, sentence = self.by_title[hop.subject], self.source.articles[hop.subject].stated[hop.relation]
            evidence.setdefault((passage.id, sentence), Evidence(passage.id, passage.title, sentence, hop.query))
        question = Question("", asked.text, asked.golds, asked.kind, tuple(evidence.values()))
        digest = digest_of(question, [self.by_title[e.title] for e in question.evidence])
        return replace(question, id=f"{self.prefix}/{asked.kind}/{digest[:8]}")
