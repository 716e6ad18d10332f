"""Training that is killed goes on, whatever the moment, to the bits of an uninterrupted run; nothing half-written is
ever loaded. A child process is forked off and kills itself at a chosen call; the test resumes what it left."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.train.args import Args
from seedbench.train.sft import SftArgs
from tests.tiny import one_torch_thread

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)


@pytest.fixture(autouse=True, scope="module")
def no_picture() -> Iterator[None]:
    """Drawing curves.png takes half the time of a training this short."""
    from seedbench.train import loop

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "plot", lambda path: None)
        yield


def small(out: Path) -> Args:
    return Args(model="fresh", out=str(out), updates=4, tasks=2, group=2, max_new_tokens=6, max_steps=2,
                save_every=1, mini_batches=2, threads=1)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grpo.run(small(tmp_path_factory.mktemp("whole") / "run"))


def killed(work: Callable[[], object], owner: Any, name: str, call: int, before: bool = True) -> None:
    """Do `work` in a child that sends itself SIGKILL at the `call`-th call of `owner.name`, before it or after."""
    child = os.fork()
    if child == 0:
        real, count = getattr(owner, name), [0]

        def dies(*args: Any, **given: Any) -> Any:
            count[0] += 1
            if count[0] < call:
                return real(*args, **given)
            if not before:
                real(*args, **given)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, dies)
        try:
            work()
        finally:
            os._exit(3)  # never back into pytest
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "the work ended before the kill"


def equal(a: Path, b: Path) -> None:
    from seedbench.train.log import read

    def curve(out: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in x.items() if not k.endswith("seconds")} for x in read(out / "metrics.jsonl")]

    assert curve(a) == curve(b) and curve(a)
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert not list(b.rglob("*.part")) and not (b / "checkpoints" / "final").exists()


def moments() -> dict[str, tuple[Any, str, int, bool]]:
    """Owner, name, which call, before or after it."""
    import safetensors.torch

    from seedbench.policy.hf import HFPolicy
    from seedbench.train import checkpoint, loop

    return {
        "rollout": (HFPolicy, "generate", 6, True),
        "update, between optimizer steps": (torch.optim.AdamW, "step", 6, False),
        "checkpoint, before the optimizer's state": (safetensors.torch, "save_file", 2, True),
        "checkpoint, before it is moved into place": (os, "replace", 4, True),
        "old checkpoint, half removed": (shutil, "rmtree", 4, True),
        "metrics written, no checkpoint of it yet": (checkpoint, "save", 3, True),
        "before the final model": (loop, "plot", 1, True),
        "the final model, half moved": (os, "replace", 8, True),
    }


@pytest.mark.parametrize("moment", moments())
def test_grpo_goes_on_bit_for_bit(whole: Path, tmp_path: Path, moment: str) -> None:
    args = small(tmp_path / "run")
    killed(lambda: grpo.run(args), *moments()[moment])
    assert not (tmp_path / "run" / "model.safetensors").exists()
    grpo.run(args, resume=True)
    equal(whole, tmp_path / "run")


def test_what_is_torn_is_never_loaded(whole: Path, tmp_path: Path) -> None:
    """A folder without state.json, one that was being written, a torn line and a line of an update to come."""
    args, out = small(tmp_path / "run"), tmp_path / "run"
    killed(lambda: grpo.run(args), torch.optim.AdamW, "step", 5)
    torn = out / "checkpoints" / "000003"
    torn.mkdir()
    for broken in (torn, out / "checkpoints" / "000004.part"):
        broken.mkdir(exist_ok=True)
        (broken / "model.safetensors").write_bytes(b"half")
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "success": 1.0}\n{"update": 4, "succ')
    grpo.run(args, resume=True)
    equal(whole, out)


def test_a_damaged_checkpoint_is_named_and_the_one_before_goes_on(whole: Path, tmp_path: Path) -> None:
    from seedbench.core import SeedbenchError

    args, out = small(tmp_path / "run"), tmp_path / "run"
    killed(lambda: grpo.run(args), torch.optim.AdamW, "step", 5)
    newest = max((out / "checkpoints").glob("0*"))
    for name in ("optimizer.safetensors", "model.safetensors", "state.json", "tokenizer.json", "chat_template.jinja"):
        file = newest / name
        good = file.read_bytes()
        file.write_bytes(good.replace(b'"update": ', b'"update": 9') if name == "state.json" else good[:-100])
        named = f"{newest.name} is damaged.*remove it, and --resume takes the one before"
        with pytest.raises(SeedbenchError, match=named):
            grpo.run(args, resume=True)
        file.write_bytes(good)
    state = (newest / "state.json").read_text()
    for old, new in (('"memory": {}', '"memory": {"heat": ["x"]}'), ('"cursor": ', '"cursor": 1e999, "x": ')):
        (newest / "state.json").write_text(state.replace(old, new))
        with pytest.raises(SeedbenchError, match=named):
            grpo.run(args, resume=True)
    shutil.rmtree(newest)
    grpo.run(args, resume=True)
    equal(whole, out)


def test_a_damaged_log_is_named_and_left_as_it_is(whole: Path, tmp_path: Path) -> None:
    from seedbench.core import SeedbenchError

    args, out = small(tmp_path / "run"), tmp_path / "run"
    killed(lambda: grpo.run(args), torch.optim.AdamW, "step", 5)
    good = (out / "metrics.jsonl").read_bytes()
    (out / "metrics.jsonl").write_bytes(b"{" + good)
    with pytest.raises(SeedbenchError, match=r"metrics\.jsonl is damaged after line 0.*move the file away"):
        grpo.run(args, resume=True)
    assert (out / "metrics.jsonl").read_bytes() == b"{" + good
    (out / "metrics.jsonl").write_bytes(good)
    grpo.run(args, resume=True)
    equal(whole, out)


def test_a_finished_run_is_left_as_it_is(whole: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*")}
    grpo.run(small(whole), resume=True)
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*")} == before


def test_sft_goes_on_bit_for_bit_and_without_pickles(tmp_path: Path) -> None:
    """Killed in a step of the second epoch, and between the two halves of a checkpoint."""
    pytest.importorskip("trl", reason="trl is not installed: pip install -e '.[train]'")
    from seedbench.baselines import resuming, sft

    def args(name: str) -> SftArgs:
        return SftArgs(demonstrations=2, updates=9, rows=8, save_every=2, threads=1, out=str(tmp_path / name))

    one = sft.run(args("whole"))
    assert not [p for p in one.rglob("*") if p.suffix in (".pt", ".pth", ".bin", ".pkl")]
    for name, owner, function, call in (
        ("step", torch.optim.AdamW, "step", 8), ("half", resuming, "save_moments", 3),
    ):  # fmt: skip
        killed(lambda name=name: sft.run(args(name)), owner, function, call)  # type: ignore[misc]
        assert not (tmp_path / name / "model.safetensors").exists()
        sft.run(args(name), resume=True)
        equal(one, tmp_path / name)
