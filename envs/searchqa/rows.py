"""Rows of published question files, whatever they are packed in, and what a row says as a Question.

Known shapes: FlashRAG's and DeepResearcher's {id, question, golden_answers, data_source?}, Search-R1's parquet, which
adds reward_model.ground_truth.target, nq_open's {question, answer}, HotpotQA's and 2WikiMultiHopQA's with context and
supporting_facts (as lists of pairs or as columns), MuSiQue's with paragraphs, and our own with evidence.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from seedbench.core import Passage, SeedbenchError
from seedbench.envs.searchqa.data import KINDS, Evidence, Question
from seedbench.envs.searchqa.scoring import split_golds
from seedbench.indexes.records import refuse_pointer

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".json", ".json.gz", ".json.xz", ".parquet")
LONGEST_ID = 200
_NAMES = {
    "nq": "nq", "naturalquestions": "nq", "nqopen": "nq",
    "triviaqa": "triviaqa", "tq": "triviaqa",
    "popqa": "popqa",
    "hotpotqa": "hotpotqa", "hotpot": "hotpotqa",
    "2wikimultihopqa": "2wikimultihopqa", "2wiki": "2wikimultihopqa", "2wikimqa": "2wikimultihopqa",
    "musique": "musique",
    "bamboogle": "bamboogle",
}  # fmt: skip
assert set(_NAMES.values()) == set(KINDS)
_HALVES = re.compile("[\ud800-\udfff]")
Row = Mapping[str, Any]


def kind_of(name: str) -> str | None:
    """The kind that a data source goes by under this name; None for another."""
    plain = name.lower().removeprefix("searchr1_").replace("-", "").replace("_", "").replace(" ", "")
    return _NAMES.get(plain)


def kind_of_file(path: Path) -> str | None:
    """The kind that a file's name begins with, or else that its folder is called: nq_open.jsonl, nq/test.jsonl."""
    stem = path.name.lower().partition(".")[0]
    words = stem.replace("-", "_").split("_")
    return kind_of("_".join(words[:2])) or kind_of(words[0]) or kind_of(path.parent.name)


def role_of_file(path: Path) -> str:
    """train, dev or test, by a word of the file's name; test where none says."""
    words = path.name.lower().replace("-", "_").replace(".", "_").split("_")
    if "train" in words:
        return "train"
    return "dev" if {"dev", "validation", "valid", "val"} & set(words) else "test"


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(where it stands, row) of every row, read as they are asked for. Raises SeedbenchError for what is none."""
    try:
        refuse_pointer(path)
        if path.name.endswith(".parquet"):
            yield from _parquet_rows(path)
            return
        with _open_text(path) as lines:
            for where, row in _json_rows(path, lines):
                if not isinstance(row, dict):
                    raise SeedbenchError(f"{where} is no JSON object; fetch the file again.")
                yield where, row
    except UnicodeDecodeError as error:
        raise SeedbenchError(
            f"{path} is not UTF-8 text ({error.reason}): convert it, give a parquet file its ending .parquet, or fetch "
            "it again."
        ) from error
    except (OSError, EOFError, ValueError, RecursionError, lzma.LZMAError, zlib.error) as error:
        raise SeedbenchError(f"{path} cannot be read ({error}): it may be cut short; fetch it again.") from error


def _json_rows(path: Path, lines: TextIO) -> Iterator[tuple[str, Any]]:
    """(where it stands, value) of every value, of a list or of lines."""
    if ".json" in path.suffixes:
        rows = json.load(lines)
        if not isinstance(rows, list):
            raise SeedbenchError(f"{path} is no list of questions; give the published file.")
        yield from ((f"{path} row {n}", row) for n, row in enumerate(rows, 1))
        return
    for n, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                raise SeedbenchError(
                    f"{path} line {n} is not JSON ({why}): it may be cut short, or a page; fetch it again."
                ) from error
            yield f"{path} line {n}", value


def _open_text(path: Path) -> TextIO:
    unpack: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    text: TextIO = unpack(path, "rt", encoding="utf-8-sig")
    return text


def _parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise SeedbenchError(f"{path} is a parquet file, which needs pyarrow: pip install pyarrow.") from error
    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield f"{path} row {number}", row
    except (OSError, ArrowException) as error:
        raise SeedbenchError(f"{path} is no whole parquet file ({error}): fetch it again.") from error


def golds_of(row: Row) -> Any:
    """The right answers of a row, as they stand there; None where it holds none."""
    for name in ("golden_answers", "answer", "answers"):
        if row.get(name) is not None:
            return row[name]
    truth = row.get("reward_model")
    truth = truth.get("ground_truth") if isinstance(truth, Mapping) else truth
    return truth.get("target") if isinstance(truth, Mapping) else truth


def is_question(row: Row) -> bool:
    """Whether a row asks something and knows the answer. Corpora and lists of titles do not."""
    return isinstance(row.get("question"), str) and golds_of(row) is not None


def to_question(row: Row, kind: str, where: str) -> Question:
    """A row as a Question with the task's id. Raises SeedbenchError, with the place, for a row that is none."""
    golds = golds_of(row)
    text = row["question"] if isinstance(row.get("question"), str) else ""
    text = whole(" ".join(text.split()))
    if not text or not isinstance(golds, str | Sequence) or not all(isinstance(gold, str) for gold in golds):
        raise SeedbenchError(f"{where} holds no question with its answers as texts; give the published file.")
    answers = tuple(whole(gold) for gold in split_golds(golds))
    if not answers:
        raise SeedbenchError(f"{where} has no answer that is not empty; remove that row.")
    own = row.get("id", row.get("_id"))
    own = str(own) if isinstance(own, str | int) else ""
    if not own or len(own) > LONGEST_ID or not own.isprintable():
        own = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Question(f"{kind}/{own}", text, answers, kind, _evidence(row, where))


