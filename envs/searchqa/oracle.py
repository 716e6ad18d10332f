"""The oracle: the next search or answer of somebody who knows which passages a question rests on.

It knows the evidence but searches as one who does not: each hop's query holds only what the question and the hops
before it say. It answers once every gold passage has been retrieved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from seedbench.envs.searchqa.data import Evidence, Question


def next_action(question: Question, retrieved: Collection[str], searched: Collection[str]) -> str | None:
    """`<search>...</search>` or `<answer>...</answer>`; None where the evidence or a further query is not known.

    `retrieved` holds the ids of all passages that any search has brought up so far, `searched` the queries of those
    searches. A hop whose gold passage was not found is searched for again in other words.
    """
    if not question.evidence or not question.golds:
        return None
    for place, hop in enumerate(question.evidence):
        if hop.passage not in retrieved:
            fresh = (query for query in queries(question, place, hop) if query not in searched)
            query = next(fresh, None)
            return f"<search>{query}</search>" if query else None
    return f"<answer>{question.golds[0]}</answer>"


def queries(question: Question, place: int, hop: Evidence) -> Iterator[str]:
    """What to search for at a hop, best first. Where its query is not known: the question, then the gold title."""
    if not hop.query:
        yield from (question.question, hop.title)
        return
    yield hop.query
    if hop.title in " ".join([question.question, *(e.query for e in question.evidence[: place + 1])]):
        yield hop.title  # known by then, else it would be the answer of this hop
    yield f"{hop.query} {question.question}"
