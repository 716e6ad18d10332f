"""What lies in an index folder: the manifest, which is written last, and every file's size and digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.indexes.corpus import OFFSETS, UNPACKED
from seedbench.indexes.records import refuse_pointer

SCHEMA = 1
MANIFEST, BEGUN, LOCK = "manifest.json", "build.json", ".build.lock"
SHELF = "SEEDBENCH_INDEXES"  # environment variable: a folder of index folders, which open by their names
_TYPES = {"kind": str, "corpus": dict, "settings": dict, "facts": dict, "files": dict, "digest": str}


def find(name: Path | str) -> Path:
    """The folder of an index: a path, or a name on the shelf $SEEDBENCH_INDEXES."""
    folder, shelf = Path(name), os.environ.get(SHELF)
    if not folder.exists() and shelf and (Path(shelf) / name).is_dir():
        return Path(shelf) / name
    if not folder.is_dir():
        where = f" nor on the shelf {shelf}" if shelf else ""
        raise SeedbenchError(
            f"There is no index folder {folder}{where}: build one with `seedbench index build CORPUS {folder}`."
        )
    return folder


def is_foreign(folder: Path) -> bool:
    return not (folder / MANIFEST).exists() and any(folder.glob("segments_*"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished index. Raises SeedbenchError for what is none or unfinished."""
    path = folder / MANIFEST
    if not path.exists():
        if (folder / BEGUN).exists():
            asked = begun(folder)
            raise SeedbenchError(
                f"The build of {folder} has not finished: go on with `seedbench index build {asked.get('corpus')} "
                f"{folder} --resume`."
            )
        raise SeedbenchError(f"{folder} is no index folder ({MANIFEST} is missing): build it again.")
    refuse_pointer(path)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        sound = isinstance(manifest, dict) and all(isinstance(manifest.get(k), t) for k, t in _TYPES.items())
        files = manifest["files"].values() if sound else ()
        sound = sound and all(isinstance(file, dict) and isinstance(file.get("bytes"), int) for file in files)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise SeedbenchError(f"{path} is damaged: build the index again.")
    if manifest.get("schema") != SCHEMA:
        raise SeedbenchError(
            f"{path} was written by another version of seedbench (schema {manifest.get('schema')}, this one reads "
            f"{SCHEMA}): build the index again, or install that version."
        )
    return manifest


def begun(folder: Path | str) -> dict[str, Any]:
    """What was asked of the unfinished build in `folder`: kind, settings, corpus. Raises SeedbenchError for none."""
    try:
        return dict(json.loads((Path(folder) / BEGUN).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise SeedbenchError(f"{folder} holds no unfinished build to go on with: leave --resume out.") from error


def check_size(path: Path, said: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise SeedbenchError(f"{path} is missing: copy the whole folder, or build the index again.")
    if path.stat().st_size != said["bytes"]:
        refuse_pointer(path)
        raise SeedbenchError(
            f"{path} has {path.stat().st_size:,} bytes instead of {said['bytes']:,}, so it is truncated or another "
            "file: copy it again, or build the index again."
        )


def own_files(folder: Path) -> list[Path]:
    """Every file of an index, but for what tells of it and what waits in locks."""
    scratch = (MANIFEST, BEGUN, LOCK, ".corpus.lock")
    kept = (OFFSETS, UNPACKED)
    return [p for p in sorted(folder.rglob("*"))
            if p.is_file() and p.name not in scratch and p.relative_to(folder).parts[0] not in kept]  # fmt: skip


def digests(folder: Path, progress: Callable[[str, int, int], object]) -> dict[str, dict[str, Any]]:
    files = own_files(folder)
    total, done, said = sum(path.stat().st_size for path in files), 0, {}
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        said[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
        done += path.stat().st_size
        progress("digest", done, total)
    return said


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
