"""What of a task's evidence a teacher may be told: steps towards the answer, and not the answer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from seedbench.baselines.anchors.store import ANSWER, LONGEST, MOST
from seedbench.core import Anchor, Task, TextEnv
from seedbench.indexes.analysis import analyze

LEAST = 2  # words that an anchor must say: a name alone is no evidence
WIDEST = 200  # characters that [ANSWER] may stand for
_MARKS = re.compile(rf"{re.escape(ANSWER)}(?:\s*{re.escape(ANSWER)})*")


def fair(anchors: Sequence[Anchor], answers: Sequence[str], masked: bool = True) -> tuple[Anchor, ...]:
    """At most MOST anchors with the answers masked. Where no anchor says the answer (it follows from a comparison), or
    it is not to be masked, the last of several anchors is left out: the way is never told whole."""
    kept = tuple(anchors[:MOST])
    hidden = tuple(a._replace(title=mask(a.title, answers), text=mask(a.text, answers)) for a in kept)
    if masked and hidden != kept:
        return hidden
    return kept[:-1] if answers and len(kept) > 1 else hidden if answers else kept


def mask(text: str, answers: Sequence[str]) -> str:
    """`text` with every answer in it, as whole words and in any case, replaced by [ANSWER]; longer answers first."""
    words = sorted({answer.strip() for answer in answers if answer.strip()}, key=len, reverse=True)
    if not words:
        return text
    return re.sub(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", ANSWER, text, flags=re.IGNORECASE)


def of_task(env: TextEnv, task: Task, masked: bool = True) -> tuple[Anchor, ...]:
    """The environment's own evidence, as a teacher may be told it."""
    return fair(env.anchors(task), env.answers(task), masked)


def faults(env: TextEnv, task: Task, anchors: Sequence[Anchor]) -> Iterator[str]:
    """What is wrong with a task's anchors; nothing for good ones."""
    if not anchors:
        yield "no anchor"
    if len(anchors) > MOST:
        yield f"more than {MOST} anchors"
    if len(set(anchors)) < len(anchors):
        yield "an anchor twice"
    answers = env.answers(task)
    for anchor in anchors:
        masked = mask(anchor.text, answers)
        if not anchor.text.strip():
            yield "empty"
        elif ANSWER in masked and not _letters(masked):
            yield "nothing but the answer"
        elif says_little(masked):
            yield "says too little"
        if len(anchor.text.split()) > LONGEST:
            yield f"longer than {LONGEST} words"
        text = env.document(task, anchor)
        if text is None:
            yield "no such source"
        elif not quoted(anchor.text, text):
            yield "not in its source"
    clear = [a for a in anchors if mask(a.text, answers) != a.text]
    gold = {a.source for a in env.anchors(task)}
    if clear and gold <= {a.source for a in anchors}:
        yield "tells the way whole"


def quoted(snippet: str, text: str) -> bool:
    """Whether a snippet stands in a text, white space aside and a run of [ANSWER] standing for 1 to WIDEST characters.
    The time is bounded by marks times the length of the text; a snippet with more marks than LONGEST is not found."""
    text = " ".join(text.split())
    first, *rest = (" ".join(part.split()) for part in _MARKS.split(snippet))
    if len(rest) > LONGEST:
        return False
    ends = [at + len(first) for at in _places(first, text)]
    for part in rest:
        ends = [at + len(part) for at in _places(part, text) if _follows(at, ends)]
    return bool(ends)


def _places(part: str, text: str) -> Iterator[int]:
    """Where a part begins in a text, overlaps among them."""
    return (found.start() for found in re.finditer(f"(?={re.escape(part)})", text))


def _follows(at: int, ends: Sequence[int]) -> bool:
    """Whether one of the ends, which ascend, lies 1 to WIDEST characters before a place."""
    nearest = bisect_left(ends, at - WIDEST)
    return nearest < len(ends) and ends[nearest] < at


def says_little(text: str) -> bool:
    """Whether masked text says less than LEAST words beside [ANSWER] and words like `the`."""
    return len(analyze(text.replace(ANSWER, " "))) < LEAST


def _letters(text: str) -> str:
    return "".join(c for c in text.replace(ANSWER, "") if c.isalnum())
