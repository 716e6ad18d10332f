"""How much is shown, and for how long: little of the short pages of generated sets, more of real ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seedbench.core import SeedbenchError
from seedbench.envs.searchqa.asking import MOST_HITS


class Shown(NamedTuple):
    """Numbers that an option of the environment may change."""

    max_steps: int
    top_k: int  # results of a search
    snippet: int  # characters of a page in a list of results
    window: int  # characters of a page that a visit shows
    room: int  # characters of past observations that a prompt holds, newest first


SMALL = Shown(max_steps=16, top_k=4, snippet=60, window=240, room=400)
LARGE = Shown(max_steps=50, top_k=10, snippet=300, window=6000, room=120_000)


def chosen(small: bool, given: Mapping[str, int | None]) -> Shown:
    """The usual numbers but for those that are given. Raises SeedbenchError for what shows nothing, or too much."""
    size = (SMALL if small else LARGE)._replace(**{name: value for name, value in given.items() if value is not None})
    for name, value in size._asdict().items():
        if value < 1:
            raise SeedbenchError(f"{name} is {value}; give at least 1.")
    if size.top_k > MOST_HITS:
        raise SeedbenchError(f"top_k is {size.top_k}; give 1 to {MOST_HITS}.")
    return size
