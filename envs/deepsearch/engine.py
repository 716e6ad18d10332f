"""What deep search searches, and where it reads pages: an index, a search server, or live search."""

from __future__ import annotations

from functools import lru_cache

from seedbench.core import InfrastructureError, Passage, Retriever, SeedbenchError
from seedbench.envs.deepsearch.data import Dataset
from seedbench.envs.deepsearch.live import PREFIX, Recorded, open_live
from seedbench.envs.searchqa.retrieval import open_retriever

NEEDS_INDEX = (
    "These questions come without pages: name an index that holds them with --retriever (a folder of `seedbench index "
    "build`, or the URL of a search server)."
)
_live = lru_cache(maxsize=8)(open_live)


def open_engine(dataset: Dataset, name: str | None) -> Retriever:
    """What --retriever names, else BM25 over the pages that come with the questions. Raises SeedbenchError."""
    if (name or "").startswith(PREFIX):
        return _live(str(name))
    if name in (None, "bm25", "lucene", "dense", "hybrid") and dataset.corpus is None:
        raise SeedbenchError(NEEDS_INDEX)
    return open_retriever(dataset.corpus or dataset, name)


def whole(engine: Retriever, page: Passage) -> str:
    """The text of a page: what its search found, or, where that is live, what it is asked for now."""
    if not isinstance(engine, Recorded):
        return page.text
    try:
        return engine.page(page.id)
    except InfrastructureError:
        raise
    except Exception as error:  # the user's own code
        raise InfrastructureError(
            f"live search failed ({type(error).__name__}: {error}): mend it, then go on with --resume."
        ) from error
