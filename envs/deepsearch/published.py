"""Published questions: files as they were published, or the folder that `data import` made of them.

unseen is FRAMES, GAIA's text questions, BrowseComp and BrowseComp-Plus, and so is paper; of question-answer pairs in
files named train, dev and test come train, dev and seen, dev being a slice of train where no file is named so.

An import is one file of JSON lines: `[kind, role, id, question, golds, evidence, snippets]`, or, of what its authors
publish encrypted, `[kind, role, id, sealed]` with the rest encrypted in the same way. No page comes with the questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from seedbench.core import Anchor, Passage, SeedbenchError, Task
from seedbench.envs.deepsearch.data import ENV_ID, MOST_ANCHORS, SPLITS, Dataset, check_split
from seedbench.envs.deepsearch.rows import CANARY, ENDINGS, KINDS, SEALED, Item, read_items
from seedbench.envs.deepsearch.sealing import seal, unseal
from seedbench.envs.searchqa.data import Evidence, Question
from seedbench.envs.searchqa.scoring import normalise
from seedbench.prompts import sha256_json

QUESTIONS, MANIFEST = "questions.jsonl", "deepsearch.json"  # of an import
OWN_CANARY = "seedbench keeps these questions encrypted as their authors do: never publish them in the clear"
DEV_SHARE = 64  # one train pair in so many is of dev


class Published(Dataset):
    """Questions of a file or folder, held in memory; searching them needs an index that the user names."""

    def __init__(self, path: Path):
        self.path = path
        items = list(_imported(path / QUESTIONS) if (path / MANIFEST).is_file() else _raw(path))
        if not items:
            raise SeedbenchError(f"{path} holds no question that can be asked; name the published file or its folder.")
        self.items: dict[str, Item] = {}
        for item in items:
            name = f"{item.kind}/{item.own}"
            if self.items.setdefault(name, item) is not item:
                raise SeedbenchError(f"{path} has two questions with the id {name}; remove one of the files.")
        self.withheld = any(item.kind in SEALED for item in items)

    @cached_property
    def _splits(self) -> dict[str, tuple[Task, ...]]:
        found: dict[str, list[str]] = {split: [] for split in SPLITS}
        has_dev = any(item.kind == "qa" and item.role == "dev" for item in self.items.values())
        asked = {item.question.lower() for item in self.items.values() if item.role == "test"}
        for name, item in self.items.items():
            if item.kind != "qa":
                found["unseen"].append(name)
                found["paper"].append(name)
            elif item.role == "test":
                found["seen"].append(name)
            elif item.question.lower() not in asked:  # nobody trains on what is asked in the test
                slice_of_train = item.role == "train" and not has_dev and _in_dev(name)
                found["dev" if item.role == "dev" or slice_of_train else "train"].append(name)
        return {
            split: tuple(Task(name, ENV_ID, split, self.items[name].kind) for name in names)
            for split, names in found.items()
        }

    def tasks(self, split: str) -> tuple[Task, ...]:
        check_split(split, len(self._splits.get(split, ())))
        return self._splits[split]

    def question(self, task_id: str) -> Question:
        item = self.items.get(task_id)
        if item is None:
            raise SeedbenchError(f"No question has the id {task_id[:80]!r}; list them with tasks(split).")
        return Question(task_id, item.question, item.golds, item.kind, item.evidence)

    def anchors(self, question: Question) -> tuple[Anchor, ...]:
        """The beginnings of the gold pages, of those that the file has, where they do not hold the answer."""
        item = self.items[question.id]
        golds = [f" {normalise(gold)} " for gold in question.golds]
        told = [
            Anchor(page.title, page.passage, text)
            for page, text in zip(item.evidence, item.snippets, strict=False)
            if text and not any(gold in f" {normalise(text)} " for gold in golds)
        ]
        return tuple(told[:MOST_ANCHORS])

    def passages(self) -> Sequence[Passage] | None:
        return None

    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return sha256_json(["deepsearch-questions-1", sorted(map(_plain, self.items.values()))])


def _in_dev(task_id: str) -> bool:
    digest = hashlib.sha256(f"deepsearch-dev {task_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % DEV_SHARE == 0


def _raw(path: Path) -> Iterable[Item]:
    files = [path] if path.is_file() else sorted(p for p in path.glob("**/*") if p.is_file())
    for file in files:
        if file.name.endswith(ENDINGS) and file.name != CANARY:
            yield from read_items(file)


def _plain(item: Item) -> list[Any]:
    evidence = [[page.passage, page.title] for page in item.evidence]
    return [item.kind, item.role, item.own, item.question, list(item.golds), evidence, list(item.snippets)]


def row_of(item: Item) -> list[Any]:
    """The item as a line of an import holds it; encrypted where its authors encrypt it."""
    row = _plain(item)
    if item.kind in SEALED:
        row = [*row[:3], seal(json.dumps(row[3:], ensure_ascii=False), OWN_CANARY)]
    return row


def _imported(path: Path) -> Iterable[Item]:
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            if row[0] in SEALED:
                row = [*row[:3], *json.loads(unseal(row[3], OWN_CANARY))]
            kind, role, own, question, golds, evidence, snippets = row
            if kind not in KINDS:
                raise ValueError(f"line {number} is of an unknown kind")
            pages = tuple(Evidence(passage, title) for passage, title in evidence)
            yield Item(kind, role, own, question, tuple(golds), pages, tuple(snippets))
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise SeedbenchError(f"{path} cannot be read ({error}): import the questions again.") from error
