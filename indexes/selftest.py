"""After a build: an index must find passages that it is known to hold. (A library that changes its interface can give
the same hits for every query without an error; this is where that shows.)"""

from __future__ import annotations

from typing import Any

from seedbench.core import Passage, SeedbenchError, stream
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.records import contents

SAMPLED = 16
WORDS = 64  # of a passage, asked for when its title alone does not bring it up


def self_test(retriever: Any, corpus: Corpus) -> dict[str, int]:
    """Ask for some passages by their titles and by their own words. A passage counts as found where the first hit has
    its title and text (more than one may), by either. Raises SeedbenchError where fewer than half are found.

    The title alone is no proof against an index: where many passages share one, or many name it, another may be first.
    """
    drawn = {stream("index self-test", corpus.digest(), i) % len(corpus): None for i in range(SAMPLED)}
    sample = [corpus[number] for number in drawn]
    by_title = _first(retriever, sample, [p.title or _beginning(p) for p in sample])
    by_text = _first(retriever, sample, [_beginning(p) for p in sample])
    found = sum(a or b for a, b in zip(by_title, by_text, strict=True))
    if 2 * found < len(sample):
        raise SeedbenchError(
            f"The index found only {found} of {len(sample)} of its own passages by their titles and words, so it would "
            "search badly: is the corpus in a language that this kind of index reads? Otherwise report this."
        )
    return {"sampled": len(sample), "first_by_title": sum(by_title), "first_by_words": sum(by_text)}


def _beginning(passage: Passage) -> str:
    return " ".join(contents(passage).split()[:WORDS])


def _first(retriever: Any, sample: list[Passage], queries: list[str]) -> list[bool]:
    hits = retriever.search(queries, 1)
    return [bool(found) and found[0][1:3] == p[1:3] for p, found in zip(sample, hits, strict=True)]
