"""Rows of published question files, and what a row says as an Item.

Known: BrowseComp's CSV {problem, answer, canary} (encrypted), BrowseComp-Plus {query_id, query, answer, gold_docs,
evidence_docs} (as published, encrypted, with a canary.txt beside it; or as its own script decrypts it), GAIA's metadata
{task_id, Question, Final answer, file_name}, of which the questions without a file are taken, FRAMES {Prompt, Answer}
or {question, answer}, and question-answer pairs {question, answer | answers | golden_answers}.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbench.core import SeedbenchError
from seedbench.envs.deepsearch.sealing import unseal, unsealed
from seedbench.envs.searchqa import rows as shapes
from seedbench.envs.searchqa.data import Evidence
from seedbench.envs.searchqa.scoring import split_golds

ENDINGS = (*shapes.ENDINGS, ".csv", ".tsv")
CANARY = "canary.txt"  # of BrowseComp-Plus, whose rows do not carry it
UNKNOWN = "?"  # how GAIA's test set writes an answer that it keeps
SEALED = ("browsecomp", "browsecomp-plus")
KINDS = ("frames", "gaia", *SEALED, "qa")
LONGEST_DOCUMENT = 400  # characters of a gold page that an anchor may hold


class Item(NamedTuple):
    """A question as a file holds it. `snippets` are the beginnings of its gold pages, where the file has the pages."""

    kind: str
    role: str  # train, dev or test
    own: str  # its id there
    question: str
    golds: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()
    snippets: tuple[str, ...] = ()


def read_items(path: Path) -> Iterator[Item]:
    """The questions of a file. Raises SeedbenchError for a file that is broken, or whose rows are no questions."""
    for where, row in _rows(path):
        item = _item(row, path, where)
        if item is not None:
            yield item


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path.suffix not in (".csv", ".tsv"):
        yield from shapes.read_rows(path)
        return
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            for number, row in enumerate(csv.DictReader(lines, delimiter="," if path.suffix == ".csv" else "\t"), 2):
                yield f"{path} row {number}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SeedbenchError(f"{path} cannot be read as a table ({error}): fetch it again.") from error


def _item(row: Mapping[str, Any], path: Path, where: str) -> Item | None:
    """The question of a row; None for one that is left out: with an attached file, or without a known answer."""
    try:
        if {"problem", "answer", "canary"} <= row.keys():
            return _browsecomp(row)
        if {"query", "query_id", "answer"} <= row.keys():
            return _browsecomp_plus(row, path)
        if {"Question", "Final answer"} <= row.keys():
            return _gaia(row)
        named = "frames" in path.name.lower()
        told = {"question": row.get("Prompt", row.get("question")), "answer": row.get("Answer", shapes.golds_of(row))}
        kind, role = ("frames", "test") if named or "Prompt" in row else ("qa", shapes.role_of_file(path))
        return _plain(kind, role, str(row.get("id", row.get("_id", ""))), told["question"], told["answer"])
    except SeedbenchError as error:
        raise SeedbenchError(f"{where}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise SeedbenchError(
            f"{where} holds no question with its answer; give the published file of BrowseComp, BrowseComp-Plus, GAIA "
            "or FRAMES, or pairs {question, answer}."
        ) from None


def _plain(kind: str, role: str, own: str, question: Any, answer: Any) -> Item:
    text = shapes.whole(" ".join(question.split()))
    golds = tuple(shapes.whole(" ".join(gold.split())) for gold in split_golds(answer))
    if not text or not any(golds):
        raise ValueError
    if not own or len(own) > shapes.LONGEST_ID or not own.isprintable():
        own = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Item(kind, role, own, text, golds)


def _browsecomp(row: Mapping[str, Any]) -> Item:
    question, answer = (unseal(row[name], row["canary"]) for name in ("problem", "answer"))
    name = hashlib.sha256(row["problem"].encode()).hexdigest()[:16]  # of what is public
    return _plain("browsecomp", "test", name, question, answer)


def _browsecomp_plus(row: Mapping[str, Any], path: Path) -> Item:
    known: Mapping[str, Any] = row
    if " " not in row["query"].strip():  # base64; no question is one word
        canary = row.get("canary") or _canary(path)
        keep = ("query", "answer", "gold_docs", "evidence_docs")
        known = unsealed({name: row[name] for name in keep if name in row}, canary)
    item = _plain("browsecomp-plus", "test", str(row["query_id"]), known["query"], known["answer"])
    pages = {str(doc["docid"]): doc for name in ("gold_docs", "evidence_docs") for doc in known.get(name) or ()}
    evidence = tuple(Evidence(docid, str(doc.get("url") or docid)) for docid, doc in pages.items())
    texts = tuple(" ".join(str(doc.get("text", "")).split())[:LONGEST_DOCUMENT] for doc in pages.values())
    return item._replace(evidence=evidence, snippets=texts)


def _canary(path: Path) -> str:
    try:
        return path.with_name(CANARY).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise SeedbenchError(
            f"these questions are encrypted: put the canary string of the data set's decryption script into "
            f"{path.with_name(CANARY)}, or give what that script wrote."
        ) from None


def _gaia(row: Mapping[str, Any]) -> Item | None:
    if row.get("file_name") or row["Final answer"] == UNKNOWN:
        return None
    return _plain("gaia", "test", str(row.get("task_id", "")), row["Question"], row["Final answer"])
