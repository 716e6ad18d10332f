"""The bank of skills: a text for every kind of task, short, in the environments' words, and in the prompt of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from seedbench.baselines.skills import bank
from seedbench.core import SeedbenchError, Task
from seedbench.envs.alfworld.habits import HABITS, habit, word
from seedbench.envs.webshop.families import ATTRIBUTES, CATEGORIES, families
from seedbench.exam import Config, plan
from seedbench.record import read_lines
from tests.command import run

LONGEST = 60  # words


@pytest.mark.parametrize("env", ["alfworld", "webshop", "searchqa"])
def test_every_kind_of_every_split_of_mini_has_a_text_of_its_own(env: str) -> None:
    exam = plan(Config("x", env=env, split="all", skill="static"))[0]
    texts: dict[str, set[str]] = {}
    for tasks in exam.tasks.values():
        for task in tasks:
            texts.setdefault(task.kind, set()).add(exam.hint(task))
    general = (bank.FOLDER / env / "general.md").read_text().strip()
    for kind, told in texts.items():
        own = (bank.FOLDER / env / f"{kind}.md").read_text().strip()
        for text in told:
            assert text.startswith(f"{general}\n{own}") and len(text.split()) <= LONGEST
            assert not re.search(r"\d", text)
    assert len({min(told) for told in texts.values()}) >= len(texts) - 2


def test_kinds_are_matched_exactly_and_what_has_no_file_is_told_the_rest() -> None:
    general = (bank.FOLDER / "alfworld" / "general.md").read_text().strip()
    for kind in ("pick_heat", "pick_heat_then_place_in_recep2", "../alfworld/general", ""):
        assert bank.static(Task("t", "seedbench/ALFWorld-v0", "seen", kind)) == general
    assert bank.static(Task("t", "seedbench/DeepSearch-v0", "seen", "any"))
    with pytest.raises(SeedbenchError, match="has none for"):
        bank.static(Task("t", "seedbench/Chess-v0", "seen", "any"))


def test_rooms_are_told_their_habits_and_categories_true_words() -> None:
    for room, habits in HABITS.items():
        text = (bank.FOLDER / "alfworld" / "family" / f"{room}.md").read_text()
        told = dict(re.findall(r"(\w+): ([a-z, ]+)", text))
        found = {thing: place for place, things in told.items() for thing in things.split(", ")}
        assert found == {word(thing): word(habit(room, thing)) for thing in habits}
    for category in CATEGORIES:
        used = {attribute for family in families(category) for attribute in family.attributes}
        for said, attribute in re.findall(
            r"([A-Z][\w ]*): (\w+)\.", (bank.FOLDER / "webshop" / f"{category}.md").read_text()
        ):
            assert attribute in used
            meant = {a for a in used if said.lower() in ATTRIBUTES[a]}
            assert attribute in meant


def test_a_run_with_the_bank_is_recorded_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--env", "alfworld", "--split", "seen", "--limit", 3, "--max-steps", 2, "--quiet"]
    run("eval", "--agent", "null", *base, "--out", tmp_path / "plain")
    run("eval", "--agent", "null", *base, "--out", tmp_path / "told", "--skill", "static")
    told = json.loads((tmp_path / "told" / "results.json").read_text())
    assert told["protocol"]["skill"] == "static"
    run("verify", tmp_path / "told")
    shas = [[line["steps"][0]["prompt_sha"] for line in read_lines(tmp_path / name / "trajectories.jsonl.gz")]
            for name in ("plain", "told")]  # fmt: skip
    assert not set(shas[0]) & set(shas[1])
    for name in ("run.json", "results.json"):  # as if it had been played without
        said = json.loads((tmp_path / "told" / name).read_text())
        said["protocol"]["skill"] = ""
        (tmp_path / "told" / name).write_text(json.dumps(said))
    run("verify", tmp_path / "told", code=1)
    assert "3 findings" in capsys.readouterr().out
    (tmp_path / "word.md").write_text("static")
    run("eval", "--agent", "null", *base, "--out", tmp_path / "x", "--skill", tmp_path / "word.md", code=2)
    assert "means the bank" in capsys.readouterr().err
