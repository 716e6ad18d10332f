"""Index folders: one manifest, the kind's own files, and the offsets of the corpus that they index.

    build("lucene", "wiki-18.jsonl", "wiki_lucene", {"k1": 0.9, "b": 0.4}, progress)
    retriever = open_index("wiki_lucene")

A kind is a module (KINDS) with `SETTINGS` (each setting's default), `build(corpus, folder, settings, report) -> dict`
(facts for the manifest), `open(folder, manifest, corpus) -> Retriever` and `bytes_needed(count, text_bytes, settings)
-> int`. The manifest is written last: a folder without one is an unfinished build, which the same call goes on with.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import seedbench
from seedbench.core import Retriever, SeedbenchError
from seedbench.indexes import corpus as corpora
from seedbench.indexes.corpus import Corpus, FileCorpus
from seedbench.indexes.manifest import (
    BEGUN,
    LOCK,
    MANIFEST,
    SCHEMA,
    begun,
    check_size,
    digests,
    find,
    is_foreign,
    own_files,
    read_manifest,
    write_text,
)
from seedbench.indexes.scanning import need_room, size
from seedbench.indexes.selftest import self_test

KINDS = {
    "bm25": "seedbench.indexes.bm25_folder",
    "lucene": "seedbench.indexes.lucene",
    "dense": "seedbench.indexes.dense",
    "hybrid": "seedbench.indexes.hybrid",
}
Progress = Callable[[str, int, int], object]  # stage, done, total
Say = Callable[[str], object]


def build(
    kind: str,
    corpus_path: Path | str,
    folder: Path | str,
    settings: Mapping[str, Any] | None = None,
    progress: Progress = lambda stage, done, total: None,
    say: Say = corpora.say,
) -> dict[str, Any]:
    """Index a corpus into `folder` and return the manifest.

    The same call goes on after a kill: what was read of the corpus stays, and so does what the kind keeps of its own
    work. A finished folder of the same corpus and settings is left as it is. `say` is told how many bytes are needed
    before they are taken. Raises SeedbenchError for a corpus that is no corpus, a folder that holds something else, a
    disk without room, unknown settings, a failed self-test, and a second build into the folder at once.
    """
    corpus_path, folder = Path(corpus_path).absolute(), Path(folder)
    wanted = {"kind": kind, "settings": checked(kind, settings or {})}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            if (folder / MANIFEST).exists():
                return _finished(folder, wanted, corpus_path)
            _begin(folder, wanted | {"corpus": str(corpus_path)}, say)
            return _build(wanted, corpus_path, folder, progress, say)
    except Timeout as error:
        raise SeedbenchError(f"Another build into {folder} is running: wait for it to end.") from error


def checked(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a kind, defaults filled in. Raises SeedbenchError for one that the kind has not."""
    known: Mapping[str, Any] = module(kind).SETTINGS
    given = {name: value for name, value in settings.items() if value is not None}
    if unknown := sorted(given.keys() - known.keys()):
        raise SeedbenchError(
            f"An index of kind {kind} has no setting {', '.join(unknown)}; it has {', '.join(sorted(known))}."
        )
    return {**known, **given}


def module(kind: str) -> Any:
    """The module of a kind. Raises SeedbenchError for an unknown one."""
    if kind not in KINDS:
        raise SeedbenchError(f"There is no kind of index {kind!r}: choose one of {', '.join(KINDS)}.")
    return import_module(KINDS[kind])