def whole(text: str) -> str:
    """A text without half surrogate pairs, which JSON can say and UTF-8 cannot: each becomes U+FFFD."""
    return _HALVES.sub("\ufffd", text)


def passages_of(row: Row, where: str) -> list[Passage]:
    """The passages that stand in a row of HotpotQA, 2WikiMultiHopQA or MuSiQue; [] in any other."""
    own = [_passage(title, "".join(sentences)) for title, sentences in _context(row, where)]
    return own + [passage for passage, _ in _paragraphs(row, where)]


def _passage(title: str, text: str) -> Passage:
    title, text = whole(title), whole(text)
    name = hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
    return Passage(name, title, text.strip(), 0.0)


def _pairs(value: Any, names: tuple[str, str], where: str) -> list[tuple[Any, Any]]:
    """[[a, b], ...] or {names[0]: [a, ...], names[1]: [b, ...]}, as the two publications of HotpotQA write pairs."""
    try:
        if isinstance(value, Mapping):
            return list(zip(value[names[0]], value[names[1]], strict=True))
        return [(first, second) for first, second in value or ()]
    except (TypeError, ValueError, KeyError) as error:
        raise SeedbenchError(f"{where} has no readable {names[1]} ({error}); give the published file.") from error


def _context(row: Row, where: str) -> list[tuple[str, list[str]]]:
    found = _pairs(row.get("context"), ("title", "sentences"), where)
    if not all(isinstance(t, str) and isinstance(s, list) and all(isinstance(x, str) for x in s) for t, s in found):
        raise SeedbenchError(f"{where} has a context that is no list of titles and sentences; give the published file.")
    return found


def _evidence(row: Row, where: str) -> tuple[Evidence, ...]:
    """Our own rows hold it as it is; supporting facts name a passage of the context by its title."""
    if isinstance(own := row.get("evidence"), list) and own and isinstance(own[0], dict) and "passage" in own[0]:
        try:
            return tuple(Evidence(e["passage"], e["title"], int(e["sentence"]), e.get("query", ""), e.get("text", ""))
                         for e in own)  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise SeedbenchError(f"{where} has evidence that cannot be read ({error}); import it again.") from error
    if paragraphs := _paragraphs(row, where):
        return tuple(Evidence(passage.id, passage.title) for passage, gold in paragraphs if gold)
    told = dict(_context(row, where))
    facts = _pairs(row.get("supporting_facts"), ("title", "sent_id"), where)
    if not all(isinstance(title, str) and isinstance(n, int) for title, n in facts):
        raise SeedbenchError(f"{where} has supporting facts that are no titles and numbers; give the published file.")
    return tuple(
        Evidence(_passage(title, "".join(told[title])).id, whole(title), n, "", _sentence(told[title], n))
        for title, n in facts if title in told
    )  # fmt: skip


def _sentence(said: Sequence[str], number: int) -> str:
    return whole(said[number]).strip() if 0 <= number < len(said) else ""


def _paragraphs(row: Row, where: str) -> list[tuple[Passage, bool]]:
    """MuSiQue's passages, and whether the answer rests on them; [] for a row of another set."""
    found = []
    for one in row.get("paragraphs") or ():
        try:
            found.append((_passage(one["title"], one["paragraph_text"]), bool(one["is_supporting"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise SeedbenchError(f"{where} has paragraphs of another shape ({error}): fetch it again.") from error
    return found
