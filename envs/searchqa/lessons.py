"""What an episode of search-QA teaches, by rule: which relation to search for first, then which, and when to answer.

Where the task names its relation path (`mini` and generated folders) the words are those with which the passages of our
world state a relation; elsewhere the number of passages that the answer rests on is all that is known. No name, no
title and no answer is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seedbench.core import Lesson, Trajectory
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.relations import RELATIONS
from seedbench.envs.searchqa.scoring import normalise
from seedbench.envs.searchqa.tags import Move

_KIND = {"city": "town", "word": "trade"}
_WHOLE = 0.7  # share of the question's words in a query from which on it counts as the whole question


class Played(NamedTuple):
    """An episode as the environment read it: each turn's move, and all ids of passages found by its end."""

    moves: Sequence[Move]
    found: frozenset[str]


def learn(trajectory: Trajectory, question: Question, played: Played) -> Lesson | None:
    """The lesson of one episode. None for one that broke off, has no step, or whose lesson would hold the answer."""
    if not trajectory.steps or trajectory.ended == "error":
        return None
    recipe = " ".join(_recipe(str(trajectory.task.options.get("path", "")), question))
    if trajectory.success:
        lesson = Lesson("The answer was found.", recipe)
    else:
        summary, warning = _mistake(trajectory, question, played)
        lesson = Lesson(summary, f"{warning} {recipe}")
    told = f" {normalise(' '.join(lesson))} "
    return None if any(f" {gold} " in told for gold in map(normalise, question.golds) if gold) else lesson


def _recipe(path: str, question: Question) -> Iterator[str]:
    """The searches in their order, and the answer."""
    steps = [step for step in path.split(" > ") if step]
    if not steps:
        yield from _by_number(len({hop.passage for hop in question.evidence}))
    elif "&" in steps[0]:
        domain = RELATIONS[steps[0].partition("&")[0].lstrip("~")].domain
        yield f"Search {domain} with all that the question tells of it in one search."
        yield "Then answer with the title that fits."
    elif chosen := next((place for place, step in enumerate(steps) if ":" in step), None):
        yield from _compared(steps[:chosen], steps[chosen], steps[chosen + 1 :])
    elif ":" in steps[0]:
        yield from _compared([], steps[0], steps[1:])
    else:
        yield from _searches("the name", steps)
        yield "Then answer."


def _by_number(passages: int) -> Iterator[str]:
    yield "Search the name in the question and what is asked of it."
    if passages > 1:
        yield "Then search what that passage names." if passages == 2 else "Then search what each passage names next."
    yield "Then answer from the last passage."


def _compared(before: Sequence[str], choice: str, after: Sequence[str]) -> Iterator[str]:
    which, _, key = choice.partition(":")
    yield from _searches("each of the two names", [*before, key])
    kept = f"Keep the {which} one."
    if after:
        yield kept
        yield from _searches("it", after)
        yield "Then answer."
    else:
        yield f"{kept} Then answer."


def _searches(start: str, steps: Sequence[str]) -> Iterator[str]:
    """One sentence a step: what is searched for, and with which words of the passages."""
    at = start
    for number, step in enumerate(steps):
        relation = RELATIONS[step.lstrip("~")]
        back = step.startswith("~")
        cue = f"{relation.domain} {relation.back}" if back else relation.cue
        yield f"{'Then search' if number else 'Search'} {at} with {cue}."
        reached = relation.domain if back else relation.range
        at = f"the {_KIND.get(reached, reached)} found"


def _mistake(trajectory: Trajectory, question: Question, played: Played) -> tuple[str, str]:
    """What happened, and what not to do: the first mistake that cost the answer."""
    queries = [normalise(move.content) for move in played.moves if move.kind == "search"]
    answered = played.moves[-1].kind == "answer"
    if 2 * sum(move.kind == "nothing" for move in played.moves) >= len(played.moves):
        return "Most replies held no block that could be read.", "Write one search or answer a turn."
    if not queries:
        return "It was answered without a search.", "Do not answer before a search."
    hops = [hop.passage for hop in question.evidence]
    missing = next((place for place, passage in enumerate(hops) if passage not in played.found), None)
    if missing is None and hops:
        if answered:
            return "The passages were found, but the answer was another.", "Answer with what the passage says."
        return "The passages were found, but nothing was answered.", "Answer once the passages are found."
    if missing:
        return "A passage that was needed was not searched for.", "Do not stop after the first passage."
    if len(set(queries)) < len(queries):
        return "The same words were searched for again.", "Do not search the same words again."
    if _is_whole(queries[0], question.question):
        return "The whole question was searched for.", "Do not search the whole question."
    names = [normalise(word) for word in question.question.split()[1:] if word[:1].isupper()]
    if names and not any(name in query.split() for name in names for query in queries):
        return "The name was not searched for.", "Do not search without the name."
    if answered:
        return "The passage on what is asked was not found.", "Do not answer before the passage is found."
    return "The passage on what is asked was not found.", "Search the whole name and little else."


def _is_whole(query: str, question: str) -> bool:
    words = normalise(question).split()
    return len(words) > 4 and sum(word in query.split() for word in words) >= _WHOLE * len(words)
