"""How a page is shown: in windows, of which a goal picks one, and as a snippet in a list of results."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedbench.indexes.analysis import analyze

_END = re.compile(r"(?<=[.!?])\s+")
CUT = "..."


def windows(text: str, size: int) -> list[str]:
    """A page in pieces of at most `size` characters: whole sentences, of which only a longer one is cut, at a space.

    There is always a first window; that of a page without text is empty.
    """
    out: list[str] = []
    held = ""
    for sentence in _END.split(" ".join(text.split())):
        while held and len(held) + 1 + len(sentence) > size:
            out, held = [*out, held], ""
        while len(sentence) > size:
            at = sentence.rfind(" ", 1, size + 1)
            at = size if at < 1 else at
            out, sentence = [*out, sentence[:at]], sentence[at:].lstrip()
        held = f"{held} {sentence}" if held else sentence
    return [*out, held] if held or not out else out


def best_window(pages: Sequence[str], goal: str) -> int:
    """Which window holds most of the goal's words, as the index reads words; the first of several, or of none."""
    wanted = set(analyze(goal))
    shared = [len(wanted.intersection(analyze(page))) for page in pages]
    return shared.index(max(shared))


def snippet(text: str, size: int) -> str:
    """The beginning of a page, cut at a space."""
    text = " ".join(text.split())
    if len(text) <= size:
        return text
    at = text.rfind(" ", 1, size + 1)
    return text[: size if at < 1 else at] + CUT
