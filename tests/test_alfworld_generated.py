"""Folders of generated ALFWorld games, and the `data` commands over them: whatever is wrong is said, never scored."""

from __future__ import annotations

import importlib.util
import json
import lzma
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from seedbench import data as command
from seedbench import evaluate, results
from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.envs.alfworld import data, files, frozen, habits
from seedbench.exam import Config

SIZES = {"train": 2, "seen": 3}


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    files.generate(folder, quiet, sizes=SIZES)
    return folder


@pytest.fixture
def own(pattern: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pattern, tmp_path / "own"))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def write(path: Path, values: list[Any]) -> None:
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, values)).encode()))


def refused(folder: Path, split: str = "seen") -> str:
    with pytest.raises(InfrastructureError) as caught:
        data.open_dataset(folder).tasks(split)
    text = str(caught.value)
    assert "\n" not in text and text.endswith("generate the games again into a new folder.")
    return text


def test_a_pack_that_cannot_be_read_fails_when_a_split_is_listed(own: Path) -> None:
    whole = (own / frozen.GAMES).read_bytes()
    (own / frozen.GAMES).write_bytes(whole[:-20])
    assert "cannot be read" in refused(own)
    with pytest.raises(InfrastructureError):
        files.check(str(own), quiet)
    with pytest.raises(InfrastructureError):
        evaluate.evaluate(Config("expert", "alfworld", data=str(own), split="seen"), own / "run")
    assert not (own / "run").exists()
    (own / frozen.GAMES).unlink()
    assert "No such file" in refused(own)


@pytest.mark.parametrize("line", [[], ["a", "b"], ["a", "b", 3], {"a": 1}, ["a", "b", "\ud800"], None])
def test_a_pack_with_a_line_that_is_no_game(own: Path, line: Any) -> None:
    write(own / frozen.GAMES, [*lines(own / frozen.GAMES), line])
    assert "generated games cannot be read" in refused(own)


def test_a_pack_nested_too_deeply(own: Path) -> None:
    (own / frozen.GAMES).write_bytes(lzma.compress(b"[" * 100_000))
    refused(own)


def test_a_pack_that_lacks_games_of_the_manifest(own: Path) -> None:
    write(own / frozen.GAMES, lines(own / frozen.GAMES)[:-1])
    dataset = data.open_dataset(own)
    last = "generated-0-2/seen/pick_clean_then_place_in_recep-0000"
    assert f"1 of the 3 games of 'seen' are not among the generated games, the first {last}" in refused(own)
    assert len(dataset.tasks("train")) == 2
    with pytest.raises(InfrastructureError, match=last):
        dataset.source(last)


def test_episodes_on_a_damaged_game_stay_unplayed_until_it_is_mended(own: Path, tmp_path: Path) -> None:
    whole = (own / frozen.GAMES).read_bytes()
    games = lines(own / frozen.GAMES)
    games[-1][2] = games[-1][2][:100]
    write(own / frozen.GAMES, games)
    run = tmp_path / "run"
    with pytest.raises(InfrastructureError, match=r"1 episodes were not played.*not as its manifest says.*--resume"):
        evaluate.evaluate(Config("expert", "alfworld", data=str(own), split="seen"), run)
    assert not (run / "results.json").exists()
    (own / frozen.GAMES).write_bytes(whole)
    data._open.cache_clear()  # as in a new process
    evaluate.resume(run)
    split = results.load(run).results[0]
    assert (split.attempted, split.errors) == (3, 0)


@pytest.mark.parametrize("steps", [None, 0, -3, True, "14", 1.5, [14]])
def test_a_manifest_needs_a_step_limit(own: Path, steps: Any) -> None:
    header, *rows = lines(own / frozen.LISTING)
    write(own / frozen.LISTING, [{**header, "max_steps": steps}, *rows])
    assert "max_steps" in refused(own)


