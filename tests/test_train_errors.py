"""What goes wrong in training gets one sentence, and what was saved before stands."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import InfrastructureError, SeedbenchError
from seedbench.train.args import Args
from seedbench.train.hints import RelativesArgs, SeedArgs, SkillGrpoArgs
from tests.command import run
from tests.tiny import one_sentence, one_torch_thread, tiny_folder

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


def small(out: Path, **more: Any) -> Args:
    given: dict[str, Any] = {"model": "fresh", "updates": 2, "tasks": 2, "group": 2, "max_new_tokens": 6}
    return Args(out=str(out), max_steps=2, save_every=1, threads=1, **(given | more))


def line(out: Path, update: int = 1) -> dict[str, Any]:
    lines = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    return {k: v for k, v in lines[update - 1].items() if not k.endswith("seconds")}


def lots(rows: Any, args: Args) -> list[float]:
    """Advantages that let every row take part in the update."""
    return [1.0 - 2 * (i % 2) for i in range(len(rows))]


def train(args: Args, objective: Any = grpo.objective, resume: bool = False) -> Path:
    from seedbench.train import loop

    return loop.train(args, advantages=lots, objective=objective, resume=resume)


def test_out_of_memory_in_the_update_makes_smaller_passes_of_the_same_update(tmp_path: Path) -> None:
    sizes: list[int] = []

    def cramped(policy: Any, batch: Any, args: Args) -> Any:
        """Runs out of memory for more than three rows, after a backward pass of some of them."""
        sizes.append(len(batch.rows))
        if len(batch.rows) > 3:
            if len(sizes) > 1:
                grpo.objective(policy, batch, args)[0].backward()  # gradients that must not be counted
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return grpo.objective(policy, batch, args)

    plain, tight = train(small(tmp_path / "plain", updates=1)), train(small(tmp_path / "tight", updates=1), cramped)
    assert sizes[0] > 3 and sizes[-1] <= 3 and sizes.count(sizes[0]) == 1
    for name, value in line(plain).items():
        assert line(tight)[name] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value)


def test_out_of_memory_with_one_row_is_said(tmp_path: Path) -> None:
    def never(policy: Any, batch: Any, args: Args) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(InfrastructureError) as error:
        train(small(tmp_path / "run"), never)
    one_sentence(error, "too little memory for the update with one row of", "--dtype bfloat16")


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """No file may grow beyond so many bytes: what a full disk is to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, small_disk: Any) -> None:
    from seedbench.train import checkpoint

    whole = train(small(tmp_path / "whole", updates=3))
    out = tmp_path / "run"

    def full(policy: Any, batch: Any, args: Args) -> Any:
        if len((out / "metrics.jsonl").read_text().splitlines()) == 1:
            small_disk(100_000)
        return grpo.objective(policy, batch, args)

    with pytest.raises(SeedbenchError) as error:
        train(small(out, updates=3), full)
    one_sentence(error, "000002 cannot be written", "stands", "--resume")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    last = checkpoint.latest(out)
    assert last is not None and last.name == "000001" and not list(out.rglob("*.part"))
    train(small(out, updates=3), resume=True)
    assert [line(out, k) for k in (1, 2, 3)] == [line(whole, k) for k in (1, 2, 3)]
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_full_disk_under_the_metrics_gets_a_sentence(
    tmp_path: Path, small_disk: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from seedbench.train import loop

    real = loop.update

    def full(*given: Any, **more: Any) -> Any:
        small_disk(40)
        return real(*given, **more)

    monkeypatch.setattr(loop, "update", full)
    command = ("--model", "fresh", "--tasks", 1, "--group", 1, "--max-steps", 1, "--max-new-tokens", 2)
    run("train", "grpo", *command, "--out", tmp_path / "run", code=1)
    assert "no space left on the disk" in capsys.readouterr().err


class _Faulty:
    """Makes ALFWorld raise at the second step of the episodes that `which` picks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, which: Any):
        from seedbench.envs.alfworld.env import ALFWorldEnv

        real = ALFWorldEnv.step

        def step(env: Any, action: str) -> Any:
            if which(env.playing):
                raise RuntimeError("the world fell apart")
            return real(env, action)

        monkeypatch.setattr(ALFWorldEnv, "step", step)


def test_an_environment_that_raises_is_left_out_of_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.train import loop

    _Faulty(monkeypatch, lambda playing: playing[1] == 1)  # the second of each group's three
    seen: list[list[tuple[int, int]]] = []

    def counted(rows: Any, args: Args) -> list[float]:
        seen.append(sorted({(row.group, row.trajectory) for row in rows}))
        return grpo.advantages(rows, args)

    out = tmp_path / "run"
    loop.train(small(out, updates=1, group=3), advantages=counted, objective=grpo.objective)
    assert seen == [[(0, 0), (0, 2), (1, 3), (1, 5)]]
    assert line(out)["errors"] == 2


def test_a_group_of_errors_alone_is_nothing_and_an_update_of_them_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: set[str] = set()

    def first(playing: Any) -> bool:
        broken.add(playing[0].id) if not broken else None
        return playing[0].id in broken

    _Faulty(monkeypatch, first)
    out = train(small(tmp_path / "some", updates=1))
    assert line(out)["errors"] == 2 and line(out)["grad_norm"] > 0
    _Faulty(monkeypatch, lambda playing: True)
    with pytest.raises(SeedbenchError) as error:
        train(small(tmp_path / "all", updates=1))
    one_sentence(error, "At update 1 all 4 episodes ended in an error", "the world fell apart", "--resume")


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    import transformers

    folder = tiny_folder(tmp_path / "nan", max_position_embeddings=4096)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(folder)
    with pytest.raises(SeedbenchError) as error:
        train(small(tmp_path / "run", model=str(folder), tasks=1, history=0))
    one_sentence(error, "all 2 episodes ended in an error", "logits that are not finite")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def another_tokenizer(folder: Path) -> None:
    from seedbench.policy.fresh import shipped

    (folder / "tokenizer.json").write_bytes((shipped("tokenizer") / "tokenizer.json").read_bytes())


@pytest.mark.parametrize("harm, words", [(no_template, "no chat template"), (another_tokenizer, "different models")])
def test_a_model_folder_that_does_not_fit_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: Any, words: str
) -> None:
    folder = tiny_folder(tmp_path / "model")
    harm(folder)
    for page in ("grpo", "sft"):
        run("train", page, "--model", folder, "--out", tmp_path / "run", code=2)
        assert words in capsys.readouterr().err and nothing_in(tmp_path / "run")


def nothing_in(folder: Path) -> bool:
    """Whether a refused run left nothing behind but the lock that kept others out of its folder."""
    return not folder.exists() or {path.name for path in folder.iterdir()} <= {".lock"}


def test_folders_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*args: object) -> str:
        run("train", *args, code=2)
        return capsys.readouterr().err

    (tmp_path / "file").write_text("x")
    for page in ("grpo", "sft"):
        assert "no folder" in said(page, "--model", tmp_path / "nowhere" / "x" / "y", "--out", tmp_path / "a")
        assert "is, or lies under, a file" in said(page, "--model", "fresh", "--out", tmp_path / "file" / "run")
        assert "holds no train.json" in said(page, "--resume", tmp_path)
    assert nothing_in(tmp_path / "a")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "train.json").write_text("[1")
    assert "cannot be read" in said("grpo", "--resume", tmp_path / "old")
    (tmp_path / "old" / "train.json").write_text(Args(out="old").dumps())
    assert "is a run of grpo: go on with `seedbench train grpo --resume" in said("sft", "--resume", tmp_path / "old")
    assert "holds a run already" in said("sft", "--model", "fresh", "--out", tmp_path / "old")
    for args in (SkillGrpoArgs(), SeedArgs(), RelativesArgs()):
        (tmp_path / "old" / "train.json").write_text(args.dumps())
        assert f"is a run of {args.page}: go on with" in said("grpo", "--resume", tmp_path / "old")
        assert args.load(tmp_path / "old" / "train.json") == args
