"""What of a task's evidence a teacher may be told: steps towards the answer, and not the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seedbench.baselines.anchors.store import ANSWER, LONGEST, MOST
from seedbench.core import Anchor, Task, TextEnv


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
        if not anchor.text.strip():
            yield "empty"
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
    if any(_letters(mask(a.text, answers)) == "" for a in clear):
        yield "nothing but the answer"


def quoted(snippet: str, text: str) -> bool:
    """Whether a snippet stands in a text, white space aside and [ANSWER] standing for some words."""
    parts = (re.escape(" ".join(part.split())) for part in snippet.split(ANSWER))
    return re.search(r".{1,200}?".join(part for part in parts), " ".join(text.split())) is not None


def _letters(text: str) -> str:
    return "".join(c for c in text.replace(ANSWER, "") if c.isalnum())