def _finished(folder: Path, wanted: Mapping[str, Any], corpus_path: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    if any(manifest[name] != wanted[name] for name in wanted):
        raise SeedbenchError(f"{folder} holds a finished index of other settings: name another folder.")
    _own_corpus(folder, corpus_path, manifest)
    return manifest


def _begin(folder: Path, wanted: dict[str, Any], say: Say) -> None:
    if (folder / BEGUN).exists():
        asked = begun(folder)  # the corpus may have moved; whether it is the same is told by what was read of it
        if any(asked.get(name) != wanted[name] for name in ("kind", "settings")):
            raise SeedbenchError(
                f"{folder} holds an unfinished build of another kind or of other settings: go on with it by --resume, "
                "remove it, or name another folder."
            )
        say(f"going on with the build that was begun in {folder}")
    elif strange := [path.name for path in sorted(folder.iterdir()) if path.name not in (LOCK, BEGUN + ".part")]:
        raise SeedbenchError(f"{folder} is not empty (it holds {strange[0]}): name a new folder.")
    else:
        write_text(folder / BEGUN, json.dumps(wanted))


def _build(wanted: dict[str, Any], path: Path, folder: Path, progress: Progress, say: Say) -> dict[str, Any]:
    kind, settings = wanted["kind"], wanted["settings"]
    corpus = Corpus.open(path, scratch=folder, report=lambda done, total: progress("read", done, total), say=say)
    maker = module(kind)
    own = own_files(folder)
    needed = maker.bytes_needed(len(corpus), corpus.text_bytes, settings) - sum(p.stat().st_size for p in own)
    need_room(folder, max(needed, 0), f"the {kind} index of {len(corpus):,} passages", say)
    facts = maker.build(corpus, folder, settings, lambda done, total: progress("index", done, total))
    manifest = {
        "schema": SCHEMA,
        **wanted,
        "corpus": {"file": str(path), "digest": corpus.digest(), "count": len(corpus), "bytes": corpus.text_bytes},
        "software": {"seedbench": seedbench.__version__, "python": platform.python_version()},
        "facts": facts,
        "digest": "",
    }
    retriever = maker.open(folder, manifest, corpus)
    try:
        manifest["self_test"] = self_test(retriever, corpus)
        manifest["digest"] = retriever.digest()
    finally:
        retriever.close()
    manifest["files"] = digests(folder, progress)
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
    (folder / BEGUN).unlink()
    return manifest


def open_index(name: Path | str, corpus: Corpus | Path | str | None = None) -> Retriever:
    """A finished index, ready to search; also a Lucene index as Pyserini and Anserini build them, with stored texts.

    `corpus` is where the corpus file is now, if it has moved since the build, or an open corpus. Raises SeedbenchError
    for another corpus, missing, truncated or replaced files, and what was built by software that this one cannot read.
    """
    folder = find(name)
    if is_foreign(folder):
        texts = Corpus.open(corpus) if isinstance(corpus, (str, Path)) else corpus
        retriever: Retriever = module("lucene").open_foreign(folder, texts)
        return retriever
    manifest = read_manifest(folder)
    for file, said in manifest["files"].items():
        check_size(folder / file, said)
    passages = corpus if isinstance(corpus, Corpus) else _own_corpus(folder, corpus, manifest)
    if passages.digest() != manifest["corpus"].get("digest"):
        raise SeedbenchError(
            f"{folder} indexes another corpus ({manifest['corpus'].get('count')} passages, digest "
            f"{str(manifest['corpus'].get('digest'))[:12]}) than the one given ({len(passages)} passages, digest "
            f"{passages.digest()[:12]}): name the corpus it was built of."
        )
    try:
        opened: Retriever = module(manifest["kind"]).open(folder, manifest, passages)
    except (KeyError, TypeError, ValueError) as error:  # a setting that a kind needs and the manifest has not
        raise SeedbenchError(
            f"{folder / MANIFEST} was edited, or is of another version ({type(error).__name__}: {error}): build the "
            "index again."
        ) from error
    return opened


def _own_corpus(folder: Path, path: Path | str | None, manifest: Mapping[str, Any]) -> FileCorpus:
    """The corpus by the offsets that lie in the index folder, looked for where it was and beside the folder."""
    said = Path(str(manifest["corpus"].get("file")))
    beside = [folder / corpora.UNPACKED, said, folder / said.name, folder.absolute().parent / said.name]
    places = [Path(path)] if path is not None else beside
    for place in places:
        if place.is_file():
            return Corpus.open(place, scratch=folder)
    raise SeedbenchError(
        f"The corpus of {folder} is not at {path or said}: name the file where it is now (--corpus, or corpus=)."
    )


def info(name: Path | str, progress: Progress = lambda stage, done, total: None) -> dict[str, Any]:
    """The manifest of an index and what a look at every byte says: `state` ("finished", "unfinished"), `bytes`, and
    `damaged`, the files whose contents are not those that were written."""
    folder = find(name)
    if not (folder / MANIFEST).exists() and (folder / BEGUN).exists():
        taken = sum(path.stat().st_size for path in own_files(folder))
        return {"state": "unfinished", **begun(folder), "bytes": taken}
    if is_foreign(folder):
        taken = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        count = import_module("seedbench.indexes.lucene_engine").documents(folder)
        return {"state": "finished", "kind": "lucene", "built_by": "Anserini or Pyserini", "passages": count,
                "bytes": taken, "size": size(taken)}  # fmt: skip
    manifest = read_manifest(folder)
    found = digests(folder, progress)
    damaged = [file for file, said in manifest["files"].items() if found.get(file) != said]
    taken = sum(file["bytes"] for file in found.values())
    return {"state": "finished", **manifest, "bytes": taken, "size": size(taken), "damaged": damaged}


@contextmanager
def opened(name: Path | str, corpus: Corpus | Path | str | None = None) -> Iterator[Any]:
    """`open_index` for a block, closed at its end."""
    retriever: Any = open_index(name, corpus)
    try:
        yield retriever
    finally:
        retriever.close()
