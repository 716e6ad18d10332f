"""What `seedbench data check|generate|import searchqa` call. `progress(done, total)` counts questions."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.searchqa import mini
from seedbench.envs.searchqa.data import KINDS, Dataset, Question, open_dataset
from seedbench.envs.searchqa.env import SearchQAEnv
from seedbench.envs.searchqa.published import MANIFEST, PASSAGES, SEEN, UNFINISHED, UNSEEN, Published

Progress = Callable[[int, int], None]
SCHEMA = "seedbench.searchqa/1"
# Questions of the published test sets, and of the samples of them that DeepResearcher tests on.
COUNTS = {
    "nq": (3610, 512),
    "triviaqa": (11313, 512),
    "popqa": (14267, 512),
    "hotpotqa": (7405, 512),
    "2wikimultihopqa": (12576, 512),
    "musique": (2417, 512),
    "bamboogle": (125,),
}
GENERATED = (  # what the columns of `generate` mean
    "oracle: share of the questions that the oracle, which knows the hops, answers within 8 turns of 3 passages; "
    "searches: how many it needs; bare: share of the questions of several hops whose last passage their own words find."
)


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Count published questions, and play those that come with their own passages with the oracle.

    One row a split: split, expected, found, missing, damaged, wrong, pinned, solved, first. `missing` is what a set
    that is there lacks of its published number, `damaged` is 1 where the files are no longer those that were imported,
    `solved` counts questions that the oracle wins by searching, `wrong` generated ones that it does not; `first` is the
    first complaint as a sentence.
    """
    dataset = open_dataset(data)
    return _rows(dataset, data, progress)


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Write the questions of `source` (a file or a folder of them) into `dest`, one file a set; returns `check`'s rows.

    The same questions give the same digest in both places. Raises SeedbenchError for files that are missing, broken or
    ambiguous, for a `dest` that holds other questions, and where nothing can be written.
    """
    if not source.exists():
        raise SeedbenchError(f"{source} is not there; name the file or folder of questions.")
    found = Published(source)
    held = _held(dest)
    if held not in ("", found.digest()):
        raise SeedbenchError(f"{dest} holds other questions already; name another folder, or remove it first.")
    with _writing(dest):
        dest.mkdir(parents=True, exist_ok=True)
        if not held:
            (dest / UNFINISHED).touch()
        for (kind, role), questions in found.groups.items():
            (dest / kind).mkdir(exist_ok=True)
            _write_lines(dest / kind / f"{role}.jsonl", map(_row, questions))
        if passages := found.passages():
            _write_lines(dest / PASSAGES, ({"id": p.id, "title": p.title, "text": p.text} for p in passages))
        counts = {f"{kind}/{role}": len(found.groups[kind, role]) for kind, role in sorted(found.groups)}
        _write_lines(dest / MANIFEST, [{"schema": SCHEMA, "digest": found.digest(), "questions": counts}])
        (dest / UNFINISHED).unlink(missing_ok=True)
    return _rows(Published(dest), str(dest), progress)


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate an encyclopedia and questions about it into the folder `dest`: see mini.generate_folder."""
    if _held(dest):
        raise SeedbenchError(f"{dest} holds questions already; name another folder, or remove it first.")
    return mini.generate_folder(dest, progress, seed=seed, level=level, sizes=sizes)


def solved(env: SearchQAEnv, task_id: str) -> bool:
    """Whether the oracle wins the task, step by step in the real environment."""
    _, info = env.reset(options={"task": task_id})
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(env.expert() or "")
        over = terminated or truncated
    return info["won"]


def _rows(dataset: Dataset, data: str, progress: Progress) -> list[dict[str, Any]]:
    held = _held(Path(data)) if isinstance(dataset, Published) else ""
    damaged = held not in ("", dataset.digest())
    env = None if dataset.passages() is None else SearchQAEnv(data)
    splits = {split: _tasks(dataset, split) for split in ("train", "dev", "seen", "unseen")}
    total, done, table = sum(map(len, splits.values())), 0, []
    for split, tasks in splits.items():
        kinds = Counter(task.kind for task in tasks)
        missing, first = _short(split, kinds) if isinstance(dataset, Published) else (0, "")
        if tasks and env is None:
            first = f"{first} Without passages: needs an index of wiki-18 (--retriever).".strip()
        if damaged:
            first = "The questions are not those that were imported: import them again into a new folder."
        count = {"wrong": 0, "solved": 0}
        for task in tasks:
            if env is not None:
                won, fault = _played(env, task.id)
                count["solved"] += won
                if not won and not isinstance(dataset, Published):  # who published them promised no search engine
                    count["wrong"] += 1
                    first = first or fault
            done += 1
            progress(done, total)
        pinned = bool(tasks) and dataset.pinned(split)
        found = {"split": split, "expected": len(tasks) + missing, "found": len(tasks), "missing": missing}
        solid = {"damaged": int(damaged), "wrong": count["wrong"], "pinned": pinned, "solved": count["solved"]}
        table.append(found | solid | {"first": first})
    return table


def _played(env: SearchQAEnv, task_id: str) -> tuple[bool, str]:
    """Whether the oracle wins, and if not, why."""
    try:
        return solved(env, task_id), f"The oracle does not win {task_id}: generate the questions again."
    except SeedbenchError as error:
        return False, str(error)


def _tasks(dataset: Dataset, split: str) -> list[Any]:
    try:
        return list(dataset.tasks(split))
    except SeedbenchError:  # a folder may hold only some splits
        return []


def _short(split: str, kinds: Mapping[str, int]) -> tuple[int, str]:
    """How many questions the sets of a test split lack of their published numbers, and that as a sentence."""
    of_split = {"seen": SEEN, "unseen": UNSEEN}.get(split, ())
    lacking = {kind: COUNTS[kind][0] - kinds[kind] for kind in KINDS if kind in of_split and kinds[kind]}
    lacking = {kind: n for kind, n in lacking.items() if kinds[kind] not in COUNTS[kind]}
    said = ", ".join(f"{kind} has {kinds[kind]} of {COUNTS[kind][0]} published questions" for kind in lacking)
    return sum(abs(n) for n in lacking.values()), said and f"{said}."


def _row(question: Question) -> dict[str, Any]:
    """A question as FlashRAG writes one, and its evidence."""
    told = {"id": question.id.partition("/")[2], "question": question.question}
    known = {"golden_answers": list(question.golds), "data_source": question.kind}
    hops = [{k: v for k, v in asdict(hop).items() if v or k != "text"} for hop in question.evidence]
    return told | known | ({"evidence": hops} if hops else {})


def _held(folder: Path) -> str:
    """The digest of the import that a folder holds; "" where there is none. Raises SeedbenchError for other files."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise SeedbenchError(f"{folder / MANIFEST} is of another version ({found['schema']}): import again.")
        return str(found["digest"])
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SeedbenchError(f"{folder / MANIFEST} cannot be read ({error}): remove it and import again.") from error


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(part, path)


@contextmanager
def _writing(dest: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full; free some space" if full else f"{error.strerror}; mend that"
        raise SeedbenchError(f"{dest} cannot be written, {why} and run the same command again.") from error
