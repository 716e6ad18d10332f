"""What an episode has listed and read: an immutable record, so that a clone costs nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from seedbench.core import Passage
from seedbench.envs.deepsearch import tags
from seedbench.envs.deepsearch.pages import snippet, windows
from seedbench.envs.deepsearch.rehearse import next_window

LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class Browser:
    """Documents have the number under which they were listed first, from 1 on, for the whole episode."""

    listed: tuple[Passage, ...] = ()  # by number
    read: frozenset[tuple[str, int]] = frozenset()  # (document, window) of every visit
    searched: tuple[str, ...] = ()  # the queries
    lucky: int = 0  # searches that listed a gold document
    visits: int = 0
    last: tuple[str, ...] = ()  # ids that the last step listed or opened
    results: tuple[int, ...] = ()  # numbers of what the last search listed

    def numbers(self) -> dict[str, int]:
        """The number of each document by its id."""
        return {page.id: number for number, page in enumerate(self.listed, 1)}

    def search(self, query: str, hits: Sequence[Passage], gold: Collection[str], size: int) -> tuple[Browser, str]:
        """The record after a search, and its results as `[number] Title: beginning`, one a line."""
        known = self.numbers()
        listed = (*self.listed, *{hit.id: hit for hit in hits if hit.id not in known}.values())
        after = replace(self, listed=listed, searched=(*self.searched, query), last=tuple(hit.id for hit in hits))
        known = after.numbers()
        lucky = self.lucky + bool(set(gold).intersection(after.last))
        after = replace(after, lucky=lucky, results=tuple(known[hit.id] for hit in hits))
        return after, "\n".join(after._line(number, size) for number in after.results) or "No results found."

    def _line(self, number: int, size: int) -> str:
        page = self.listed[number - 1]
        title, text = snippet(tags.escape(page.title), LONGEST_TITLE), tags.escape(page.text)
        if title and text.startswith(title):  # encyclopedias begin with what the title says already
            text = text[len(title) :].lstrip(" ,")
        return f"[{number}] {title}: {snippet(text, size)}"

    def visit(self, number: int, text: str, goal: str, size: int) -> tuple[Browser, str]:
        """The record after a visit, and `[number] Title (part i of n)` above that part of the text."""
        page, parts = self.listed[number - 1], windows(tags.escape(text), size)
        at = next_window(parts, {n for name, n in self.read if name == page.id}, goal)
        after = replace(self, read=self.read | {(page.id, at)}, visits=self.visits + 1, last=(page.id,))
        part = f" (part {at + 1} of {len(parts)})" if len(parts) > 1 else ""
        return after, f"[{number}] {snippet(tags.escape(page.title), LONGEST_TITLE)}{part}\n{parts[at]}"
