"""`seedbench data import webshop SOURCE DEST`, and what `data check` says of the result.

The files are named by the digest of their contents, which is the import's key: the same call goes on after a kill,
does nothing where it has finished, and refuses a folder that holds another catalogue.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.data import SPLITS, STORE, find_file, need_file, open_dataset
from seedbench.envs.webshop.finishing import KIND, finish
from seedbench.envs.webshop.nouns import Spacy, spacy_at_hand
from seedbench.envs.webshop.parts import KIND as PART_KIND
from seedbench.envs.webshop.parts import Sources, read_parts
from seedbench.envs.webshop.store import Imported
from seedbench.indexes import store
from seedbench.indexes.analysis import ANALYSIS
from seedbench.prompts import sha256_json

Progress = Callable[[int, int], None]
PARTS = "import.parts"
KEY = "key"
UNIT = 1 << 10  # bytes: progress counts kB of the product file, thrice (digest, reading, writing)


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Build `dest`/store from the original's files in the folder `source`; returns `check`'s rows.

    items_shuffle*, items_ins_v2* and, where they are there, items_human_ins* and title_nouns*, .json or .json.xz.
    Titles are tagged with spaCy where it is installed and no title_nouns came. Memory does not grow with the product
    file but for its ids and words. Raises SeedbenchError for missing, broken or other files, a full disk, a `dest`
    that holds another catalogue, and a second import into it at once.
    """
    if not source.is_dir():
        raise SeedbenchError(f"{source} is no folder; name the one with the original's items_shuffle files.")
    tagged = find_file(source, "title_nouns")
    sources = Sources(
        need_file(source, "items_shuffle"),
        need_file(source, "items_ins_v2"),
        find_file(source, "items_human_ins"),
        tagged,
        Spacy() if tagged is None and spacy_at_hand() else None,
    )
    try:
        dest.mkdir(parents=True, exist_ok=True)
        with FileLock(dest / ".import.lock", timeout=0):
            _build(sources, dest, progress)
    except Timeout as error:
        raise SeedbenchError(f"Another import into {dest} is running; wait for it to end.") from error
    except (OSError, sqlite3.DatabaseError) as error:
        raise _unwritable(dest, error) from error
    return rows_of(str(dest), lambda done, total: None)


def _build(sources: Sources, dest: Path, progress: Progress) -> None:
    size = sources.items.stat().st_size
    total = 3 * size // UNIT + 1
    key = _key(sources, lambda done: progress(done // UNIT, total))
    made, work = dest / STORE, dest / PARTS
    if (made / store.META).exists():
        if store.read(made, KIND, check=False)[0].get("key") != key:
            raise SeedbenchError(f"{dest} holds a catalogue of other files; name another folder, or remove that.")
        shutil.rmtree(work, ignore_errors=True)  # there if a kill came after the last write
        return
    if not work.exists() or not _holds(work / KEY, key):
        if work.exists():  # scratch of other files: nothing in it was ever finished
            shutil.rmtree(work)
        work.mkdir()
        part = work / f"{KEY}.part"
        part.write_text(key)
        os.replace(part, work / KEY)  # written once: a resume that dies must not lose the parts it resumes from
    made.mkdir(exist_ok=True)  # without a head it says that the import has not finished
    parts = read_parts(sources, work, lambda done: progress((size + done) // UNIT, total))
    finish(parts, key, made, work, lambda share: progress(int(size * (2 + share)) // UNIT, total))
    shutil.rmtree(work)
    progress(total, total)


def _holds(path: Path, key: str) -> bool:
    return path.is_file() and path.read_bytes() == key.encode()


def _key(sources: Sources, report: Callable[[int], None]) -> str:
    """Names the contents of all files and everything of ours that makes the store of them."""
    digests = {}
    for name in ("human", "attributes", "nouns", "items"):
        path, whole, done = getattr(sources, name), hashlib.sha256(), 0
        if path is not None:
            with path.open("rb") as file:
                while data := file.read(1 << 22):
                    whole.update(data)
                    done += len(data)
                    if name == "items":
                        report(done)
        digests[name] = whole.hexdigest() if path else ""
    tagger = sources.tagger.name if sources.tagger else ""
    return sha256_json([KIND, PART_KIND, ANALYSIS, tagger, digests])


def _unwritable(path: Path, error: OSError | sqlite3.DatabaseError) -> SeedbenchError:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "is full" in str(error)
    why = "the disk is full; free three times the size of the unpacked product file" if full else f"{error}; mend that"
    return SeedbenchError(f"{path} cannot be written, {why} and run the same command again: it goes on from there.")


def rows_of(data: str, progress: Progress) -> list[dict[str, Any]]:
    """`files.check` of a folder: every file of a store against its digest, then each split, both kinds of goals."""
    imported = (Path(data) / STORE).exists()
    table = []
    if imported:
        Imported(Path(data), check=True)
    for done, split in enumerate(SPLITS, 1):
        dataset = open_dataset(data)
        try:
            found, first = len(dataset.tasks(split)), ""
        except SeedbenchError as error:
            found, first = 0, str(error)
        table.append({"split": split, "expected": found, "found": found, "missing": 0, "damaged": 0, "wrong": 0,
                      "pinned": dataset.pinned(split), "first": first})  # fmt: skip
        progress(done, len(SPLITS))
    return table
