"""The import and its store: the same shop as the one in memory, at any size, whatever happens while it is built."""

from __future__ import annotations

import errno
import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import SeedbenchError
from seedbench.envs.webshop import importing, parts, streaming
from seedbench.envs.webshop import store as stored
from seedbench.envs.webshop.data import SPLITS, DataError, Folder, open_dataset
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.files import check, import_published
from seedbench.envs.webshop.goals import Kind
from seedbench.envs.webshop.nouns import Precomputed, spacy_at_hand
from seedbench.envs.webshop.products import Product
from seedbench.envs.webshop.store import Imported
from seedbench.envs.webshop.streaming import JsonStream
from seedbench.indexes import store as arrays
from tests.conftest import ROOT, need
from tests.webshop_shop import HUMAN, KNOWN, RAW, record, write_folder


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Parts of 31 products, so that small shops have several; and no tagging unless a test is about it."""
    monkeypatch.setattr(parts, "PART", 31)
    if "tagged" not in request.node.name:
        monkeypatch.setattr(importing, "spacy_at_hand", lambda: False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop of 122 products with duplicates, goals of both kinds and nouns of the titles."""
    folder = write_folder(tmp_path_factory.mktemp("source"))
    raw = [*json.loads((folder / "items_shuffle_1000.json").read_text()), *RAW, RAW[3], record("nan", "x")]
    raw[40]["name"] = raw[41]["name"] = "The same title"
    raw[50]["name"] = "Half a pair \ud83d and a ☞"
    known = json.loads((folder / "items_ins_v2_1000.json").read_text()) | KNOWN
    (folder / "items_shuffle_1000.json").write_text(json.dumps(raw))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(known))
    (folder / "items_human_ins.json").write_text(json.dumps(HUMAN))
    titles = list(dict.fromkeys((r["asin"], r["name"]) for r in raw[:-2]))
    unique = dict(reversed(titles))
    nouns = [unique[asin].lower().split()[:2] for asin in dict.fromkeys(r["asin"] for r in raw[:-2])]
    (folder / "title_nouns.json.xz").write_bytes(lzma.compress(json.dumps(nouns).encode()))
    return folder


