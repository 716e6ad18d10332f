"""ALFWorld's data: the frozen manifests, the published tree and everything that can be wrong with one, import."""

from __future__ import annotations

import errno
import json
import lzma
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from seedbench.envs import manifests
from seedbench.envs.alfworld import data, files, freeze, frozen, published
from seedbench.envs.alfworld.data import open_dataset
from seedbench.envs.manifests import Manifest, Row

KINDS = {
    "pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place",
}  # fmt: skip


def shared() -> Path:
    root = Path(os.environ.get("SEEDBENCH_SHARED", Path(__file__).parents[2] / "shared")) / "data" / "alfworld"
    if not root.is_dir():
        pytest.skip("the published ALFWorld games (../shared/data/alfworld or $SEEDBENCH_SHARED) are not at hand")
    return root


@pytest.fixture(scope="session")
def seen_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published valid_seen games as users have them."""
    folder = tmp_path_factory.mktemp("published")
    unpack = [sys.executable, str(shared() / "unpack.py"), str(folder), "--split", "valid_seen"]
    subprocess.run(unpack, check=True, capture_output=True)
    return folder


# A tree of five games in the published form, with a manifest of its own.
OLD_GRAMMAR = 'grammar :: """{"task": [{"rhs": "Your task is to: put a %s."}]}"""; action PutObject { put {o} in {r} }'
GRAMMAR = OLD_GRAMMAR + 'action PutObject { template :: "move {o} to {r}"; }'
IDS = [
    *(f"json_2.1.1/train/look-Mug-1/trial_{n}" for n in (1, 2)),
    "json_2.1.1/train/pick-Cup-2/trial_3",
    "json_2.1.1/valid_seen/look-Mug-1/trial_4",
    "json_2.1.1/valid_unseen/look-Pan-9/trial_5",
]
STORED = dict(zip(IDS, ("train", "train", "dev", "seen", "unseen"), strict=True))


def game_bytes(name: str, grammar: str = GRAMMAR, problem: str = "(define (problem %s))") -> bytes:
    word = name[-1]
    body = {"pddl_domain": "(define (domain d))", "grammar": grammar % word, "pddl_problem": problem % word}
    return json.dumps(body).encode()


def put(root: Path, name: str, raw: bytes) -> Path:
    path = root / name / "game.tw-pddl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """Replace the manifest of the published games by one of five games."""
    rows = {}
    for name, split in STORED.items():
        source = published.read_game(game_bytes(name), name)
        rows[name] = Row(name, "look_at_obj_in_light", split, data.content_digest(source))
    manifest = Manifest({"schema": 1}, rows, "small")
    monkeypatch.setattr(manifests, "load", lambda name: manifest)
    return manifest


@pytest.fixture
def tree(small: Manifest, tmp_path: Path) -> Path:
    for name in IDS:
        put(tmp_path / "tree", name, game_bytes(name))
    return tmp_path / "tree"


def message(call: Any, *arguments: Any) -> str:
    with pytest.raises(SeedbenchError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


def quiet(done: int, total: int) -> None:
    pass


# --- the committed manifests


def test_published_manifest_has_the_published_counts() -> None:
    count = Counter(row.split for row in manifests.load("alfworld").rows.values())
    assert count["train"] + count["dev"] == 3553 and 150 <= count["dev"] <= 200
    assert count["seen"] == 140 and count["unseen"] == 134
    by_kind = Counter(row.kind for row in manifests.load("alfworld").split("unseen"))
    assert by_kind["pick_and_place_simple"] == 24 and by_kind["pick_two_obj_and_place"] == 17 and set(by_kind) == KINDS


def test_no_task_folder_straddles_train_and_dev() -> None:
    manifest = manifests.load("alfworld")
    folders = {split: {row.id.split("/")[2] for row in manifest.split(split)} for split in ("train", "dev")}
    assert folders["train"].isdisjoint(folders["dev"])
    assert {row.id.split("/")[1] for row in manifest.split("dev")} == {"train"}


def test_published_manifest_is_what_its_writer_writes(tmp_path: Path) -> None:
    freeze.write_published(shared() / "manifest.jsonl.xz", tmp_path / "again.xz")
    committed = Path(manifests.__file__).with_name("alfworld.jsonl.xz").read_bytes()
    assert manifests.parse((tmp_path / "again.xz").read_bytes()) == manifests.parse(committed)


@pytest.mark.parametrize("name", ["alfworld", "alfworld_mini"])
def test_every_game_is_pinned_and_none_occurs_in_two_splits(name: str) -> None:
    rows = manifests.load(name).rows.values()
    assert all(re.fullmatch("[0-9a-f]{64}", row.digest) and row.kind in KINDS for row in rows)
    splits: dict[str, set[str]] = {}
    for row in rows:
        splits.setdefault(row.digest, set()).add(row.split)
    assert all(len(where) == 1 for where in splits.values())


def test_mini_has_the_promised_sizes_and_ids() -> None:
    dataset = open_dataset("mini")
    sizes = {split: len(dataset.tasks(split)) for split in ("train", "dev", "seen", "unseen")}
    assert sizes["train"] >= 800 and sizes["dev"] >= 100 and sizes["seen"] >= 200 and sizes["unseen"] >= 200
    for split, size in sizes.items():
        tasks = dataset.tasks(split)
        assert len({task.id for task in tasks}) == size and {task.kind for task in tasks} == KINDS
        assert all(re.fullmatch(rf"mini/{split}/{task.kind}-\d{{4}}", task.id) for task in tasks)
        assert len({task.kind for task in tasks[:6]}) == 6  # the first N of a split are a fair sample of kinds
        assert dataset.pinned(split)
    assert dataset.default_max_steps == 14


def test_mini_games_are_those_of_their_manifest() -> None:
    assert [row["found"] - row["damaged"] - row["wrong"] for row in files.check("mini", quiet)] == [840, 120, 204, 204]


def test_paper_is_seen_under_another_name() -> None:
    dataset = open_dataset("mini")
    seen, paper = dataset.tasks("seen"), dataset.tasks("paper")
    assert [task.id for task in paper] == [task.id for task in seen]
    assert {task.split for task in paper} == {"paper"} and dataset.pinned("paper")


def test_listing_mini_reads_no_game() -> None:
    def read() -> bytes:
        raise AssertionError("the games were read")

    dataset = frozen.Frozen(manifests.load(frozen.MINI), read, committed=True)
    assert len(dataset.tasks("train")) == 840 and dataset.digest()


def test_a_changed_embedded_game_is_refused() -> None:
    first = next(iter(manifests.load(frozen.MINI).rows))
    changed = json.dumps([first, "Your task is to: rest.", "(define)"]).encode()
    dataset = frozen.Frozen(manifests.load(frozen.MINI), lambda: lzma.compress(changed), committed=True)
    assert first in message(dataset.source, first)


def test_two_processes_agree_on_ids_and_digests() -> None:
    code = (
        "from seedbench.envs.alfworld.data import open_dataset as o; d = o('mini'); t = d.tasks('unseen');"
        "import hashlib; games = repr([(x.id, d.source(x.id)) for x in t]);"
        "print(d.digest(), hashlib.sha256(games.encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "7")
    }
    assert len(said) == 1 and open_dataset("mini").digest() in said.pop()


# --- the published games


def test_shared_seen_games_have_the_digests_of_the_manifest(seen_tree: Path) -> None:
    dataset = open_dataset(seen_tree)
    tasks = dataset.tasks("seen")
    assert len(tasks) == 140 and dataset.pinned("seen") and dataset.default_max_steps == 50
    for task in tasks:
        source = dataset.source(task.id)  # raises where the digest differs
        assert (source.domain_sha, source.grammar_sha) == (data.DOMAIN_SHA, data.GRAMMAR_SHA)
    assert open_dataset(seen_tree / "json_2.1.1").tasks("seen") == tasks
    assert "not at hand" in message(dataset.tasks, "unseen") and "seen" in message(dataset.tasks, "train")


def test_published_order_is_that_of_the_list() -> None:
    with lzma.open(shared() / "manifest.jsonl.xz", "rt") as lines:
        listed = [game["path"] for game in map(json.loads, lines) if game["split"] == "valid_unseen"]
    assert [row.id for row in manifests.load("alfworld").split("unseen")] == listed


# --- what can be wrong with a folder


def test_a_good_tree_serves_its_splits_and_ignores_strangers(tree: Path) -> None:
    put(tree, "json_2.1.1/train/zzz-0/trial_9", b"not in the manifest")
    dataset = published.Published(tree)
    assert [task.id for task in dataset.tasks("train")] == IDS[:2]
    assert [dataset.tasks(split)[0].id for split in ("dev", "seen", "paper", "unseen")] == [IDS[2], IDS[3], *IDS[3:]]
    assert dataset.task(IDS[2]) == dataset.tasks("dev")[0]
    assert dataset.source(IDS[0]).task == "Your task is to: put a 1."
    assert dataset.game_file(IDS[0]) == tree / IDS[0] / "game.tw-pddl"
    assert published.Published(tree / "json_2.1.1").tasks("dev") == dataset.tasks("dev")


def test_missing_empty_and_foreign_folders(small: Manifest, tmp_path: Path) -> None:
    assert "does not exist" in message(published.Published, tmp_path / "nowhere")
    assert "is empty" in message(published.Published, tmp_path)
    (tmp_path / "photos").mkdir()
    assert "holds no json_2.1.1" in message(published.Published, tmp_path)
    (tmp_path / "file").write_text("x")
    assert "is a file" in message(published.Published, tmp_path / "file")


def test_a_half_copied_split_names_how_many_and_the_first(tree: Path) -> None:
    (tree / IDS[1] / "game.tw-pddl").unlink()
    text = message(published.Published(tree).tasks, "train")
    assert "1 of the 2 games of 'train' are missing" in text and IDS[1] in text
    (tree / IDS[0] / "game.tw-pddl").unlink()
    assert "2 of the 2" in message(published.Published(tree).tasks, "train")
    assert published.Published(tree).tasks("dev")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        game_bytes(IDS[0])[:60],
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"[" * 100_000,
        b"{}",
        b'{"pddl_domain": 1, "grammar": 2, "pddl_problem": 3}',
        json.dumps({"pddl_domain": "", "grammar": GRAMMAR % 1, "pddl_problem": 3}).encode(),
        json.dumps({"pddl_domain": "", "grammar": "move", "pddl_problem": ""}).encode(),
        json.dumps({"pddl_domain": "", "grammar": GRAMMAR % 1, "pddl_problem": "\ud800"}).encode(),
    ],
    ids=["empty", "torn", "binary", "list", "deep", "no keys", "numbers", "one number", "no task line", "surrogate"],
)
def test_a_damaged_game_file_is_named(tree: Path, raw: bytes) -> None:
    path = put(tree, IDS[0], raw)
    text = message(published.Published(tree).source, IDS[0])
    assert str(path) in text and "not a whole ALFWorld game" in text


def test_a_game_of_the_old_release_says_which_is_needed(tree: Path) -> None:
    put(tree, IDS[0], game_bytes(IDS[0], OLD_GRAMMAR))
    for call, argument in ((published.Published(tree).source, IDS[0]), (published.Published(tree).tasks, "train")):
        text = message(call, argument)
        assert "older ALFWorld release" in text and "json_2.1.2_tw-pddl.zip" in text and IDS[0] in text


def test_another_content_is_named(tree: Path) -> None:
    put(tree, IDS[3], game_bytes(IDS[3], problem="(define (problem other%s))"))
    assert f"{IDS[3]}/game.tw-pddl is not the published game" in message(published.Published(tree).source, IDS[3])
    put(tree, IDS[3], game_bytes(IDS[3], GRAMMAR + " "))
    assert "is not the published game" in message(published.Published(tree).source, IDS[3])


def test_an_unknown_id_gets_the_closest(tree: Path) -> None:
    dataset = published.Published(tree)
    assert repr(IDS[2]) in message(dataset.source, "json_2.1.1/train/pick-Cup-2/trial_33")
    assert repr(IDS[4]) in message(dataset.source, "valid_unseen/look-Pan-9/trial_5")
    assert "the closest is" in message(dataset.source, "")
    assert "the closest is" in message(open_dataset("mini").source, "mini/seen/nonsense")


def test_an_unknown_split_and_one_not_at_hand(tree: Path) -> None:
    dataset = published.Published(tree)
    assert "no split 'test'" in message(dataset.tasks, "test")
    (tree / IDS[4] / "game.tw-pddl").unlink()
    for folder in ((tree / IDS[4]), (tree / IDS[4]).parent, (tree / IDS[4]).parent.parent):
        folder.rmdir()
    text = message(dataset.tasks, "unseen")
    assert "not at hand" in text and "train, dev, seen" in text


# --- check and import


def test_check_counts_each_kind_of_fault(tree: Path) -> None:
    (tree / IDS[0] / "game.tw-pddl").unlink()
    put(tree, IDS[1], b"{")
    put(tree, IDS[3], game_bytes(IDS[3], OLD_GRAMMAR))
    put(tree, IDS[4], game_bytes(IDS[4], problem="(other %s)"))
    ticks: list[tuple[int, int]] = []
    table = {row["split"]: row for row in files.check(str(tree), lambda done, total: ticks.append((done, total)))}
    train = table["train"]
    assert (train["expected"], train["found"], train["missing"], train["damaged"], train["wrong"]) == (2, 1, 1, 1, 0)
    assert table["dev"]["first"] == "" and table["dev"]["found"] == 1 and table["dev"]["pinned"]
    assert table["seen"]["wrong"] == table["unseen"]["wrong"] == 1 and "older" in table["seen"]["first"]
    assert ticks == [(n, 5) for n in range(1, 6)]


def zipped(path: Path, names: list[str], prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(f"{prefix}{name}/game.tw-pddl", game_bytes(name))
            archive.writestr(f"{prefix}{name}/traj_data.json", "{}")
    return path


@pytest.mark.parametrize("form", ["tree", "root", "zip", "zips", "nested zip"])
def test_import_brings_every_game(tree: Path, tmp_path: Path, form: str) -> None:
    source = {"tree": tree, "root": tree / "json_2.1.1"}.get(form, tmp_path / "down" / "a.zip")
    source.parent.mkdir(exist_ok=True)
    if form in ("zip", "nested zip"):
        zipped(source, IDS, "./x/" if form == "nested zip" else "")
    elif form == "zips":
        zipped(source, IDS[:2])
        zipped(source.with_name("b.zip"), IDS[2:])
        source = source.parent
    table = files.import_published(source, tmp_path / "dest", quiet)
    assert [row["found"] for row in table] == [2, 1, 1, 1] and not any(row["first"] for row in table)
    assert (tmp_path / "dest" / IDS[0] / "traj_data.json").exists() == ("zip" in form)
    assert not list((tmp_path / "dest").rglob("*.part"))


def test_import_goes_on_after_a_kill(tree: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"

    def killed(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.import_published(tree, dest, killed)
    first = dest / IDS[0] / "game.tw-pddl"
    put(dest, IDS[1], b"{torn")  # what a killed copy by other means may leave
    first.with_name("game.tw-pddl.part").write_bytes(b"{")
    before = first.stat().st_mtime_ns
    table = files.import_published(tree, dest, quiet)
    assert [row["found"] for row in table] == [2, 1, 1, 1] and not any(row["first"] for row in table)
    assert first.stat().st_mtime_ns == before


def test_import_of_a_part_reports_the_rest_as_missing(tree: Path, tmp_path: Path) -> None:
    table = files.import_published(zipped(tmp_path / "a.zip", IDS[3:4]), tmp_path / "dest", quiet)
    assert [row["missing"] for row in table] == [2, 1, 0, 1]
    assert "not at hand" in message(published.Published(tmp_path / "dest").tasks, "train")


def test_import_refuses_what_is_not_the_published_set(tree: Path, tmp_path: Path) -> None:
    put(tree, IDS[2], game_bytes(IDS[2], problem="(other %s)"))
    assert IDS[2] in message(files.import_published, tree, tmp_path / "dest", quiet)
    assert (tmp_path / "dest" / IDS[0] / "game.tw-pddl").exists()
    assert not (tmp_path / "dest" / IDS[2] / "game.tw-pddl").exists()
    assert "does not exist" in message(files.import_published, tmp_path / "no.zip", tmp_path / "d", quiet)
    (tmp_path / "torn.zip").write_bytes(zipped(tmp_path / "whole.zip", IDS).read_bytes()[:-100])
    assert "not a whole zip" in message(files.import_published, tmp_path / "torn.zip", tmp_path / "d", quiet)
    assert "no game" in message(files.import_published, zipped(tmp_path / "none.zip", []), tmp_path / "d", quiet)


@pytest.mark.parametrize(
    "name", ["../../evil/game.tw-pddl", "/etc/game.tw-pddl", "..\\evil", "C:/x", "json_2.1.1/../../x"]
)
def test_import_refuses_paths_that_lead_out(small: Manifest, tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", IDS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "x")
    assert "leads out of the archive" in message(files.import_published, path, tmp_path / "dest", quiet)
    assert not list((tmp_path / "dest").rglob("*.tw-pddl"))


def test_import_refuses_links(small: Manifest, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", IDS)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("json_2.1.1/train/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc")
    assert "leads out" in message(files.import_published, path, tmp_path / "dest", quiet)


def test_a_damaged_archive_member_is_named(small: Manifest, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", IDS)
    raw = bytearray(path.read_bytes())
    raw[len(IDS[0]) + 50] ^= 0xFF  # inside the first member's data
    path.write_bytes(raw)
    text = message(files.import_published, path, tmp_path / "dest", quiet)
    assert IDS[0] in text and "damaged" in text


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, left = os.replace, [2]

    def full(source: Any, target: Any) -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    text = message(files.import_published, tree, tmp_path / "dest", quiet)
    assert "the disk is full; free" in text and "goes on from there" in text
    assert len(list((tmp_path / "dest").rglob("game.tw-pddl"))) == 2 and not list((tmp_path / "dest").rglob("*.part"))


def test_a_full_disk_while_generating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, raw: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    sizes = {"train": 6}
    with pytest.raises(SeedbenchError, match="the disk is full"):
        files.generate(tmp_path / "own", quiet, sizes=sizes)


def test_two_imports_do_not_meet(tree: Path, tmp_path: Path) -> None:
    from filelock import FileLock

    (tmp_path / "dest").mkdir()
    with FileLock(tmp_path / "dest" / ".import.lock"):
        assert "Another import" in message(files.import_published, tree, tmp_path / "dest", quiet)
