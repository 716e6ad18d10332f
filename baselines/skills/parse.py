"""From what an analyzer said to a lesson, or None where it holds no usable one.

Models put fences and prose around their JSON, forget commas or leave one too many, write it in Python's quotes, give
two objects, think aloud first, or go on for 100 kB. The lesson is the first object outside <think> whose
`episode_skill` is a text with a letter or digit in it. Nothing here raises, whatever the text, and the work is bounded:
at most OCCURRENCES places that name the key, BRACES before each, and WINDOW characters to either side.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

from seedbench.core import Lesson
from seedbench.prompts import without_thoughts

LONGEST_SKILL = 480  # characters; some 80 words
LONGEST_SUMMARY = 480
LONGEST_TEXT = 200_000  # of a longer text, the end is read: an answer comes last
OCCURRENCES, BRACES, WINDOW = 16, 8, 65_536
LITERAL, NESTED = 8_192, 32  # length and brackets of what ast.literal_eval is given: it recurses
KEY = "episode_skill"

_STRICTLESS = json.JSONDecoder(strict=False)  # line breaks inside a text are a common slip
_TRAILING = re.compile(r",(\s*[}\]])")
_ECHO = "the lesson"  # the prompt's own example, given back


def parse(text: str) -> Lesson | None:
    """The lesson in an analyzer's output, cut to LONGEST_SKILL and LONGEST_SUMMARY at a word; None if there is none."""
    for found in _objects(without_thoughts(text[-LONGEST_TEXT:])):
        skill, summary = found.get(KEY), found.get("episode_summary")
        if isinstance(skill, str) and (skill := clean(skill, LONGEST_SKILL)) and skill != _ECHO:
            return Lesson(clean(summary, LONGEST_SUMMARY) if isinstance(summary, str) else "", skill)
    return None


def clean(text: str, longest: int) -> str:
    """`text` on one line, printable, at most `longest` characters, cut at a word; "" if no letter or digit is left.

    What a chat template would read as a mark of its own (<|...|>) is taken apart.
    """
    text = text[: 8 * longest].encode("utf-8", "replace").decode()
    line = " ".join("".join(c if c.isprintable() else " " for c in text).replace("<|", "< |").split())
    if len(line) > longest:
        head = line[: longest + 1]
        line = head.rpartition(" ")[0] or head[:longest]
    return line if any(c.isalnum() for c in line) else ""


def _objects(text: str) -> Iterator[dict[Any, Any]]:
    """Objects around each mention of the key, the innermost first."""
    at = -1
    for _ in range(OCCURRENCES):
        at = text.find(KEY, at + 1)
        if at < 0:
            return
        start = at
        for _ in range(BRACES):
            start = text.rfind("{", max(0, at - WINDOW), start)
            if start < 0:
                break
            found = _read(text[start : at + WINDOW])
            if found is not None and KEY in found:
                yield found
                break


def _read(text: str) -> dict[Any, Any] | None:
    """The object that `text` begins with, as JSON, as JSON with commas too many, or as a Python literal."""
    for attempt in (text, _TRAILING.sub(r"\1", text)):
        try:
            value = _STRICTLESS.raw_decode(attempt)[0]
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return _literal(text)


def _literal(text: str) -> dict[Any, Any] | None:
    """A dict in Python's own notation; of names, calls and operators nothing is evaluated."""
    end = _closing(text)
    if end < 0:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash too many
            value = ast.literal_eval(text[: end + 1])
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _closing(text: str) -> int:
    """Where the brace that `text` begins with is closed, outside quotes; -1 if not within the bounds."""
    depth, quote, skip = 0, "", False
    for place, c in enumerate(text[:LITERAL]):
        if skip:
            skip = False
        elif quote:
            skip, quote = c == "\\", "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "{[(":
            depth += 1
            if depth > NESTED:
                return -1
        elif c in "}])":
            depth -= 1
            if depth == 0:
                return place
    return -1
