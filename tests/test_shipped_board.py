"""The board that ships: every entry is played again, and floors and ceiling are on it for every environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym

import seedbench
from seedbench.leaderboard import store

ROOT = Path(seedbench.__file__).resolve().parent.parent


def test_every_entry_verifies_by_replay() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbench", "verify", str(ROOT / "leaderboard" / "leaderboard.json"), "--quiet"],
        capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_floors_and_ceiling_of_every_environment_are_entered() -> None:
    entries = store.read_board(ROOT / "leaderboard" / "leaderboard.json")
    have = {(e.agent.kind, r.env, r.split) for e in entries for r in e.results.results if r.data == "mini"}
    ours = [env_id for env_id, spec in gym.registry.items() if spec.namespace == "seedbench"]
    want = {(a, env, split) for a in ("null", "random", "expert") for env in ours for split in ("seen", "unseen")}
    assert want <= have
