"""Generated questions that were written down: the embedded `mini` set, and folders that `data generate` makes.

A set is two files: a manifest, and a pack of lines `["question", id, text, golds, [[passage, sentence, query], ...]]`
and, in a folder, `["passage", id, title, text]`. The embedded set has no passages of its own: it asks about the
encyclopedia of search-QA's, whose digest its header names. A task's digest covers the question with answers and
evidence, and the passages of that evidence.
"""

from __future__ import annotations

import errno
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from seedbench.core import Anchor, Passage, SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.deepsearch import rehearse
from seedbench.envs.deepsearch.data import ENV_ID, MOST_ANCHORS, Dataset, check_split
from seedbench.envs.deepsearch.generate import SIZES, Progress, Search, generate
from seedbench.envs.manifests import Manifest, Row
from seedbench.envs.searchqa.data import Dataset as Questions
from seedbench.envs.searchqa.data import Evidence, Question, open_dataset
from seedbench.envs.searchqa.generate import digest_of
from seedbench.envs.searchqa.mini import corpus_digest
from seedbench.envs.searchqa.prose import sentences
from seedbench.envs.searchqa.questions import normal
from seedbench.envs.searchqa.retrieval import K1, B
from seedbench.indexes.bm25 import Bm25

LISTED = "deepsearch_mini"
PACK, LISTING = "seedbench-deepsearch.jsonl.xz", "seedbench-deepsearch-manifest.jsonl.xz"  # in a folder


class Frozen(Dataset):
    """A frozen set. `read` gives the pack, `shared` the data set whose passages are searched (None: the pack's own).

    Raises SeedbenchError where the pack is damaged or is not the one of the manifest.
    """

    small = True

    def __init__(self, manifest: Manifest, read: Callable[[], bytes], shared: Questions | None, committed: bool):
        self.manifest, self._read, self._committed = manifest, read, committed
        self.corpus = shared or self
        self._cure = "install seedbench again" if committed else "generate it again into a new folder"

    def tasks(self, split: str) -> tuple[Task, ...]:
        check_split(split, len(self._splits.get(split, ())))
        return self._splits[split]

    def question(self, task_id: str) -> Question:
        row = self.manifest.rows.get(task_id)
        if row is None:
            raise SeedbenchError(f"No deep-search task has the id {task_id[:80]!r}; list them with tasks(split).")
        try:
            text, golds, evidence = self._asked[task_id]
            gold_passages = [self._passages[passage] for passage, _, _ in evidence]
            hops = (Evidence(p.id, p.title, e[1], e[2]) for p, e in zip(gold_passages, evidence, strict=True))
            question = Question(task_id, text, tuple(golds), row.kind, tuple(hops))
        except (LookupError, TypeError, ValueError):
            raise self._foreign(task_id) from None
        if digest_of(question, gold_passages) != row.digest:
            raise self._foreign(task_id)
        return question

    def anchors(self, question: Question) -> tuple[Anchor, ...]:
        """The sentences that the way rests on, in its order, but those with the answer: the last step stays to do."""
        found = []
        for hop in question.evidence:
            text = sentences(self._passages[hop.passage].text)[hop.sentence]
            if not any(f" {normal(gold)} " in f" {normal(text)} " for gold in question.golds):
                found.append(Anchor(hop.title, hop.passage, text))
        return tuple(found[:MOST_ANCHORS])

    def passages(self) -> Sequence[Passage]:
        return tuple(self._passages.values())

    def digest(self) -> str:
        return self.manifest.digest

    def pinned(self, split: str) -> bool:
        return self._committed and split in self._splits

    def _foreign(self, task_id: str) -> SeedbenchError:
        return SeedbenchError(f"The question {task_id} is not as its manifest says; {self._cure}.")

    @cached_property
    def _splits(self) -> dict[str, tuple[Task, ...]]:
        splits: dict[str, list[Task]] = {}
        for row in self.manifest.rows.values():
            splits.setdefault(row.split, []).append(Task(row.id, ENV_ID, row.split, row.kind, row.options))
        return {split: tuple(tasks) for split, tasks in splits.items()}

    @cached_property
    def _lines(self) -> list[list[Any]]:
        try:
            lines = [json.loads(line) for line in lzma.decompress(self._read()).splitlines()]
            if not all(isinstance(line, list) and len(line) >= 4 for line in lines):
                raise ValueError("a line is none of a pack")
            return lines
        except (OSError, lzma.LZMAError, ValueError, RecursionError) as error:
            raise SeedbenchError(f"The generated questions cannot be read ({error}); {self._cure}.") from error

    @cached_property
    def _asked(self) -> dict[str, list[Any]]:
        return {line[1]: line[2:] for line in self._lines if line[0] == "question"}

    @cached_property
    def _passages(self) -> dict[str, Passage]:
        if self.corpus is not None and self.corpus is not self:
            found = list(self.corpus.passages() or ())
        else:
            found = [Passage(line[1], line[2], line[3], 0.0) for line in self._lines if line[0] == "passage"]
        if corpus_digest(found) != self.manifest.header.get("corpus"):
            raise SeedbenchError(f"The encyclopedia is not the one that the manifest asks about; {self._cure}.")
        return {passage.id: passage for passage in found}