@pytest.fixture(scope="module")
def once(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("once") / "made"
    import_published(source, made, quiet)
    return made


@pytest.fixture
def imported(once: Path, tmp_path: Path) -> Path:
    """A copy of the imported shop, to spoil."""
    return Path(shutil.copytree(once, tmp_path / "made"))


def assert_same_shop(ours: Imported, theirs: Folder, queries: Iterator[str]) -> None:
    a, b = ours.catalogue, theirs.catalogue
    ids = list(b.ids())
    assert list(a.ids()) == ids and a.digest() == b.digest() and a.meta["index"] == b._index.digest()
    for asin in ids:
        p, q = a.product(asin), b.product(asin)
        assert all(getattr(p, f.name) == getattr(q, f.name) for f in fields(Product)), asin
        assert list(p.options) == list(q.options) and a.price(asin) == b.price(asin) and asin in a
    for query in queries:
        assert a.search(query) == b.search(query), query
    assert ours.digest() == theirs.digest()
    for split in SPLITS:
        try:
            expected = list(theirs.tasks(split))
        except SeedbenchError as error:
            with pytest.raises(SeedbenchError) as refused:
                ours.tasks(split)
            assert str(refused.value) == str(error)
            continue
        assert list(ours.tasks(split)) == expected
        assert all(ours.goal(task.id) == theirs.goal(task.id) for task in expected)
    assert (ours.nouns is None) == (theirs.nouns is None)
    if ours.nouns is not None and theirs.nouns is not None:
        assert Precomputed(ours.nouns).name == Precomputed(theirs.nouns).name
        assert all(list(ours.nouns[b.product(i).title]) == list(theirs.nouns[b.product(i).title]) for i in ids)


@pytest.mark.parametrize("kind", ["synthetic", "human"])
@pytest.mark.filterwarnings("ignore:.*human goals")
def test_same_shop_as_in_memory(source: Path, imported: Path, kind: Kind) -> None:
    folder = Folder(source, kind)
    titles = [folder.catalogue.product(asin).title for asin in folder.catalogue.ids()]
    assert_same_shop(Imported(imported, kind), folder, iter([*titles, "red lamp model7", "☞", "", "query 1"]))


def test_same_shop_as_in_memory_on_the_published_products(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 300)
    rows = import_published(shared_data / "webshop", tmp_path, quiet)
    assert [row["found"] for row in rows] == [4408, 158, 500, 968, 500]
    folder, ours = Folder(shared_data / "webshop"), Imported(tmp_path)
    asked = [folder.goal(task.id).instruction_text for task in folder.tasks("paper")]
    assert_same_shop(ours, folder, iter(asked))
    # By index, as published, training asks for the products of nearly all test goals: 481 of 500.
    test = {task.id for task in ours.tasks("paper")}
    trained = {ours.goal(name).asin for number in range(6910) if (name := ours.named(number)[0]) not in test}
    assert sum(ours.goal(name).asin in trained for name in test) == 481


def test_published_products_tagged_at_import(shared_data: Path, tmp_path: Path) -> None:
    """What spaCy says while importing is what the captured run of it said."""
    need(spacy_at_hand(), "spaCy and its model are not installed")
    few = tmp_path / "few"
    few.mkdir()
    records = json.loads(lzma.decompress((shared_data / "webshop" / "items_shuffle_1000.json.xz").read_bytes()))[:60]
    (few / "items_shuffle.json").write_text(json.dumps(records))
    (few / "items_ins_v2.json").write_text((shared_data / "webshop" / "items_ins_v2_1000.json").read_text())
    import_published(few, tmp_path / "made", quiet)
    captured = json.loads(lzma.decompress((shared_data / "webshop" / "title_nouns.json.xz").read_bytes()))
    nouns = Imported(tmp_path / "made").nouns
    assert nouns is not None
    assert [list(nouns[r["name"]]) for r in records] == captured[:60]


def test_the_size_of_a_part_changes_nothing(imported: Path, source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(parts, "PART", 4096)
    import_published(source, tmp_path / "whole", quiet)
    assert contents(tmp_path / "whole") == contents(imported)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.np*"))} | {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.json"))
    }


def test_an_episode(imported: Path) -> None:
    env = WebShopEnv(data=imported)
    assert env.tagger.name.startswith("precomputed-") and not env.pinned("train")
    for task in env.tasks("train")[:5]:
        env.reset(options={"task": task.id})
        score = 0.0
        while action := env.expert():
            _, score, *_ = env.step(action)
        assert score == 1.0


def test_long_splits_make_their_tasks_when_asked(imported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Imported(imported).tasks("train")
    monkeypatch.setattr(stored, "WHOLE", 10)
    lazy = Imported(imported).tasks("train")
    assert isinstance(whole, tuple) and not isinstance(lazy, tuple)
    assert (
        len(lazy) == len(whole) > 10 and tuple(lazy) == whole and lazy[3:9:2] == whole[3:9:2] and lazy[-1] == whole[-1]
    )


def test_unknown_products_and_tasks(imported: Path) -> None:
    dataset = Imported(imported)
    known = dataset.tasks("train")[0].id
    for asin in ("", "B0", "ZZZZZZZZZZZ", known):
        assert asin not in dataset.catalogue
        with pytest.raises(SeedbenchError, match="no product"):
            dataset.catalogue.product(asin)
        with pytest.raises(SeedbenchError, match="no product"):
            dataset.catalogue.price(asin)
    for name in ("", "x", known[:-1], known + "-1", known + "-2", known + "-0", known[:-1] + "g", "B0-00000000"):
        with pytest.raises(SeedbenchError, match="No WebShop task"):
            dataset.goal(name)
    assert dataset.nouns is not None and dataset.nouns.get("no such title") is None
    with pytest.raises(SeedbenchError, match="no split"):
        dataset.tasks("test")


def test_threads_share_a_catalogue(imported: Path) -> None:
    catalogue = Imported(imported).catalogue
    ids = list(catalogue.ids())
    alone = [(catalogue.product(i).title, catalogue.search(f"{i} shirt model")) for i in ids]
    fresh = Imported(imported).catalogue
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: (fresh.product(i).title, fresh.search(f"{i} shirt model")), ids)) == alone


