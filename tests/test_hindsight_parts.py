"""benchmarks/hindsight.py: its parts are those of the loop, and add up."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.tiny import one_torch_thread

pytest.importorskip("torch")
one_thread = pytest.fixture(autouse=True)(one_torch_thread)
ROOT = Path(__file__).parents[1]


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script puts the repository first
    monkeypatch.chdir(ROOT)
    main = runpy.run_path(str(ROOT / "benchmarks" / "hindsight.py"))["main"]
    found = main(["--tasks", "2", "--group", "2", "--max-steps", "4", "--repeats", "1", "--single", "2"])
    for name in ("SEED", "SSPO"):
        parts = [seconds for part, seconds in found.items() if part.startswith(f"{name}: ")]
        assert len(parts) in (4, 5) and sum(parts) == pytest.approx(found[name])
        assert 0 <= found[f"{name} prefix"] < 1
    assert found["lessons alike"] == 1.0 and found["SEED prefix"] > 0  # a batch changes no lesson
    assert "SEED in all" in capsys.readouterr().out
