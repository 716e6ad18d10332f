"""What makes a skill worthless or unfair for the next task of its kind: the answer, or numbers of this one task."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator

_MARKS = str.maketrans(dict.fromkeys(string.punctuation, " "))
_NUMBERED = re.compile(r"([^\W\d_]+)[ #-]?(\d+)")  # "cabinet 3", "drawer #2"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")


def words(text: str) -> str:
    """Lower case, without punctuation, words apart by one space and with one at either end."""
    return f" {' '.join(text.lower().translate(_MARKS).split())} "


def answers(skill: str, secrets: Iterable[str]) -> Iterator[str]:
    """The secrets that a skill holds, as whole words."""
    told = words(skill)
    return (secret for secret in secrets if words(secret).strip() and words(secret) in told)


def numbers(skill: str, shown: Iterable[str]) -> Iterator[str]:
    """Numbers of a skill that are of this task: a numbered thing, or a number of two digits or more, that was shown.

    "Open drawer 2" leaks where a drawer 2 was seen; "take 2 of them" does not, nor does a number of nobody's.
    """
    seen = " ".join(shown).lower()
    things = set(_NUMBERED.findall(seen))
    alone = {n for n in _NUMBER.findall(seen) if len(n) > 1}
    for match in _NUMBERED.finditer(skill.lower()):
        if match.groups() in things:
            yield match.group()
    for number in _NUMBER.findall(skill):
        if number in alone:
            yield number