# --- streaming ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(st.text(), JSON, max_size=3) | st.lists(JSON, max_size=3), max_size=6)


@settings(max_examples=30)
@given(RECORDS, st.integers(1, 40), st.booleans(), st.sampled_from([None, 2]))
def test_streams_read_what_json_reads(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], chunk: int, ascii_only: bool, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    path.write_text(text, encoding="utf-8", errors="replace")
    expected = json.loads(path.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "CHUNK", chunk)
        stream = JsonStream(path)
        places = [(value, stream.position()) for value in stream.items()]
        assert [value for value, _ in places] == expected
        for done, (_, place) in enumerate(places, 1):
            assert list(JsonStream(path, place).items()) == expected[done:]
        keyed = {str(i): value for i, value in enumerate(expected)}
        path.write_text(json.dumps(keyed), encoding="utf-8")
        assert dict(JsonStream(path).pairs()) == keyed


def test_streams_take_what_the_original_s_loader_takes(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b' [ {"a": NaN, "b": "\\ud83d", "c": Infinity} ] \n')
    (found,) = JsonStream(path).items()
    assert found["a"] != found["a"] and found["b"] == "\ud83d"


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[", b'[{"a": 1}', b'[{"a": 1},]', b'[{"a": 1} {"a": 2}]', b'[{"a": 1}]x', b"[1]", b'["a"]',
     b'[{"a": "\xff"}]', b'[{"a": "cut', b"[" * 100_000, b"\x00\x01"],
)  # fmt: skip
def test_broken_lists(text: bytes, tmp_path: Path) -> None:
    for name, data in (("a.json", text), ("a.json.xz", lzma.compress(text))):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(SeedbenchError, match="is not whole JSON"):
            list(JsonStream(path).items())


@pytest.mark.parametrize("text", [b"[]", b'{"a": 1}', b'{"a": {}', b'{"a" {}}', b"{1: {}}", b'{"a": {}, }'])
def test_broken_objects(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(SeedbenchError, match="is not whole JSON"):
        list(JsonStream(path).pairs())


def test_a_broken_record_is_not_searched_for_its_end_in_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "CHUNK", 100)
    monkeypatch.setattr(streaming, "LARGEST", 1000)
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, {"a" 1}' + ', {"a": 1}' * 10_000 + "]")
    stream = JsonStream(path)
    with pytest.raises(SeedbenchError, match="is not whole JSON"):
        list(stream.items())
    assert stream._base + len(stream._text) < 10_000


# --- what may go wrong -------------------------------------------------------------------------------------------

ITEMS, KNOWN_FILE = "items_shuffle_1000.json", "items_ins_v2_1000.json"


