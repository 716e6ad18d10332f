"""Check a folder with published ALFWorld games, and bring the games there from wherever they were downloaded to.

What `seedbench data check|import|generate alfworld` call. `progress(done, total)` counts games.
"""

from __future__ import annotations

import errno
import os
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from seedbench.core import SeedbenchError
from seedbench.envs import manifests
from seedbench.envs.alfworld import frozen
from seedbench.envs.alfworld.data import GAME, open_dataset
from seedbench.envs.alfworld.published import MANIFEST, ROOT, GameError, Published, locate, read_game, verify
from seedbench.envs.alfworld.search import success

Progress = Callable[[int, int], None]
SPLITS = ("train", "dev", "seen", "unseen")
TRAJ = "traj_data.json"
MAX_BYTES = 8 << 20  # the largest published game has a twentieth of that; more in an archive is no game


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Read every game of a data set. One row a split: split, expected, found, missing, damaged, wrong, pinned, first.

    `wrong` counts whole games that are not those of the manifest (another release, or changed); `first` is the first
    complaint as a sentence, "" if there is none. Splits of which nothing is there count as missing, not as an error.
    """
    dataset = open_dataset(data)
    total, done = len(dataset.manifest.rows), 0
    table = []
    for split in SPLITS:
        rows = dataset.manifest.split(split)
        count: Counter[str] = Counter()
        first = ""
        for row in rows:
            try:
                dataset.source(row.id)
            except SeedbenchError as error:
                fault = error.fault if isinstance(error, GameError) else "damaged"
                count["wrong" if fault in ("digest", "old release") else fault] += 1
                first = first or str(error)
            done += 1
            progress(done, total)
        table.append(
            {
                "split": split,
                "expected": len(rows),
                "found": len(rows) - count["missing"],
                "missing": count["missing"],
                "damaged": count["damaged"],
                "wrong": count["wrong"],
                "pinned": dataset.pinned(split),
                "first": first,
            }
        )
    return table


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate a set of games into the folder `dest`, which `--data` then takes; results on it are unpinned.

    One row a split: split, games, and the success of two scripted searchers at the set's step limit, one that looks
    in listed order and one that knows where things are usually kept. Raises SeedbenchError for a folder that holds
    games already, an unknown level, or a full disk.
    """
    _make_folder(dest)
    if (dest / frozen.GAMES).exists() or (dest / ROOT).exists():
        raise SeedbenchError(f"{dest} holds games already; name another folder, or remove them first.")
    try:
        dataset = frozen.generate_into(dest, seed=seed, level=level, sizes=sizes, progress=progress)
    except OSError as error:
        raise _unwritable(dest, error) from error
    table = []
    for split in sizes or frozen.MINI_SIZES:
        tasks = dataset.tasks(split)
        rates = {how: success(dataset, tasks, how, dataset.default_max_steps) for how in ("listed", "habits")}
        table.append({"split": split, "games": len(tasks), **rates})
    return table


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Copy the published games of the manifest from `source` to `dest`/json_2.1.1; returns `check`'s rows for `dest`.

    `source` is a folder with the published tree, a downloaded zip archive, or a folder of such archives. Each game's
    digest is checked before it is written, each file appears whole or not at all, and games that are already there
    are not touched, so after a kill the same call goes on. What the source lacks is missing in the rows that come
    back. Raises SeedbenchError for a source without games, a game that is not the published one, an archive with
    paths that lead elsewhere, a full disk, or a second import into the same folder.
    """
    rows = manifests.load(MANIFEST).rows
    _make_folder(dest)
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(dest / ".import.lock", timeout=0))
        except Timeout as error:
            raise SeedbenchError(f"Another import into {dest} is running; wait for it to end.") from error
        read = stack.enter_context(_open_source(source))
        there = Published(dest, dest / ROOT)
        taken = 0
        for done, row in enumerate(rows.values(), 1):
            taken += _import_game(read, there, row, source)
            progress(done, len(rows))
    if not taken:
        raise SeedbenchError(f"{source} holds no game of the published set; name the tree or zip archive that does.")
    return check(str(dest), lambda done, total: None)


Reader = Callable[[str], bytes | None]  # path inside the source, such as json_2.1.1/train/.../game.tw-pddl


def _import_game(read: Reader, there: Published, row: manifests.Row, source: Path) -> bool:
    """Bring one game over; False if neither side has it."""
    try:
        there.source(row.id)
    except GameError:
        raw = read(f"{row.id}/{GAME}")
        if raw is None:
            return False
        verify(read_game(raw, f"{row.id} in {source}"), row.digest, f"{row.id} in {source}")
        _write(there.path(row.id), raw)
    extra = there.path(row.id).with_name(TRAJ)
    if not extra.exists() and (raw := read(f"{row.id}/{TRAJ}")) is not None:
        _write(extra, raw)
    return True


def _write(path: Path, raw: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    _make_folder(path.parent)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> SeedbenchError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "the disk is full; free about 400 MB" if full else f"{error.strerror}; mend that"
    return SeedbenchError(f"{path} cannot be written, {why} and run the same command again: it goes on from there.")


@contextmanager
def _open_source(source: Path) -> Iterator[Reader]:
    if not source.exists():
        raise SeedbenchError(f"{source} does not exist; name the published tree or zip archive to import.")
    archives = [source] if source.is_file() else sorted(source.glob("*.zip"))
    if not archives or (source / ROOT).is_dir():
        base = locate(source)

        def from_tree(name: str) -> bytes | None:
            path = base / name.partition("/")[2]
            return path.read_bytes() if path.is_file() else None

        yield from_tree
        return
    with ExitStack() as stack:
        members: dict[str, tuple[zipfile.ZipFile, zipfile.ZipInfo]] = {}
        for path in archives:
            try:
                archive = stack.enter_context(zipfile.ZipFile(path))
            except (zipfile.BadZipFile, OSError) as error:
                raise SeedbenchError(f"{path} is not a whole zip archive ({error}); download it again.") from error
            members.update(_members(archive, path))

        def from_zip(name: str) -> bytes | None:
            if name not in members:
                return None
            archive, member = members[name]
            try:
                return archive.read(member)
            except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError) as error:  # Runtime: encrypted
                raise SeedbenchError(
                    f"{name} in {archive.filename} is damaged ({error}); download it again."
                ) from error

        yield from_zip


def _members(archive: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, tuple[zipfile.ZipFile, zipfile.ZipInfo]]]:
    """The archive's files by their path from json_2.1.1 on. Nothing is ever extracted by a name from the archive."""
    for member in archive.infolist():
        parts = PurePosixPath(member.filename.replace("\\", "/")).parts
        link = stat.S_ISLNK(member.external_attr >> 16)
        if ".." in parts or member.filename.startswith(("/", "\\")) or ":" in (parts[0] if parts else "") or link:
            raise SeedbenchError(
                f"{path} holds {member.filename!r}, which leads out of the archive; it is not the published file, "
                f"download that."
            )
        if ROOT in parts and parts[-1] in (GAME, TRAJ) and member.file_size <= MAX_BYTES:
            yield "/".join(parts[parts.index(ROOT) :]), (archive, member)
