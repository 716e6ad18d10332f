"""How the oracle fares with a question over an index, without an environment: what the generator keeps questions by."""

from __future__ import annotations

from seedbench.core import Retriever
from seedbench.envs.deepsearch.oracle import next_move
from seedbench.envs.deepsearch.pages import best_window, windows
from seedbench.envs.deepsearch.shown import SMALL, Shown
from seedbench.envs.searchqa.data import Question


def steps(retriever: Retriever, question: Question, shown: Shown = SMALL) -> int | None:
    """How many steps the oracle needs, the answer included; None where it does not get there in `shown.max_steps`, or
    only by searching for the whole question.
    """
    listed: dict[str, int] = {}
    pages: dict[str, list[str]] = {}
    read: set[tuple[str, int]] = set()
    searched: list[str] = []
    for step in range(1, shown.max_steps + 1):
        move = next_move(question, listed, read, searched, pages)
        if move is None or move.kind == "answer":
            return step if move else None
        if move.kind == "search":
            if question.question in move.content:
                return None
            searched.append(move.content)
            for hit in retriever.search([move.content], shown.top_k)[0]:
                listed.setdefault(hit.id, len(listed) + 1)
                pages[hit.id] = windows(hit.text, shown.window)
        else:
            (page,) = (name for name, number in listed.items() if number == move.number)
            read.add((page, next_window(pages[page], {n for p, n in read if p == page}, move.content)))
    return None


def next_window(page: list[str], read: set[int], goal: str) -> int:
    """The window that a visit shows: the one that the goal picks, or the first that was not read yet, or the first."""
    if goal:
        return best_window(page, goal)
    return next((number for number in range(len(page)) if number not in read), 0)
