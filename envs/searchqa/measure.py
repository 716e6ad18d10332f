"""What generated questions are worth: how the oracle fares, and how far one gets without following the hops."""

from __future__ import annotations

from collections.abc import Sequence

from seedbench.core import Retriever
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.oracle import next_action

TURNS, TOP_K = 8, 3


def measure(retriever: Retriever, questions: Sequence[Question]) -> dict[str, float]:
    """What the rows of `data generate` show.

    `oracle`: the share that the oracle answers within 8 turns of 3 passages; `searches`: how many it needs on average;
    `bare`: the share, among questions of several passages, of those whose own words find the last gold passage.
    """
    needed = [searches(retriever, question) for question in questions]
    solved = [n for n in needed if n is not None]
    several = [q for q in questions if len({e.passage for e in q.evidence}) > 1]
    bare = [found_bare(retriever, question) for question in several]
    return {
        "oracle": len(solved) / max(len(needed), 1),
        "searches": sum(solved) / max(len(solved), 1),
        "bare": sum(bare) / max(len(bare), 1),
    }


def searches(retriever: Retriever, question: Question, turns: int = TURNS, k: int = TOP_K) -> int | None:
    """How many searches the oracle needs before it answers; None where it does not within so many turns."""
    retrieved: set[str] = set()
    searched: list[str] = []
    for _ in range(turns):
        action = next_action(question, retrieved, searched)
        if action is None or action.startswith("<answer>"):
            return len(searched) if action else None
        searched.append(action.removeprefix("<search>").removesuffix("</search>"))
        retrieved |= {passage.id for passage in retriever.search(searched[-1:], k)[0]}
    return None


def found_bare(retriever: Retriever, question: Question, k: int = TOP_K) -> bool:
    """Whether the question itself, as a query, finds the passage that the answer stands in."""
    return question.evidence[-1].passage in {passage.id for passage in retriever.search([question.question], k)[0]}
