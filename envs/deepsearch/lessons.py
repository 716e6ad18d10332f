"""What an episode of deep search teaches, by rule: where to begin, what to make sure of, and where to go from there.

Where the task names its pattern (generated sets) the words are those with which the pages of our world state a
relation; elsewhere the number of pages that the answer rests on is all that is known. No name, no title and no answer
is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from seedbench.core import Lesson, Trajectory
from seedbench.envs.deepsearch.forms import TRADES
from seedbench.envs.deepsearch.tags import Move
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.relations import RELATIONS
from seedbench.envs.searchqa.scoring import normalise

_KIND = {"city": "town", "word": "trade"}


def learn(
    trajectory: Trajectory, question: Question, moves: Sequence[Move], listed: Collection[str], read: Collection[str]
) -> Lesson | None:
    """The lesson of one episode. None for one that broke off, has no step, or whose lesson would hold the answer."""
    if not trajectory.steps or trajectory.ended == "error":
        return None
    recipe = " ".join(_recipe(str(trajectory.task.options.get("path", ""))))
    if trajectory.success:
        lesson = Lesson("The answer was found.", recipe)
    else:
        summary, warning = _mistake(question, moves, listed, read)
        lesson = Lesson(summary, f"{warning} {recipe}")
    told = f" {normalise(' '.join(lesson))} "
    return None if any(f" {gold} " in told for gold in map(normalise, question.golds) if gold) else lesson


def _recipe(pattern: str) -> Iterator[str]:
    """Where to begin, what else to make sure of, and the way to the answer."""
    kind, _, rest = pattern.partition(": ")
    told, _, tail = rest.partition(" > ")
    if not tail:
        yield "Search for one fact of the question, visit what fits, and make sure of the others before you go on."
        yield "Then answer from the page."
        return
    first, *others = (path.split(".") for path in told.split(" & "))
    yield f"Search {' then '.join(_backwards(first))}."
    sure = " and ".join(_last(path) for path in others)
    yield f"Visit the {kind} and make sure of {sure}."
    yield f"Then follow {' and '.join(_cue(step) for step in tail.split('.'))}, and answer."


def _backwards(path: Sequence[str]) -> Iterator[str]:
    """What to search for from the end of a path to its start."""
    parts = ["", *path]
    for step, part in reversed(list(zip(path, parts, strict=False))):
        relation = RELATIONS[step]
        what = (
            TRADES.get(part, "person") if relation.domain == "person" else _KIND.get(relation.domain, relation.domain)
        )
        said = relation.back or _cue(step)
        yield f"{what} {said}".replace(f"{what} {what}", what)


def _last(path: Sequence[str]) -> str:
    return " and ".join(_cue(step) for step in path)


def _cue(step: str) -> str:
    cue = RELATIONS[step].cue
    domain = RELATIONS[step].domain
    return cue.removeprefix(f"{domain} ") if cue != domain else cue


def _mistake(
    question: Question, moves: Sequence[Move], listed: Collection[str], read: Collection[str]
) -> tuple[str, str]:
    """What happened, and what not to do: the first mistake that cost the answer."""
    queries = [normalise(move.content) for move in moves if move.kind == "search"]
    answered = moves[-1].kind == "answer"
    if 2 * sum(move.kind == "nothing" for move in moves) >= len(moves):
        return "Most replies held no block that could be read.", "Write one block a turn."
    if not queries:
        return "It was answered without a search.", "Do not answer before a search."
    if not any(move.kind == "visit" for move in moves):
        return "No page was read.", "Visit pages before you answer."
    hops = [hop.passage for hop in question.evidence]
    unlisted = next((place for place, page in enumerate(hops) if page not in listed), None)
    unread = next((place for place, page in enumerate(hops) if page not in read), None)
    if unread is None and hops:
        if answered:
            return "The pages were read, but the answer was another.", "Answer with what the last page says."
        return "The pages were read, but nothing was answered.", "Answer once the last page is read."
    if len(set(queries)) < len(queries):
        return "The same words were searched for again.", "Do not search the same words again."
    if unlisted is None or (unread is not None and unread < unlisted):
        return "A page that was listed was not read.", "Visit the page that fits before you go on."
    if unlisted:
        return "A page that was needed was not searched for.", "Search for the next name that a page tells."
    return "The page to begin with was not found.", "Search one fact of the question at a time."
