"""Generated encyclopedias that were written down: the embedded `mini` set, and folders that `data generate` makes.

A set is two files: a manifest, and a pack of lines `["passage", id, title, text]` and `["question", id, text, golds,
[[passage, sentence, query], ...]]`. Both hold plain data, not seeds: a later change of the generator changes no exam. A
task's digest covers the question with answers and evidence, and the passages of that evidence; the manifest's header
has the digest of the whole corpus, which decides what a search finds. Listing a split reads the manifest alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from seedbench.core import Passage, SeedbenchError, Task
from seedbench.envs import manifests
from seedbench.envs.manifests import Manifest, Row
from seedbench.envs.searchqa.data import ENV_ID, SPLITS, Dataset, Evidence, Question
from seedbench.envs.searchqa.generate import SIZES, Encyclopedia, Progress, digest_of, generate
from seedbench.envs.searchqa.measure import measure
from seedbench.envs.searchqa.relations import path_of
from seedbench.indexes.bm25 import Bm25, document_digest

LISTED = "searchqa_mini"
PACK, LISTING = "seedbench-searchqa.jsonl.xz", "seedbench-searchqa-manifest.jsonl.xz"  # in a folder


class _Content(NamedTuple):
    passages: dict[str, Passage]  # by id, ascending
    questions: dict[str, list[Any]]  # by task id: text, golds, evidence


class Frozen(Dataset):
    """A frozen encyclopedia. `read` gives the pack; it is called when the first question or passage is wanted.

    Raises SeedbenchError where the pack is damaged or is not the one of the manifest.
    """

    def __init__(self, manifest: Manifest, read: Callable[[], bytes], committed: bool):
        self.manifest, self._read, self._committed = manifest, read, committed
        self._cure = "install seedbench again" if committed else "generate it again into a new folder"

    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in SPLITS:
            raise SeedbenchError(f"Search-QA has no split {split!r}; choose one of {', '.join(SPLITS)}.")
        if split not in self._splits:
            held = ", ".join(self._splits)
            raise SeedbenchError(f"There are no generated questions of the split {split}; choose one of {held}.")
        return self._splits[split]

    def question(self, task_id: str) -> Question:
        row = self.manifest.rows.get(task_id)
        if row is None:
            raise SeedbenchError(f"No search-QA task has the id {task_id[:80]!r}; list them with tasks(split).")
        try:
            text, golds, evidence = self._content.questions[task_id]
            gold_passages = [self._content.passages[passage] for passage, _, _ in evidence]
            hops = (Evidence(p.id, p.title, e[1], e[2]) for p, e in zip(gold_passages, evidence, strict=True))
            question = Question(task_id, text, tuple(golds), row.kind, tuple(hops))
        except (LookupError, TypeError, ValueError):
            raise self._foreign(task_id) from None
        if digest_of(question, gold_passages) != row.digest:
            raise self._foreign(task_id)
        return question

    def passages(self) -> Sequence[Passage]:
        return tuple(self._content.passages.values())

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
    def _content(self) -> _Content:
        try:
            lines = [json.loads(line) for line in lzma.decompress(self._read()).splitlines()]
            passages = {line[1]: Passage(line[1], line[2], line[3], 0.0) for line in lines if line[0] == "passage"}
            questions = {line[1]: line[2:] for line in lines if line[0] == "question"}
            corpus = corpus_digest(list(passages.values()))
        except (OSError, lzma.LZMAError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise SeedbenchError(f"The generated encyclopedia cannot be read ({error}); {self._cure}.") from error
        if corpus != self.manifest.header.get("corpus"):
            raise SeedbenchError(f"The generated encyclopedia does not hold its manifest's passages; {self._cure}.")
        return _Content(passages, questions)


def corpus_digest(passages: Sequence[Passage]) -> str:
    """sha256 hex of a corpus, whatever its order: what an index calls the digest of its corpus."""
    ordered = sorted(passages, key=lambda passage: passage.id)
    return hashlib.sha256(b"".join(document_digest(p.id, p.title, p.text) for p in ordered)).hexdigest()


def open_mini() -> Frozen:
    """The embedded encyclopedia."""
    file = resources.files("seedbench.envs.searchqa") / "mini.jsonl.xz"
    return Frozen(manifests.load(LISTED), file.read_bytes, committed=True)


def open_generated(folder: Path) -> Frozen:
    """What `generate_folder` left in a folder. Raises SeedbenchError where its manifest is missing or damaged."""
    try:
        manifest = manifests.parse((folder / LISTING).read_bytes())
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise SeedbenchError(f"{folder / LISTING} cannot be read ({error}); generate it again.") from error
    return Frozen(manifest, (folder / PACK).read_bytes, committed=False)


def write_set(
    listing: Path,
    pack: Path,
    *,
    prefix: str,
    seed: int,
    level: int,
    sizes: Mapping[str, int],
    progress: Progress = lambda done, total: None,
) -> Encyclopedia:
    """Generate an encyclopedia, write its manifest and its pack. Ids are `prefix/kind/<8 digits of the digest>`."""
    made = generate(seed, level, sizes, prefix, progress)
    by_id = {passage.id: passage for passage in made.passages}
    rows: list[Row] = []
    lines: list[list[Any]] = [["passage", *passage[:3]] for passage in made.passages]
    for split, questions in made.questions.items():
        for question in questions:
            digest = digest_of(question, [by_id[e.passage] for e in question.evidence])
            passages = len({e.passage for e in question.evidence})
            options = {"path": " > ".join(path_of(made.forms[question.id])), "passages": passages}
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
    """Generate an encyclopedia into the folder `dest`, which `--data` then takes; results on it are unpinned.

    One row a split: split, questions, passages of the whole corpus, and the figures of `measure` over BM25.
    `report(done, total)` counts questions. Raises SeedbenchError for a folder that holds a set already, an unknown
    level or split, a size that the world cannot fill, or where nothing can be written.
    """
    sizes = sizes or SIZES
    if any((dest / name).exists() for name in (PACK, LISTING)):
        raise SeedbenchError(f"{dest} holds generated questions already; name another folder, or remove it first.")
    for split, size in sizes.items():
        if size < 1:
            raise SeedbenchError(f"The split {split} is to hold {size} questions; ask for 1 or more, or leave it out.")
    try:
        dest.mkdir(parents=True, exist_ok=True)
        files, prefix = (dest / LISTING, dest / PACK), f"searchqa-{seed}-{level}"
        made = write_set(*files, prefix=prefix, seed=seed, level=level, sizes=sizes, progress=report)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some megabytes" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
    rows, index = [], Bm25(made.passages)
    for split, questions in made.questions.items():
        counted = {"split": split, "questions": len(questions), "passages": len(made.passages)}
        rows.append(counted | measure(index, questions))
    return rows
