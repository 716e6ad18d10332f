"""Published questions: one file, or a folder with a few, in any of the shapes that rows.py knows.

seen is the test set of nq and hotpotqa, unseen that of the other five, paper all seven together; train and dev come
from the train files of nq and hotpotqa, dev being a slice by digest. Of a kind with test and dev files, test counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from seedbench.core import Passage, SeedbenchError, Task
from seedbench.envs.searchqa.data import ENV_ID, KINDS, Dataset, Question, check_split
from seedbench.envs.searchqa.rows import (
    ENDINGS,
    is_question,
    kind_of,
    kind_of_file,
    passages_of,
    read_rows,
    role_of_file,
    to_question,
)
from seedbench.prompts import sha256_json

SEEN = ("nq", "hotpotqa")
UNSEEN = tuple(kind for kind in KINDS if kind not in SEEN)
DEV_SHARE = 128  # one train question in so many is of dev
PASSAGES, MANIFEST = "passages.jsonl", "searchqa.json"  # of an import
UNFINISHED = ".unfinished"  # lies in an import until all of it is there
Group = tuple[str, str]  # kind, and train or test


class Published(Dataset):
    """Questions of a file or folder, held in memory; the passages too, where the files hold some."""

    def __init__(self, path: Path):
        self.path = path
        if (path / UNFINISHED).exists():
            raise SeedbenchError(
                f"The import into {path} has not finished: run the same `seedbench data import` again."
            )
        self.groups, self._passages = _read(path)
        self._by_id: dict[str, Question] = {}
        for questions in self.groups.values():
            for question in questions:
                if self._by_id.setdefault(question.id, question) is not question:
                    raise SeedbenchError(
                        f"{path} has two questions with the id {question.id}; remove one of the files."
                    )

    @cached_property
    def _splits(self) -> dict[str, tuple[Task, ...]]:
        tests = {kind: self.groups.get((kind, "test"), ()) for kind in KINDS}
        asked = {question.question.lower() for group in tests.values() for question in group}
        train: list[Question] = []
        dev: list[Question] = []
        for kind in SEEN:
            for question in self.groups.get((kind, "train"), ()):
                if question.question.lower() not in asked:  # nobody trains on what is asked in the test
                    (dev if _in_dev(question.id) else train).append(question)
        found = {
            "train": train,
            "dev": dev,
            "seen": [question for kind in SEEN for question in tests[kind]],
            "unseen": [question for kind in UNSEEN for question in tests[kind]],
            "paper": [question for kind in KINDS for question in tests[kind]],
        }
        return {split: tuple(Task(q.id, ENV_ID, split, q.kind) for q in of) for split, of in found.items()}

    def tasks(self, split: str) -> tuple[Task, ...]:
        check_split(split, len(self._splits.get(split, ())))
        if split == "paper" and (absent := [kind for kind in KINDS if (kind, "test") not in self.groups]):
            raise SeedbenchError(
                f"The split paper is all seven sets, and {', '.join(absent)} is not here; add its file."
            )
        return self._splits[split]

    def question(self, task_id: str) -> Question:
        try:
            return self._by_id[task_id]
        except KeyError:
            raise SeedbenchError(f"No question has the id {task_id[:80]!r}; list them with tasks(split).") from None

    def passages(self) -> Sequence[Passage] | None:
        return self._passages or None

    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        whole = hashlib.sha256(b"searchqa-questions-1")
        for group in sorted(self.groups):
            for q in sorted(self.groups[group], key=lambda question: question.id):
                hops = [[e.passage, e.title, e.sentence, e.query] for e in q.evidence]
                whole.update(sha256_json([group, q.id, q.question, q.golds, hops]).encode())
        for passage in self._passages:
            whole.update(sha256_json(passage[:3]).encode())
        return whole.hexdigest()


def _in_dev(task_id: str) -> bool:
    digest = hashlib.sha256(f"searchqa-dev {task_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % DEV_SHARE == 0


def question_files(path: Path) -> list[Path]:
    """The files of a folder, two levels deep, whose names a question file can have; a file alone is itself."""
    if path.is_file():
        return [path]
    found = {p for pattern in ("*", "*/*") for p in path.glob(pattern) if p.is_file() and p.name.endswith(ENDINGS)}
    return sorted(p for p in found if p.name not in (PASSAGES, MANIFEST))


def _read(path: Path) -> tuple[dict[Group, list[Question]], list[Passage]]:
    """Questions by kind and role, each in file order, and the passages that came with them, each once, by id."""
    found: dict[tuple[str, str], tuple[Path, list[Question]]] = {}
    passages: dict[str, Passage] = {}
    for file in question_files(path):
        for (kind, role), questions in _read_file(file, passages).items():
            other, _ = found.setdefault((kind, role), (file, questions))
            if other != file:
                raise SeedbenchError(
                    f"{other} and {file} both hold {role} questions of {kind}: name one file, or move the other away."
                )
    groups: dict[Group, list[Question]] = {}
    for kind, role in sorted(found, key=lambda group: group[1] != "test"):  # test goes before dev
        if role == "train" or (kind, "test") not in groups:
            groups[kind, "train" if role == "train" else "test"] = found[kind, role][1]
    if not groups:
        raise SeedbenchError(
            f"{path} holds no questions of {', '.join(KINDS)} in {', '.join(ENDINGS)}; give the folder that does."
        )
    if path.is_dir() and (path / PASSAGES).is_file():
        for where, row in read_rows(path / PASSAGES):
            if not all(isinstance(row.get(name), str) for name in ("id", "title", "text")):
                raise SeedbenchError(f"{where} is no passage with id, title and text; import the files again.")
            passages[row["id"]] = Passage(row["id"], row["title"], row["text"], 0.0)
    return groups, [passages[name] for name in sorted(passages)]


def _read_file(file: Path, passages: dict[str, Passage]) -> dict[tuple[str, str], list[Question]]:
    """One file's questions by kind and role; {} for a file of something else. Its passages are added."""
    found: dict[tuple[str, str], dict[str, Question]] = {}
    role, named = role_of_file(file), kind_of_file(file)
    for number, (where, row) in enumerate(read_rows(file)):
        if not is_question(row):
            if number == 0:  # a corpus, or a list of something
                return {}
            raise SeedbenchError(f"{where} is no question with its answers; fetch the file again.")
        source = row.get("data_source")
        kind = kind_of(source) if isinstance(source, str) else named
        if kind is None:
            raise SeedbenchError(
                f"{where} is of {source or 'no set that its name tells'}, not of {', '.join(KINDS)}: remove the file, "
                "or let its name begin with one of them."
            )
        if role == "train" and kind not in SEEN:
            continue
        question = to_question(row, kind, where)
        group = found.setdefault((kind, role), {})
        if group.setdefault(question.id, question).question != question.question:
            raise SeedbenchError(f"{where} has the id of another question, {question.id}; fetch the file again.")
        passages.update((passage.id, passage) for passage in passages_of(row, where))
    return {key: list(group.values()) for key, group in found.items()}
