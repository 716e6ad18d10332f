"""Requests and answers of POST /retrieve, as the server and the client write and read them. See docs/scale.md."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from seedbench.core import Passage

API_VERSION = 1
TOP_K = 3  # where a request names none, as in Search-R1
MAX_QUERIES = 10_000  # a request
MAX_QUERY = 100_000  # characters
MAX_K = 1000
MAX_HITS = 100_000  # queries times k of a request
DIGEST_HEADER = "x-seedbench-digest"


class Refused(Exception):
    """A request that is answered with an error: HTTP status, a code for programs, one sentence for people."""

    def __init__(self, status: int, code: str, message: str, *headers: tuple[str, str]):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers


class Asked(NamedTuple):
    """A request that was understood."""

    queries: list[str]
    k: int
    scores: bool


def understand(body: bytes) -> Asked:
    """What a request to /retrieve asks for: {"queries": [...]} or {"query": "..."}, topk, return_scores.

    No topk, null or 0 means 3. Raises Refused (400 or 413) for anything else.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise Refused(400, "malformed", 'the body is no JSON object: send {"queries": ["..."], "topk": 3}')
    if unknown := sorted(asked.keys() - {"queries", "query", "topk", "return_scores"}):
        says = f"{unknown[0][:50]!r} is not known here: queries or query, topk and return_scores are"
        raise Refused(400, "malformed", says)
    if ("queries" in asked) == ("query" in asked):
        raise Refused(400, "malformed", "give either queries (a list of strings) or query (one string)")
    queries = asked["queries"] if "queries" in asked else [asked["query"]]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise Refused(400, "malformed", "queries is a list of strings, query one string")
    k, scores = asked.get("topk") or TOP_K, asked.get("return_scores") or False
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise Refused(400, "malformed", f"topk is an integer from 1 to {MAX_K}")
    if not isinstance(scores, bool):
        raise Refused(400, "malformed", "return_scores is true or false")
    if len(queries) > MAX_QUERIES or len(queries) * k > MAX_HITS:
        says = f"a request is for {MAX_QUERIES} queries and {MAX_HITS} passages at most: send fewer queries at a time"
        raise Refused(413, "too_many", says)
    if any(len(query) > MAX_QUERY for query in queries):
        raise Refused(413, "too_long", f"a query has more than {MAX_QUERY} characters: send its beginning")
    return Asked(queries, k, scores)


def answer(found: Sequence[Sequence[Passage]], scores: bool) -> bytes:
    """The body of an answer: a list a query, whether one was asked or many, of documents or of documents and scores."""
    if scores:
        result: list[Any] = [[{"document": document(p), "score": p.score} for p in hits] for hits in found]
    else:
        result = [[document(p) for p in hits] for hits in found]
    return json.dumps({"result": result}).encode()


def document(passage: Passage) -> dict[str, str]:
    """A passage as wiki-18 has it: the title, in quotes, is the first line of `contents`.

    `title` is there only where it has a line break itself, and the first line would not tell.
    """
    said = {"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'}
    return said | {"title": passage.title} if "\n" in passage.title else said


def read(data: bytes, queries: int, k: int) -> list[list[Passage]]:
    """The passages of an answer of /retrieve with scores. Raises ValueError for what is none to so many queries."""
    result = json_object(data).get("result")
    if not isinstance(result, list) or len(result) != queries:
        raise ValueError(f"result is no list of {queries} lists")
    found = []
    for hits in result:
        if not isinstance(hits, list) or len(hits) > k:
            raise ValueError(f"a list of hits is none, or has more than {k}")
        found.append([_passage(hit) for hit in hits])
    return found


def _passage(hit: object) -> Passage:
    """`contents` begins with the title, in quotes, and a line break. Without an id the text itself names a passage."""
    score, said = (hit.get("score"), hit.get("document")) if isinstance(hit, dict) else (None, None)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError("a hit has no score")
    if not isinstance(said, dict) or not isinstance(said.get("contents"), str):
        raise ValueError("a document has no contents")
    contents, title, name = said["contents"], said.get("title"), said.get("id")
    if isinstance(title, str) and contents.startswith(f'"{title}"\n'):
        text = contents[len(title) + 3 :]
    else:
        title, _, text = contents.partition("\n")
        if len(title) > 1 and title[0] == title[-1] == '"':
            title = title[1:-1]
    if name is None:
        name = "text:" + hashlib.sha256(contents.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError("a document's id is no text")
    return Passage(str(name), title, text, float(score))


def json_object(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