def test_a_damaged_manifest_is_one_sentence(own: Path) -> None:
    header, *rows = lines(own / frozen.LISTING)
    for bad in ([[], *rows], [header, [None, *rows[0][1:]]], [header, ["\ud800", *rows[0][1:]]]):
        write(own / frozen.LISTING, bad)
        assert frozen.LISTING in refused(own)
    (own / frozen.LISTING).write_bytes(lzma.compress(b"[" * 100_000))
    assert "nested too deeply" in refused(own)
    (own / frozen.LISTING).unlink()
    assert "No such file" in refused(own)


def test_an_absent_split_names_those_that_are_there(own: Path) -> None:
    with pytest.raises(SeedbenchError, match="no split 'unseen'; choose --split among train, seen"):
        data.open_dataset(own).tasks("unseen")


def test_two_generations_do_not_meet(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".import.lock"), pytest.raises(SeedbenchError, match="Another import or generation"):
        files.generate(tmp_path, quiet, sizes=SIZES)
    assert not (tmp_path / frozen.GAMES).exists()


@pytest.mark.parametrize("size", [0, -3])
def test_sizes_are_checked_before_anything_is_written(tmp_path: Path, size: int) -> None:
    with pytest.raises(SeedbenchError, match=f"--seen is {size}: generate at least 1"):
        files.generate(tmp_path / "new", quiet, sizes={"train": 2, "seen": size})
    assert not (tmp_path / "new").exists()


def test_a_lesson_for_an_unknown_family_names_the_families() -> None:
    with pytest.raises(SeedbenchError, match="'x'; choose one of kitchen, bedroom, livingroom, bathroom"):
        habits.lesson("x")


# --- the data commands


def test_generate_says_what_its_columns_mean_and_how_to_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.run_generate("alfworld", tmp_path / "it's new", 0, 2, SIZES)
    out = capsys.readouterr().out
    assert "listed, habits: success within the step limit" in out
    assert f"--data '{tmp_path}/it'\"'\"'s new' --split train,seen\n" in out


def test_list_puts_sentences_under_the_table(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.print_list("alfworld", str(own))
    table, _, below = capsys.readouterr().out.partition("└")
    assert "choose" not in table and "seedbench/ALFWorld-v0 unseen: The generated games have no split" in below


def test_a_path_is_no_markup(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own.parent / "d[").mkdir()
    folder = own.rename(own.parent / "d[/red]x:smile:")
    command.print_list("alfworld", str(folder))
    command.run_check("alfworld", str(folder))
    assert "".join(capsys.readouterr().out.split()).count("d[/red]x:smile:") == 2


def test_check_prints_complaints_below_and_exits_1(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    games = lines(own / frozen.GAMES)
    games[-1][2] += " "
    write(own / frozen.GAMES, games)
    with pytest.raises(SystemExit) as stop:
        command.run_check("alfworld", str(own))
    out = capsys.readouterr().out
    assert stop.value.code == 1 and "first" not in out.partition("└")[0]
    assert f"\nseen: The game {games[-1][0]} is not as its manifest says" in out


def test_check_of_a_folder_without_a_single_game_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(SystemExit) as stop:
        command.run_check("alfworld", str(tmp_path))
    assert stop.value.code == 1 and "not one file" in capsys.readouterr().err


def test_import_names_the_splits_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"expected": 2, "missing": 0, "damaged": 0, "wrong": 0, "pinned": True, "first": ""}
    rows = [{"split": "train", **row, "found": 0, "missing": 2}, {"split": "seen", **row, "found": 2}]
    monkeypatch.setattr(files, "import_published", lambda source, dest, progress: rows)
    command.run_import("alfworld", tmp_path, tmp_path / "dest")
    assert capsys.readouterr().out.endswith("/dest --split seen\n")


def test_the_proof_without_the_real_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[1] / "benchmarks" / "alfworld_proof.py"
    spec = importlib.util.spec_from_file_location("alfworld_proof", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["alfworld_proof.py", "--engine", "textworld"])
    with pytest.raises(SystemExit, match=r"pip install -e '\.\[alfworld\]'"):
        module.main()
