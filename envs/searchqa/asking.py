"""What the environments have in common whose episodes ask one question about a collection of documents."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Self

import numpy as np

from seedbench.core import Anchor, EpisodeOver, Info, Passage, Retriever, Task, TextEnv, Trajectory
from seedbench.envs.searchqa import scoring, tags
from seedbench.envs.searchqa.data import Dataset, Question
from seedbench.envs.searchqa.retrieval import find

LONGEST_QUERY = 10_000  # characters of a query that are searched for
LONGEST_ACTION = 100_000  # characters of an action that are read, here as over HTTP, where no more are sent
MOST_HITS = 100


class AskingInfo(Info):
    """Info with the task's id; em, f1 and sub_em of the answer (0.0 before it); ids of the documents that this step
    showed; and the share of the gold documents that were shown so far (0.0 where none is known)."""

    task: str
    em: float
    f1: float
    sub_em: float
    retrieved: list[str]
    evidence: float


class AskingEnv(TextEnv):
    """An environment of questions: their answers, evidence and documents. All that an episode holds is immutable."""

    dataset: Dataset
    _retriever_name: str | None = None
    _question: Question | None = None
    _goal = ""  # the question as it is shown
    _steps, _over = 0, True

    @abstractmethod
    def _open_retriever(self) -> Retriever:
        """What is searched."""

    @cached_property
    def retriever(self) -> Retriever:
        """Opened when it is first needed, so that questions can be listed without an index."""
        return self._open_retriever()

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether the retriever is a server."""
        return (self._retriever_name or "").startswith(("http://", "https://"))

    @property
    def replay(self) -> Literal["exact", "score"]:  # type: ignore[override]
        """exact where the same query finds the same documents anywhere; an approximate index promises less."""
        return "exact" if getattr(self.retriever, "exact", False) else "score"

    @property
    def _documents(self) -> Dataset:
        """Whose passages are searched where no index is named."""
        return self.dataset

    def tasks(self, split: str) -> Sequence[Task]:
        return self.dataset.tasks(split)

    def pinned(self, split: str) -> bool:
        return self.dataset.pinned(split)

    def answers(self, task: Task) -> tuple[str, ...]:
        return self.dataset.question(task.id).golds

    def secrets(self, task: Task) -> tuple[str, ...]:
        """The answers, and the titles of gold documents that the question does not name."""
        question = self.dataset.question(task.id)
        named = scoring.normalise(question.question)
        titles = [hop.title for hop in question.evidence if scoring.normalise(hop.title) not in named]
        return tuple(dict.fromkeys(filter(None, (*question.golds, *titles))))

    def document(self, task: Task, anchor: Anchor) -> str | None:
        found = self._document(anchor.source, anchor.text)
        return None if found is None else found.text

    def _document(self, name: str, words: str) -> Passage | None:
        """By its id: of those that come with the questions, else of what a search for some of its words finds."""
        if own := self._documents.by_id:
            return own.get(name)
        return next((hit for hit in find(self.retriever, words, MOST_HITS) if hit.id == name), None)

    def clone(self) -> Self:
        other = copy.copy(self)
        if self._np_random is not None:
            other._np_random = copy.deepcopy(self._np_random)
        return other

    def _asked(self) -> Question:
        if self._question is None:
            raise EpisodeOver("no episode has begun: call reset() first")
        return self._question

    def _gold(self) -> frozenset[str]:
        """Ids of the documents that the question rests on; none where that is not known."""
        return frozenset(hop.passage for hop in self._asked().evidence)

    def _some_words(self, rng: np.random.Generator) -> str:
        """One to four words of the question, in its order."""
        words = self._goal.split()
        chosen = rng.permutation(len(words))[: int(rng.integers(1, 5))]
        return " ".join(words[i] for i in sorted(chosen))

    def _about(
        self, reason: str, admissible: list[str], answer: str | None, won: bool, shown: Sequence[str], seen: set[str]
    ) -> AskingInfo:
        """Info after a step that showed the documents `shown`; `seen` are those of the whole episode."""
        question = self._asked()
        em, f1, sub_em = (
            0.0 if answer is None else float(mark(answer, question.golds))
            for mark in (scoring.exact_match, scoring.f1, scoring.substring_match)
        )
        gold = self._gold()
        return {
            "goal": self._goal,
            "kind": question.kind,
            "admissible": admissible,
            "is_action_valid": not reason,
            "invalid_reason": reason,
            "won": won,
            "score": float(won),
            "steps": self._steps,
            "task": question.id,
            "em": em,
            "f1": f1,
            "sub_em": sub_em,
            "retrieved": list(shown),
            "evidence": len(gold & seen) / len(gold) if gold else 0.0,
        }

    def _again(self, trajectory: Trajectory) -> Self:
        """A copy that has played the episode."""
        other = self.clone()
        other.reset(seed=trajectory.seed, options={"task": trajectory.task.id})
        for step in trajectory.steps:
            other.step(step.action)
            if other._over:
                break
        return other


def typed(line: str, names: Sequence[str]) -> str:
    """A tag and what goes into it (`search words`) as the action that it means; any other text as it stands."""
    tag, _, rest = line.partition(" ")
    return tags.block(tag.lower(), rest.strip()) if tag.lower() in names and rest.strip() else line
