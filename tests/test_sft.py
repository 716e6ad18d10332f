"""Supervised fine-tuning: the rows are what a policy would see and say, and the command leaves a model that plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from tests.command import run
from tests.tiny import one_torch_thread

pytest.importorskip("trl", reason="trl is not installed: pip install -e '.[train]'")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def rows_of(env: str = "alfworld", **settings: Any) -> tuple[Any, list[dict[str, list[int]]]]:
    from seedbench.baselines import demonstrations
    from seedbench.exam import Config, plan
    from seedbench.policy.fresh import load_policy
    from seedbench.train.sft import SftArgs

    exam = plan(Config("expert", env=env, split="train"))[0]
    policy = load_policy("fresh", env)
    return policy, list(demonstrations.rows(exam, policy, SftArgs(demonstrations=3, **settings)))


def parts(policy: Any, row: dict[str, list[int]]) -> tuple[str, str]:
    """Prompt and reply of a row, which must have one end of turn at its end."""
    n = row["completion_mask"].index(1)
    assert row["completion_mask"] == [0] * n + [1] * (len(row["input_ids"]) - n)
    assert row["input_ids"][-1] in policy.stop_ids
    return policy.tokenizer.decode(row["input_ids"][:n]), policy.decode(row["input_ids"][n:])


def test_rows_are_prompts_and_replies_as_a_policy_has_them() -> None:
    policy, rows = rows_of()
    assert rows == rows_of()[1]
    for row in rows:
        prompt, said = parts(policy, row)
        assert said.startswith("<action>") and said.endswith("</action>")
        assert prompt.endswith("<|im_start|>assistant\n") and "Nothing happens." not in prompt


def test_a_stumbling_expert_teaches_its_own_actions_from_states_it_would_not_come_to() -> None:
    policy, rows = rows_of(trials=4, stumble=0.9)
    told = [parts(policy, row) for row in rows]
    assert any("Now:\nNothing happens." in prompt for prompt, _ in told)  # after an action of another episode
    for prompt, said in told:  # what is learned is legal where it is said
        legal = prompt.partition("Actions:\n")[2].partition("<|im_end|>")[0].splitlines()
        assert said.removeprefix("<action>").removesuffix("</action>") in legal


def test_lessons_are_written_from_an_episode_and_read_in_the_next() -> None:
    from seedbench.baselines.skills.parse import parse
    from seedbench.prompts import HINT_TITLE

    policy, rows = rows_of(lessons=True)
    told = [parts(policy, row) for row in rows]
    written = [parse(said) for prompt, said in told if "Outcome: success" in prompt]
    read = [prompt.partition(f"{HINT_TITLE}\n")[2].partition("\n\n")[0] for prompt, _ in told if HINT_TITLE in prompt]
    assert len(written) == 3 and {lesson.skill for lesson in written if lesson} == set(read)


def test_evidence_stands_where_sspos_teacher_reads_it() -> None:
    from seedbench.baselines.anchors.fair import of_task
    from seedbench.exam import Config, plan_one
    from seedbench.prompts import HINT_TITLE

    policy, rows = rows_of("deepsearch", evidence=True)
    told = [prompt for prompt, _ in (parts(policy, row) for row in rows) if HINT_TITLE in prompt]
    assert 0 < len(told) < len(rows)
    exam = plan_one(Config("train", env="deepsearch", split="train"))
    env = exam.make()
    shown = {a.text for task in exam.tasks["train"] for a in of_task(env, task) if any(a.text in t for t in told)}
    assert len(shown) >= 3 and all("Evidence:" in t and "step by step" in t for t in told)
    wrong = [t for t in told if "which is wrong: " in t]
    assert 0 < len(wrong) < len(told)


def test_rows_for_copying_can_be_answered_by_looking_up_alone() -> None:
    from seedbench.baselines import demonstrations
    from seedbench.policy.fresh import load_policy

    policy = load_policy("fresh", "alfworld")
    rows = demonstrations.copying(policy, 20, 0)
    assert rows == demonstrations.copying(policy, 20, 0) != demonstrations.copying(policy, 20, 1)
    for row in rows:
        ids, mask = row["input_ids"], row["completion_mask"]
        assert len(ids) == len(mask) == 128 and not set(ids) & set(policy.tokenizer.all_special_ids)
        pairs = {(ids[i], ids[i + 1]) for i in range(mask.index(1))}
        wanted = [i for i, m in enumerate(mask) if m]
        assert wanted and all((ids[i - 1], ids[i]) in pairs for i in wanted)


def test_examples_are_learned_as_they_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seedbench.baselines import demonstrations
    from seedbench.policy.fresh import load_policy

    policy, file = load_policy("fresh", "alfworld"), tmp_path / "sft.jsonl"
    line = {"messages": [{"role": "user", "content": "Say it."}], "completion": '{"a":1}', "task": "t", "trial": 0}
    file.write_text(f"{json.dumps(line)}\n{json.dumps(line | {'completion': 'two'})}\n")
    told = [parts(policy, row) for row in demonstrations.written(file, policy)]
    assert [said for _, said in told] == ['{"a":1}', "two"]
    assert all("<|im_start|>user\nSay it." in p and p.endswith("<|im_start|>assistant\n") for p, _ in told)
    none = ("train", "sft", "--demonstrations", 0, "--out", tmp_path / "run")
    run(*none, code=2)
    assert "0 where --examples names a file" in capsys.readouterr().err
    run(*none, "--examples", file, "--updates", 1, "--rows", 2)
    assert "2 rows; 0 longer" in capsys.readouterr().out and (tmp_path / "run" / "model.safetensors").is_file()
    for text in ("[]", '{"messages": [], "completion": 3}', "{"):
        file.write_text(f"{json.dumps(line)}\n{text}\n")
        with pytest.raises(SeedbenchError, match="line 2: not an object with messages"):
            list(demonstrations.written(file, policy))


def test_fresh_weights_follow_the_seed_alone() -> None:
    import torch

    from seedbench.policy.fresh import load_policy

    def first(seed: int) -> list[float]:
        torch.manual_seed(int(torch.randint(9, (1,))))
        return next(load_policy("fresh", "alfworld", seed=seed).model.parameters()).flatten()[-8:].tolist()

    assert first(1) == first(1) != first(2)


def test_a_saved_policy_cuts_words_as_it_did(tmp_path: Path) -> None:
    """transformers would choose Qwen2's own rules for a saved folder, as its config.json says qwen2."""
    from seedbench.policy.fresh import load_policy
    from seedbench.policy.hf import HFPolicy

    policy = load_policy("fresh", "alfworld")
    policy.save(tmp_path)
    said = [{"role": "user", "content": "Go to drawer 12 in room 1, then open fridge 3."}]
    assert HFPolicy.load(tmp_path).encode(said) == policy.encode(said)


def test_what_does_not_ship_is_said() -> None:
    from seedbench.policy.fresh import shipped

    with pytest.raises(SeedbenchError, match="No tiny policy ships for nowhere"):
        shipped("nowhere")


def test_the_command_from_fresh_to_a_played_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, played = tmp_path / "run", tmp_path / "played"
    small = ("--demonstrations", 6, "--updates", 4, "--rows", 8, "--save-every", 2)
    run("train", "sft", "--env", "alfworld", *small, "--out", made)
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [1, 2, 3, 4] and lines[-1]["loss"] < lines[0]["loss"]
    assert (made / "curves.png").stat().st_size > 1000
    short = ("--env", "alfworld", "--split", "seen", "--limit", 2, "--max-new-tokens", 8, "--max-steps", 2)
    run("eval", "--agent", made, *short, "--out", played, "--quiet")
    results = json.loads((played / "results.json").read_text())
    assert results["results"][0]["attempted"] == 2 and results["results"][0]["errors"] == 0
    capsys.readouterr()
    run("train", "sft", "--dry-run", "--out", tmp_path / "x")
    assert "fresh: 0.48 M parameters" in capsys.readouterr().out