def open_mini() -> Frozen:
    """The embedded set, over the embedded encyclopedia of search-QA."""
    file = resources.files("seedbench.envs.deepsearch") / "mini.jsonl.xz"
    return Frozen(manifests.load(LISTED), file.read_bytes, open_dataset("mini"), committed=True)


def open_generated(folder: Path) -> Frozen:
    """What `generate_folder` left in a folder. Raises SeedbenchError where its manifest is missing or damaged."""
    try:
        manifest = manifests.parse((folder / LISTING).read_bytes())
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise SeedbenchError(f"{folder / LISTING} cannot be read ({error}); generate it again.") from error
    return Frozen(manifest, (folder / PACK).read_bytes, None, committed=False)


def write_set(
    listing: Path,
    pack: Path,
    *,
    prefix: str,
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    passages: bool = True,
    progress: Progress = lambda done, total: None,
) -> Search:
    """Generate questions, write their manifest and pack. Ids are `prefix/kind/<8 digits of the digest>`."""
    made = generate(seed, level, sizes, prefix, progress)
    by_id = {passage.id: passage for passage in made.passages}
    rows: list[Row] = []
    lines: list[list[Any]] = [["passage", *passage[:3]] for passage in made.passages] if passages else []
    for split, questions in made.questions.items():
        for question in questions:
            digest = digest_of(question, [by_id[e.passage] for e in question.evidence])
            options = {"path": made.forms[question.id].pattern, "pages": len({e.passage for e in question.evidence})}
            rows.append(Row(question.id, question.kind, split, digest, options))
            evidence = [[e.passage, e.sentence, e.query] for e in question.evidence]
            lines.append(["question", question.id, question.question, list(question.golds), evidence])
    header = {"env": ENV_ID, "set": prefix, "seed": seed, "level": level, "corpus": corpus_digest(made.passages)}
    manifests.write(listing, header, rows)
    manifests.write_lines(pack, lines)
    return made


def generate_folder(
    dest: Path, report: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate a set into the folder `dest`, which `--data` then takes; results on it are unpinned.

    One row a split: split, questions, passages, and how many steps the oracle needs on average. `report(done, total)`
    counts questions. Raises SeedbenchError for a folder that holds a set already, an unknown level or split, a size
    that the world cannot fill, or where nothing can be written.
    """
    sizes = sizes or SIZES
    if any((dest / name).exists() for name in (PACK, LISTING)):
        raise SeedbenchError(f"{dest} holds generated questions already; name another folder, or remove it first.")
    for split, size in sizes.items():
        if size < 1:
            raise SeedbenchError(f"The split {split} is to hold {size} questions; ask for 1 or more, or leave it out.")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        files, prefix = (dest / LISTING, dest / PACK), f"deepsearch-{seed}-{level}"
        made = write_set(*files, prefix=prefix, seed=seed, level=level, sizes=sizes, progress=report)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some megabytes" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
    index = Bm25(made.passages, k1=K1, b=B)
    rows = []
    for split, questions in made.questions.items():
        needed = [rehearse.steps(index, question) or 0 for question in questions]
        mean = sum(needed) / max(len(needed), 1)
        rows.append({"split": split, "questions": len(questions), "passages": len(made.passages), "steps": mean})
    return rows
