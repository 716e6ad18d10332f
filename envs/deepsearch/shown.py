"""How much is shown, and for how long: little of the short pages of generated sets, more of real ones."""

from __future__ import annotations

from typing import NamedTuple


class Shown(NamedTuple):
    """Numbers that an option of the environment may change."""

    max_steps: int
    top_k: int  # results of a search
    snippet: int  # characters of a page in a list of results
    window: int  # characters of a page that a visit shows
    room: int  # characters of past observations that a prompt holds, newest first


SMALL = Shown(max_steps=16, top_k=4, snippet=60, window=240, room=400)
LARGE = Shown(max_steps=50, top_k=10, snippet=300, window=6000, room=120_000)