def break_file(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        changed = change((folder / name).read_bytes())
        (folder / name).unlink() if changed is None else (folder / name).write_bytes(changed)

    return apply


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (break_file(ITEMS, lambda data: None), "holds no items_shuffle"),
        (break_file(KNOWN_FILE, lambda data: None), "holds no items_ins_v2"),
        (break_file(ITEMS, lambda data: data[: len(data) // 2]), "not whole JSON"),
        (break_file(ITEMS, lambda data: b'{"a": {}}'), "not whole JSON"),
        (break_file(ITEMS, lambda data: b"[]"), "holds no product"),
        (break_file(ITEMS, lambda data: b"[[1]]"), "no asin"),
        (break_file(ITEMS, lambda data: b'[{"name": "x"}]'), "no asin"),
        (break_file(ITEMS, lambda data: b'[{"asin": "B1"}]'), "Product B1 lacks a field"),
        (break_file(KNOWN_FILE, lambda data: data[:-20]), "not whole JSON"),
        (break_file(KNOWN_FILE, lambda data: b"[{}]"), "not whole JSON"),
        (break_file(KNOWN_FILE, lambda data: b'{"B000000000": [1]}'), "Product B000000000"),
        (break_file("items_human_ins.json", lambda data: b'{"B000000000": [{"x": 1}]}'), "Product B000000000"),
        (break_file("title_nouns.json.xz", lambda data: data[:-9]), "not whole JSON"),
        (break_file("title_nouns.json.xz", lambda data: lzma.compress(b'[["a"]]')), "not of these products"),
    ],
)
def test_files_that_are_no_catalogue(
    source: Path, tmp_path: Path, spoil: Callable[[Path], None], complaint: str
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in source.iterdir():
        (mine / path.name).write_bytes(path.read_bytes())
    spoil(mine)
    for _ in range(2):  # the second time there is scratch of the first
        with pytest.raises(SeedbenchError, match=complaint):
            import_published(mine, tmp_path / "made", quiet)
    with pytest.raises(SeedbenchError):
        open_dataset(tmp_path / "made")


def test_a_source_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SeedbenchError, match="is no folder"):
        import_published(tmp_path / "absent", tmp_path / "made", quiet)


PARTS = 4
KILLED = """
import os, signal, sys
from pathlib import Path
from seedbench.envs.webshop import importing, parts
parts.PART, importing.spacy_at_hand = 31, lambda: False
left = [int(sys.argv[3])]
def report(done, total):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
importing.import_published(Path(sys.argv[1]), Path(sys.argv[2]), report)
"""


@pytest.mark.parametrize("reports", [3, 6, 7, 8])
def test_a_killed_import_goes_on(source: Path, imported: Path, tmp_path: Path, reports: int) -> None:
    """Killed among the parts, after the last one, and while the store is written."""
    made = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(source), str(made), str(reports)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == -9
    with pytest.raises(SeedbenchError, match="has not finished"):
        open_dataset(made)
    kept = {p: p.stat().st_mtime_ns for p in made.glob("import.parts/part-*/index.json")}
    assert len(kept) == min(reports - 1, PARTS)
    seen: list[int] = []

    def unchanged(done: int, total: int) -> None:
        if not seen:
            assert {p: p.stat().st_mtime_ns for p in kept} == kept
        seen.append(done)

    import_published(source, made, unchanged)
    assert len(seen) == 1 + (PARTS - len(kept)) + 5, "only what was missing is read again"
    assert contents(made) == contents(imported)
    assert not (made / "import.parts").exists()


def test_a_kill_after_the_last_write(source: Path, imported: Path, tmp_path: Path) -> None:
    made = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", KILLED, str(source), str(made), "9"], cwd=ROOT, capture_output=True)
    assert Imported(made).digest() == Imported(imported).digest() and (made / "import.parts").exists()
    import_published(source, made, quiet)
    assert contents(made) == contents(imported) and not (made / "import.parts").exists()


def test_a_damaged_part_is_read_again(source: Path, imported: Path, tmp_path: Path) -> None:
    made = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(source), str(made), "5"]
    subprocess.run(command, cwd=ROOT, capture_output=True)
    torn = made / "import.parts" / "part-000001" / "prices.npy"
    torn.write_bytes(torn.read_bytes()[:-8] + b"\0" * 8)
    import_published(source, made, quiet)
    assert contents(made) == contents(imported)


@pytest.mark.parametrize("after", [0, 40, 110, 140])
def test_a_full_disk(source: Path, imported: Path, tmp_path: Path, monkeypatch: Any, after: int) -> None:
    left, real = [after], np.save

    def save(file: Any, array: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, array, **options)

    monkeypatch.setattr(arrays.np, "save", save)
    made = tmp_path / "full"
    with pytest.raises(SeedbenchError, match="disk is full; free three times"):
        import_published(source, made, quiet)
    with pytest.raises(SeedbenchError, match="has not finished"):
        open_dataset(made)
    monkeypatch.undo()
    monkeypatch.setattr(parts, "PART", 31)
    monkeypatch.setattr(importing, "spacy_at_hand", lambda: False)
    import_published(source, made, quiet)
    assert contents(made) == contents(imported)


def test_a_full_disk_that_numpy_does_not_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(file: Any, array: Any, **options: Any) -> None:
        raise OSError("878123 requested and 708480 written")

    monkeypatch.setattr(arrays.np, "save", save)
    with pytest.raises(SeedbenchError, match="disk is full; free three times"):
        import_published(source, tmp_path / "full", quiet)


def test_a_resumed_import_leaves_its_key_alone_and_bears_foreign_entries(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(source), str(made), "5"]
    subprocess.run(command, cwd=ROOT, capture_output=True)
    work = made / "import.parts"
    (work / "part-x").mkdir()
    before = (work / "key").stat()
    subprocess.run([*command[:-1], "1"], cwd=ROOT, capture_output=True)  # killed before anything was read
    subprocess.run([*command[:-1], "2"], cwd=ROOT, capture_output=True)
    after = (work / "key").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (work / "key").write_bytes(b"\xff\xfe")  # of nobody: all is read anew
    import_published(source, made, quiet)
    assert len(Imported(made).catalogue) == 122


@pytest.mark.parametrize("end", [".json", ".json.xz"])
def test_a_byte_order_mark(tmp_path: Path, end: str) -> None:
    source = write_folder(tmp_path / "source", 40)
    for path in list(source.iterdir()):
        data = b"\xef\xbb\xbf" + path.read_bytes()
        path.unlink()
        path.with_suffix(end).write_bytes(lzma.compress(data) if end == ".json.xz" else data)
    import_published(source, tmp_path / "made", quiet)
    assert Imported(tmp_path / "made").digest() == Folder(source).digest()


def test_two_imports_at_once(source: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("made").mkdir()
    with FileLock(tmp_path / "made" / ".import.lock"), pytest.raises(SeedbenchError, match="Another import"):
        import_published(source, tmp_path / "made", quiet)
    import_published(source, tmp_path / "made", quiet)


def test_a_finished_import_is_left_alone(source: Path, imported: Path, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in (imported / "store").rglob("*")}
    import_published(source, imported, quiet)
    assert {p: p.stat().st_mtime_ns for p in (imported / "store").rglob("*")} == before
    other = write_folder(tmp_path / "other", 20)
    with pytest.raises(SeedbenchError, match="holds a catalogue of other files"):
        import_published(other, imported, quiet)
    assert {p: p.stat().st_mtime_ns for p in (imported / "store").rglob("*")} == before


def test_scratch_of_other_files_is_not_used(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(source), str(made), "5"]
    subprocess.run(command, cwd=ROOT, capture_output=True)
    import_published(write_folder(tmp_path / "other", 20), made, quiet)
    assert len(Imported(made).catalogue) == 20


@pytest.mark.parametrize("name", ["rows.data", "ranks", "synthetic.names", "index/docs", "prices"])
def test_changed_files_are_noticed(imported: Path, name: str) -> None:
    path = imported / "store" / f"{name}.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SeedbenchError, match="not the file that was written"):
        check(str(imported), quiet)
    path.write_bytes(data[:-1])
    with pytest.raises(SeedbenchError, match="not the file that was written"):
        Imported(imported)


def test_a_damaged_row_is_named(imported: Path) -> None:
    path = imported / "store" / "rows.data.npy"
    data = bytearray(path.read_bytes())
    data[-200:] = b"\xff" * 200
    path.write_bytes(bytes(data))
    catalogue = Imported(imported).catalogue
    with pytest.raises(SeedbenchError, match="is damaged in row"):
        catalogue.product(list(catalogue.ids())[-1])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name",
    ["rows.data", "rows.offsets", "ranks", "rows_by_rank", "category", "title_rows", "synthetic.first",
     "synthetic.owners", "synthetic.train", "index/ids.data", "index/ids.offsets", "index/terms.data",
     "index/terms.offsets", "index/starts", "index/docs", "index/codes", "index/best"],
)  # fmt: skip
def test_damage_that_play_meets_is_the_data_s_fault(imported: Path, name: str, seed: int) -> None:
    """Contents of the same size: nothing is noticed at opening; play goes on, or raises a DataError and no other."""
    path = imported / "store" / f"{name}.npy"
    data, rng = bytearray(path.read_bytes()), np.random.default_rng(seed)
    data[128:] = (bytes([0xFF] * (len(data) - 128)), rng.bytes(len(data) - 128), bytes(len(data) - 128))[seed]
    path.write_bytes(bytes(data))
    raised: list[Exception] = []
    try:
        dataset = Imported(imported)
    except SeedbenchError as error:
        assert "build it again" in str(error)
        return
    catalogue = dataset.catalogue

    def play(step: Callable[[], object]) -> None:
        try:
            step()
        except DataError as error:
            raised.append(error)
        except SeedbenchError as error:
            assert "No WebShop task" in str(error)

    for row in range(0, len(catalogue), 9):
        play(lambda row=row: catalogue.product(catalogue.asin(row)))  # type: ignore[misc]
        play(lambda row=row: catalogue.price(catalogue.asin(row)))  # type: ignore[misc]
        play(lambda row=row: catalogue.category(row))  # type: ignore[misc]
        play(lambda row=row: catalogue.search(f"red lamp model{row}"))  # type: ignore[misc]
    play(lambda: [dataset.goal(task.id) for task in dataset.tasks("train")[:20]])
    play(lambda: dataset.nouns.get("The same title") if dataset.nouns else None)
    if name in ("rows.data", "ranks") and seed == 0:
        assert raised


HEAD, INDEX_HEAD = "store/index.json", "store/index/index.json"


@pytest.mark.parametrize(
    ("file", "key"),
    [
        (HEAD, key)
        for key in ("kind", "products", "digest", "index", "categories", "nouns", "synthetic", "human", "files")
    ]
    + [(INDEX_HEAD, key) for key in ("digest", "with_terms", "documents", "analysis", "k1", "corpus")],
)
@pytest.mark.parametrize("value", [None, [5], "x"])
def test_a_head_that_was_edited_is_refused(imported: Path, file: str, key: str, value: Any) -> None:
    path = imported / file
    head = json.loads(path.read_text())
    if value is None:
        del head[key]
    elif isinstance(head[key], type(value)) or (key == "nouns" and value == "x"):
        return
    else:
        head[key] = value
    path.write_text(json.dumps(head))
    if key == "nouns" and value is None:
        return
    for use in (lambda: check(str(imported), quiet), lambda: Imported(imported)):
        with pytest.raises(SeedbenchError, match="again"):
            use()


def test_long_queries_are_searched_but_not_kept(imported: Path, source: Path) -> None:
    for catalogue in (Imported(imported).catalogue, Folder(source, "synthetic").catalogue):
        found = catalogue.search("lamp " * 200)
        assert found and catalogue._recent.cache_info().currsize == 0  # type: ignore[attr-defined]
        assert catalogue.search("lamp") and catalogue._recent.cache_info().currsize == 1  # type: ignore[attr-defined]
        assert catalogue.search(" " * 100_000 + "lamp") == (), "beyond the 100,000th character nothing is searched for"


def test_the_index_of_another_catalogue_is_refused(imported: Path, tmp_path: Path) -> None:
    import_published(write_folder(tmp_path / "other", 20), tmp_path / "second", quiet)
    (imported / "store" / "index").rename(tmp_path / "aside")
    (tmp_path / "second" / "store" / "index").rename(imported / "store" / "index")
    with pytest.raises(SeedbenchError, match="another corpus"):
        Imported(imported)


def test_commands(source: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "seedbench", "data"]
    for command in (
        ["import", "webshop", str(source), str(tmp_path / "made")],
        ["check", "webshop", str(tmp_path / "made")],
    ):
        done = subprocess.run([*run, *command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "unseen" in done.stdout
