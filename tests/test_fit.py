"""Prompts that are too long: what is cut, what never is, and that the audit makes the same cut."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from seedbench.core import Message, SeedbenchError, View
from seedbench.policy.fit import fit, limit
from seedbench.prompts import Prompt
from tests.tiny import one_sentence, tiny_folder

PROMPT = Prompt("p", "S", history=-1)


class Letters:
    """One id a character."""

    def __init__(self, context: int | None):
        self.context = context

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(map(ord, "".join(m["content"] for m in messages)))


def view(past: int) -> View:
    return View("goal", "now", ("go", "stop"), tuple((f"saw{k}", f"did{k}") for k in range(past)), "lesson")


def text(ids: tuple[int, ...]) -> str:
    return "".join(map(chr, ids))


@pytest.mark.parametrize("past", [0, 1, 5, 12])
def test_the_oldest_steps_go_first_and_the_rest_never(past: int) -> None:
    whole = len(Letters(None).encode(PROMPT.render(view(past))))
    least = len(Letters(None).encode(PROMPT.render(View("goal", "now", ("go", "stop"), (), "lesson"))))
    for most in range(least, whole + 2):
        ids, left_out = fit(Letters(None), PROMPT, view(past), most, 5)
        said = text(ids)
        assert len(ids) <= most and all(x in said for x in ("S", "Task: goal", "lesson", "Now:\nnow", "go\nstop"))
        assert [f"> did{k}\n" in said for k in range(past)] == [k >= left_out for k in range(past)]
        if left_out:  # one step more would not have fitted
            more = Letters(None).encode(Prompt("p", "S", history=past - left_out + 1).render(view(past)))
            assert len(more) > most


def test_the_limit_is_the_context_less_the_reply_or_what_is_asked_for() -> None:
    assert [limit(None, None, 5), limit(100, None, 5), limit(100, 20, 5), limit(100, 99, 5)] == [None, 95, 20, 95]
    ids, left_out = fit(Letters(90), PROMPT, view(9), None, 10)
    assert left_out and len(ids) <= 80
    with pytest.raises(SeedbenchError) as raised:
        fit(Letters(40), PROMPT, view(9), None, 10)
    one_sentence(raised, "context is 40", "longer context")
    with pytest.raises(SeedbenchError) as raised:
        fit(Letters(400), PROMPT, view(9), 12, 10)
    one_sentence(raised, "--max-prompt-tokens is 12")


def command(argv: list[str]) -> int:
    from seedbench.cli import main

    try:
        main(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_cut_run_is_counted_and_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record keeps the digest of the whole prompt and the ids that were fed; a run that states no limit fails."""
    pytest.importorskip("torch")

    from seedbench.exam import Config, plan
    from seedbench.policy.hf import HFPolicy

    folder, out = tiny_folder(tmp_path / "model", max_position_embeddings=4096), tmp_path / "run"
    args = ["eval", "--agent", str(folder), "--env", "alfworld", "--split", "seen", "--limit", "1", "--history", "-1",
            "--max-new-tokens", "4", "--out", str(out), "--quiet"]  # fmt: skip
    first = plan(Config("null", env="alfworld", split="seen"))[0].first_prompt()
    most = len(HFPolicy.load(folder).encode(first)) + 20
    assert command([*args, "--max-prompt-tokens", str(most)]) == 0
    run = json.loads((out / "run.json").read_text())
    assert run["agent"]["max_prompt_tokens"] == most and 0 < run["cut_prompts"] < 14
    with gzip.open(out / "tokens.jsonl.gz", "rt") as file:
        fed = [step["prompt_ids"] for line in file for step in json.loads(line)["steps"]]
    assert max(map(len, fed)) <= most
    assert command(["verify", str(out), "--level", "audit", "--model", str(folder)]) == 0
    for file in ("results.json", "run.json"):
        stated = json.loads((out / file).read_text())
        del stated["agent"]["max_prompt_tokens"]
        (out / file).write_text(json.dumps(stated))
    assert command(["verify", str(out), "--level", "audit", "--model", str(folder)]) == 1
    assert "not those of the replayed prompt" in capsys.readouterr().out
