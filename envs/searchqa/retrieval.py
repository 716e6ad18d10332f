"""The search engine behind an environment: of the passages that come with the questions, an index folder, or a URL.

retriever = open_retriever(dataset, "bm25")            # or lucene, dense, hybrid, a folder, http://127.0.0.1:8100
hits = find(retriever, "who wrote it", 3)
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seedbench.core import InfrastructureError, Passage, Retriever, SeedbenchError
from seedbench.envs.searchqa.data import Dataset
from seedbench.indexes.bm25 import Bm25

KINDS = ("bm25", "lucene", "dense", "hybrid")  # what can be built over passages that come with the questions
CHOICE = f"give {', '.join(KINDS)}, the folder of an index, or the URL of a server"
K1, B = 1.2, 0.75  # two points better than Anserini's 0.9 and 0.4 on questions with their own passages
SHELF = "SEEDBENCH_INDEXES"  # environment variable: a folder of index folders, which open by their names
CACHED = 10_000  # queries whose hits are kept: rollouts of one question ask the same again
NEEDS_INDEX = (
    "These questions come without passages: they were asked of Wikipedia (wiki-18). Build an index, "
    "`seedbench index build wiki-18.jsonl INDEX --kind lucene`, or serve one, and name it: --retriever INDEX or URL."
)
_lock = threading.Lock()


def open_retriever(dataset: Dataset, name: str | None) -> Retriever:
    """The retriever of that name, opened once a process; None is bm25 over the passages that come with the questions.

    Raises SeedbenchError where there are no such passages, or the name is neither a kind, a folder nor a URL.
    """
    if name == "":  # an unset variable of a shell; Path("") would be the current folder
        raise SeedbenchError(f"The retriever has no name: {CHOICE}.")
    if (name is None or name in KINDS) and dataset.passages() is None:
        raise SeedbenchError(NEEDS_INDEX)
    with _lock:  # two threads must not build it twice
        return _open(dataset if name is None or name in KINDS else None, name or "bm25")


@lru_cache(maxsize=8)
def _open(dataset: Dataset | None, name: str) -> Retriever:
    if dataset is not None:
        passages = dataset.passages()
        assert passages is not None
        return _cached(_bm25(passages) if name == "bm25" else _built(name, passages))
    if name.startswith(("http://", "https://")):
        return _cached(_need("search_client", "search servers").RemoteRetriever(name))
    if not Path(name).is_dir() and not os.environ.get(SHELF):
        raise SeedbenchError(f"There is no retriever {name}: {CHOICE}.")
    return _cached(_need("folder", "index folders").open_index(name))


class _Exact(Bm25):
    """BM25 in memory, with what every retriever says of itself."""

    kind, exact = "bm25", True

    def close(self) -> None:
        """Nothing is held open."""


def _bm25(passages: Sequence[Passage]) -> Retriever:
    return _Exact(passages, k1=K1, b=B)


def _built(kind: str, passages: Sequence[Passage]) -> Retriever:
    """An index of another kind over a few passages, in a folder that goes when the process does."""
    folders = _need("folder", "index folders")
    place = Path(tempfile.mkdtemp(prefix="seedbench-index-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with (place / "passages.jsonl").open("w", encoding="utf-8") as out:
        for passage in passages:
            out.write(json.dumps({"id": passage.id, "title": passage.title, "text": passage.text}) + "\n")
    settings = {"k1": K1, "b": B} if kind == "lucene" else {}
    folders.build(kind, place / "passages.jsonl", place / "index", settings, say=lambda sentence: None)
    retriever: Retriever = folders.open_index(place / "index")
    return retriever


def _need(module: str, what: str) -> Any:
    name = f"seedbench.indexes.{module}"
    if find_spec(name) is None:
        raise SeedbenchError(f"This seedbench has no {what} ({name} is missing): install a later one.")
    return import_module(name)


def _cached(retriever: Retriever) -> Retriever:
    if find_spec("seedbench.indexes.cache") is None:
        return retriever
    cached: Retriever = import_module("seedbench.indexes.cache").Cached(retriever, CACHED)
    return cached


def find(retriever: Retriever, query: str, k: int) -> list[Passage]:
    """The k best passages for one query. Whatever fails is the search engine's fault, an InfrastructureError."""
    try:
        (hits,) = retriever.search([query], k)
    except InfrastructureError:
        raise
    except Exception as error:  # whatever a search engine raises, the agent is not to blame
        raise InfrastructureError(
            f"the search engine failed ({type(error).__name__}: {error}): mend it, then go on with --resume."
        ) from error
    return hits
