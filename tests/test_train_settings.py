"""Settings of a run from files and from the command line: wrong ones get one sentence, given ones win."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.baselines.experiment import Plan
from seedbench.core import SeedbenchError
from seedbench.record import locked
from seedbench.train.args import Args
from seedbench.train.log import read
from seedbench.train.sft import SftArgs
from tests.command import run
from tests.tiny import one_sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [("tasks", "8"), ("tasks", 2.5), ("tasks", True), ("lr", None), ("lr", []), ("env", 5), ("reward", "no such"),
     ("shard", "no"), ("clip_high", "x"), ("model", {"a": 1}), ("out", None)],
)  # fmt: skip
def test_a_setting_of_a_wrong_type_is_said(name: str, value: Any, tmp_path: Path) -> None:
    (file := tmp_path / "recipe.json").write_text(json.dumps({name: value}))
    with pytest.raises(SeedbenchError) as error:
        Args.load(file, "--recipe")
    one_sentence(error, "--recipe", f"for {name}: it should be")


def test_whole_numbers_stand_for_fractions(tmp_path: Path) -> None:
    (file := tmp_path / "recipe.json").write_text('{"lr": 1, "clip_high": null}')
    assert Args.load(file, "--recipe").lr == 1


@pytest.mark.parametrize(
    "given",
    [{"lr": float("nan")}, {"lr": float("inf")}, {"lr": -1.0}, {"warmup": 5.0}, {"warmup": float("nan")},
     {"demonstrations": 0}, {"demonstrations": -1}],
)  # fmt: skip
def test_sft_refuses_what_it_cannot_train_with(given: dict[str, Any]) -> None:
    with pytest.raises(SeedbenchError, match=f"--{next(iter(given))} is "):
        SftArgs(**given)


@pytest.mark.parametrize("given", [{"max_steps": 0}, {"max_steps": -1}, {"history": -1}])
def test_grpo_refuses_episodes_without_steps(given: dict[str, int]) -> None:
    with pytest.raises(SeedbenchError, match="or more"):
        Args(**given)


def test_an_option_that_is_given_wins_over_the_recipe_though_it_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    (file := tmp_path / "recipe.json").write_text('{"updates": 150, "tasks": 16, "model": "fresh"}')
    run("train", "grpo", "--recipe", file, "--updates", 40, "--tasks=8", "--dry-run")
    assert "40 updates x 8 tasks x 8 episodes" in capsys.readouterr().out


def test_resume_refuses_an_option_though_it_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "grpo", "--resume", tmp_path, "--updates", 40, code=2)
    assert "leave out --updates" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("page", ["sft", "grpo"])
def test_several_environments_are_refused(
    page: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl")
    run("train", page, "--env", "all", "--out", tmp_path / "run", *more, code=2)
    assert "--env all names several environments: train on one" in capsys.readouterr().err


def test_two_processes_do_not_train_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate")
    for page in ("grpo", "sft"):
        (out := tmp_path / page).mkdir()
        with locked(out):
            run("train", page, "--model", "fresh", "--out", out, code=2)
        assert "another process is writing to" in capsys.readouterr().err


def test_a_damaged_metrics_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for bad in (b'{"update": 2', b"[]", b"\xff\xfe", b'{"update": "2"}', b"{}"):
        file.write_bytes(b'{"update": 1, "loss": NaN}\n' + bad + b"\n")
        assert [line["update"] for line in read(file)] == [1]


PLAN: dict[str, Any] = {"title": "t", "start": "tiny", "env": "alfworld", "arms": {"a": ["grpo"]}, "seeds": [0],
                        "eval": []}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"arms": {"../../a": ["grpo"]}}, {"arms": {"a/b": ["grpo"]}}, {"arms": {"start": ["grpo"]}}, {"arms": {"a": []}},
     {"arms": []}, {"seeds": "12"}, {"seeds": ["../x"]}, {"eval": [1]}, {"title": None}, {"more": 1}],
)  # fmt: skip
def test_a_plan_that_is_none_is_said(change: dict[str, Any], tmp_path: Path) -> None:
    (file := tmp_path / "plan.json").write_text(json.dumps(PLAN))
    assert Plan.load(file).arms == {"a": ["grpo"]}
    file.write_text(json.dumps(PLAN | change))
    with pytest.raises(SeedbenchError) as error:
        Plan.load(file)
    assert "plan.json" in str(error.value) and "\n" not in str(error.value)
