"""Two processes, with whole copies of the model or with parts of it (FSDP2, gloo), make the update of one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seedbench.core import SeedbenchError
from tests.tiny import one_sentence, one_torch_thread, tiny_folder
from tests.two_ranks import RESUMED, RUNS, settings, train

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("seedbench.baselines.grpo")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)
ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow  # half a minute on an idle core: three trainings in two processes
def test_two_processes_make_the_updates_of_one(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder = tiny_folder(tmp_path / "model", max_position_embeddings=4096)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = tmp_path / "two"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    script = [str(ROOT / "tests" / "two_ranks.py"), str(folder), str(two)]
    done = subprocess.run([*launch, *script], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    start = load_file(folder / "model.safetensors")
    for name, options in RUNS.items():
        out = train(settings(str(folder), tmp_path / name, **(options | {"shard": False})))
        one, both = load_file(out / "model.safetensors"), load_file(two / name / "model.safetensors")
        assert one.keys() == both.keys() == start.keys()  # a plain folder, however it was trained
        assert max(float((one[k] - start[k]).abs().max()) for k in one) > 1e-4
        # AdamW divides a gradient by its own size, so where it is about 1e-8 (the padding token's) rounding shows.
        apart = torch.cat([(one[k] - both[k]).abs().flatten() for k in one])
        assert float(apart.max()) < 5e-5 and float((apart > 1e-5).float().mean()) < 1e-4 and float(apart.mean()) < 1e-8
        lines = [
            [json.loads(x) for x in (where / "metrics.jsonl").read_text().splitlines()] for where in (out, two / name)
        ]
        for a, b in zip(*lines, strict=True):
            assert a["prompt_digest"] == b["prompt_digest"] and a["resampled"] == b["resampled"]
            assert b["processes"] == 2 and a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
            assert a["loss"] == pytest.approx(b["loss"], abs=1e-5) and a["kl"] == pytest.approx(b["kl"], abs=1e-5)
            assert a.get("weight_mean") == pytest.approx(b.get("weight_mean"), abs=1e-4)
    for name in RESUMED:
        resumed, before = (load_file(two / name / f"{which}.safetensors") for which in ("model", "before"))
        assert all(torch.equal(resumed[k], before[k]) for k in before)
        # ... and in one: the checkpoint holds whole tensors.
        shutil.copytree(two / name, tmp_path / f"{name}-moved")
        (tmp_path / f"{name}-moved" / "model.safetensors").unlink()
        moved = settings(str(folder), tmp_path / f"{name}-moved", **(RUNS[name] | {"shard": False}))
        after = load_file(train(moved, resume=True) / "model.safetensors")
        assert max(float((after[k] - before[k]).abs().max()) for k in before) < 5e-5


@pytest.mark.slow  # a quarter of a minute on an idle core
def test_two_processes_fine_tune_as_one(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from safetensors.torch import load_file

    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, rows, more in (("one", 8, []), ("two", 4, launch)):
        told = f"train sft --model fresh --demonstrations 6 --updates 6 --lr 1e-3 --rows {rows}".split()
        command = [sys.executable, *more, "-m", "seedbench", *told, "--out", str(tmp_path / name)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert max(float((one[k] - two[k]).abs().max()) for k in one) < 3e-5  # after six steps of AdamW


@pytest.mark.parametrize("name, shards", [("ddp", False), ("fsdp2", True)])
def test_accelerate_takes_the_configurations(name: str, shards: bool) -> None:
    """What `accelerate launch` would start: eight processes, and for FSDP the environment that Ranks looks for."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    file = ROOT / "baselines" / "recipes" / "accelerate" / f"{name}.yaml"
    args = launch_command_parser().parse_args(["--config_file", str(file), "-m", "seedbench"])
    args, _, _ = _validate_launch_command(args)
    env = prepare_multi_gpu_env(args)
    assert args.num_processes == 8 and args.multi_gpu is not shards
    assert (env.get("ACCELERATE_USE_FSDP"), env.get("FSDP_VERSION")) == (("true", "2") if shards else (None, None))


def test_fsdp_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench.train.ranks import Ranks

    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "1")
    with pytest.raises(SeedbenchError) as raised:
        Ranks()
    one_sentence(raised, "fsdp_version: 2")
