"""An encyclopedia of our own making and questions about it: a pure function of (seed, level, sizes).

    made = generate(seed=0, level=2, sizes={"train": 2400, "dev": 240, "seen": 300, "unseen": 300})
    made.passages, made.questions["seen"], made.forms[question.id]

The embedded `mini` set was made by this once and frozen (seedbench.envs.searchqa.freeze), so a change here changes no
exam.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from seedbench.core import Passage, SeedbenchError, stream
from seedbench.envs.searchqa.data import Evidence, Question
from seedbench.envs.searchqa.prose import common_words, write
from seedbench.envs.searchqa.questions import Asked, Source, draw, source_of
from seedbench.envs.searchqa.relations import Form, Graph
from seedbench.envs.searchqa.stock import LANDS, LEVELS
from seedbench.envs.searchqa.world import build
from seedbench.indexes.bm25 import document_digest
from seedbench.indexes.porter import stem
from seedbench.prompts import sha256_json

SIZES = {"train": 2400, "dev": 240, "seen": 300, "unseen": 300}
Progress = Callable[[int, int], None]


class Encyclopedia(NamedTuple):
    """Passages by ascending id, questions by split with kinds in turn, and each question's logical form by id."""

    passages: list[Passage]
    questions: dict[str, list[Question]]
    forms: dict[str, Form]
    graph: Graph


def generate(
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    prefix: str = "searchqa-generated",
    progress: Progress = lambda done, total: None,
) -> Encyclopedia:
    """A world of which every split has a land of its own, at least as large as in the embedded set.

    Raises SeedbenchError for an unknown level or split, and for more questions than the world can be asked.
    """
    if level not in LEVELS:
        known = ", ".join(map(str, LEVELS))
        raise SeedbenchError(f"Search-QA's generator has no level {level}; choose one of {known}.")
    if unknown := set(sizes) - set(LANDS):
        raise SeedbenchError(f"Questions are generated for {', '.join(LANDS)}, not for {min(unknown)!r}.")
    common = frozenset(stem(word) for word in common_words())
    scale = {land: max(1.0, sizes.get(land, 0) / SIZES[land]) for land in LANDS}
    world = build(seed, LEVELS[level], scale, common)
    articles = write(world, seed, LEVELS[level])
    order = list(articles)
    random.Random(stream("searchqa order", seed)).shuffle(order)
    passages = [Passage(f"p{number:05}", a.title, a.text, 0.0) for number, a in enumerate(order)]
    by_title = {passage.title: passage for passage in passages}
    source = source_of(world, articles, LEVELS[level])
    made = Encyclopedia(passages, {}, {}, source.graph)
    for split, size in sizes.items():
        made.questions[split] = []
        for asked in draw(source, seed, split, size):
            question = _question(asked, source, by_title, prefix)
            if question.id in made.forms:
                raise SeedbenchError(f"Two questions have the id {question.id}; choose another seed.")
            made.forms[question.id] = asked.form
            made.questions[split].append(question)
            progress(len(made.forms), sum(sizes.values()))
    return made


def _question(asked: Asked, source: Source, by_title: Mapping[str, Passage], prefix: str) -> Question:
    """With evidence hop by hop, each sentence once, and an id that its content gives."""
    evidence: dict[tuple[str, int], Evidence] = {}
    for hop in asked.hops:
        passage, sentence = by_title[hop.subject], source.articles[hop.subject].stated[hop.relation]
        evidence.setdefault((passage.id, sentence), Evidence(passage.id, passage.title, sentence, hop.query))
    question = Question("", asked.text, asked.golds, asked.kind, tuple(evidence.values()))
    digest = digest_of(question, [by_title[e.title] for e in question.evidence])
    return replace(question, id=f"{prefix}/{asked.kind}/{digest[:8]}")


def digest_of(question: Question, gold_passages: Sequence[Passage]) -> str:
    """sha256 hex of what a task asks: the question with answers and evidence, and the passages of that evidence."""
    evidence = [[e.passage, e.title, e.sentence, e.query] for e in question.evidence]
    passages = [document_digest(p.id, p.title, p.text).hex() for p in gold_passages]
    return sha256_json([question.question, list(question.golds), question.kind, evidence, passages])
