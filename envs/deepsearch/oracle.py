"""The oracle: the next move of somebody who knows which pages and sentences a question rests on.

It knows the evidence but searches as one who does not: each hop's query holds only what the question and the hops
before it say. A hop is done when its page was read at the right place; after the last it answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from seedbench.envs.deepsearch.pages import best_window
from seedbench.envs.deepsearch.tags import Move
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.oracle import queries
from seedbench.envs.searchqa.prose import sentences


def next_move(
    question: Question,
    listed: Mapping[str, int],
    read: Collection[tuple[str, int]],
    searched: Collection[str],
    pages: Mapping[str, Sequence[str]],
) -> Move | None:
    """Search, visit or answer; None where the evidence or a further query is not known.

    `listed` numbers the documents that were listed, `pages` holds their windows, `read` (document, window) of every
    visit, `searched` the queries so far.
    """
    if not question.evidence or not question.golds:
        return None
    for place, hop in enumerate(question.evidence):
        if hop.passage not in listed:
            query = next((query for query in queries(question, place, hop) if query not in searched), None)
            return None if query is None else Move("search", query)
        page = pages[hop.passage]
        window = window_of(page, hop.sentence)
        if (hop.passage, window) not in read:
            ahead = next((n for n in range(len(page)) if (hop.passage, n) not in read), 0)
            goal = hop.query if window != ahead and best_window(page, hop.query) == window else ""
            return Move("visit", goal, listed[hop.passage])
    return Move("answer", question.golds[0])


def window_of(page: Sequence[str], sentence: int) -> int:
    """The window in which a sentence of a page begins; the first where it is not known."""
    if sentence < 0:
        return 0
    ends = 0
    for number, window in enumerate(page):
        ends += len(sentences(window))
        if sentence < ends:
            return number
    return len(page) - 1
