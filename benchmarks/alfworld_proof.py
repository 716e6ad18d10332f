"""Prove that embedded ALFWorld games can be won: play a walkthrough of each through an engine.

    python benchmarks/alfworld_proof.py --engine textworld --limit 60    # a sample, kinds and splits in turn
    python benchmarks/alfworld_proof.py --engine fast                    # all of them

A game passes if it is not won at the start, every command of the walkthrough is admissible when it is typed, the last
command wins and none before it does, and the walkthrough fits the set's step limit. The walkthrough is made from the
problem text by code that shares nothing with any engine. `textworld` is the real, unpatched engine (a core-second a
game, in processes that are replaced since it keeps memory); `fast` is our own, through Gymnasium.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from seedbench.envs.alfworld.data import Dataset, open_dataset
from seedbench.envs.alfworld.search import order_places, read_scene, search

Turn = tuple[list[str], bool]  # admissible commands, won


def walkthrough(dataset: Dataset, task_id: str) -> list[str]:
    """The commands that win a game, straight to the thing."""
    scene = read_scene(dataset.source(task_id).problem)
    return search(scene, order_places(scene, "oracle"))


def fault(commands: list[str], first: Turn, step: Callable[[str], Turn], limit: int) -> str:
    """What is wrong with a game, or ""."""
    admissible, won = first
    if won:
        return "won at the start"
    for n, command in enumerate(commands, 1):
        if command not in admissible:
            return f"step {n}: {command!r} is not admissible"
        admissible, won = step(command)
        if won != (n == len(commands)):
            return f"step {n} of {len(commands)}: won is {won}"
    return f"{len(commands)} steps, but the limit is {limit}" if len(commands) > limit else ""


def in_textworld(job: tuple[str, str]) -> tuple[str, str, int]:
    """Play one game in the real engine: (id, fault, steps)."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    from seedbench.envs.alfworld.texts import game_json

    data, task_id = job
    dataset = open_dataset(data)
    commands = walkthrough(dataset, task_id)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.tw-pddl"
        path.write_text(game_json(dataset.source(task_id)), encoding="utf-8")
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        env = textworld.start(str(path), infos, wrappers=[AlfredDemangler])
        state = env.reset()

    def step(command: str) -> Turn:
        state, _, _ = env.step(command)
        return state["admissible_commands"], bool(state["won"])

    return (
        task_id,
        fault(commands, (state["admissible_commands"], bool(state["won"])), step, dataset.default_max_steps),
        len(commands),
    )


def in_fast(jobs: list[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
    """Play games in our engine."""
    import gymnasium

    import seedbench  # noqa: F401  (registers the environments)

    data = jobs[0][0]
    dataset = open_dataset(data)
    env: Any = gymnasium.make("seedbench/ALFWorld-v0", data=data, disable_env_checker=True).unwrapped

    def step(command: str) -> Turn:
        info = env.step(command)[-1]
        return info["admissible"], info["won"]

    for _, task_id in jobs:
        _, info = env.reset(options={"task": task_id})
        commands = walkthrough(dataset, task_id)
        yield (
            task_id,
            fault(commands, (info["admissible"], info["won"]), step, dataset.default_max_steps),
            len(commands),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("fast", "textworld"), default="fast")
    parser.add_argument("--data", default="mini")
    parser.add_argument("--limit", type=int, help="so many games, taken from all splits in turn")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="for textworld")
    options = parser.parse_args()
    if options.engine == "textworld" and not (find_spec("textworld") and find_spec("alfworld")):
        sys.exit("The real ALFWorld engine is not installed; install it with `pip install -e '.[alfworld]'`.")
    splits = [[t.id for t in open_dataset(options.data).tasks(s)] for s in ("train", "dev", "seen", "unseen")]
    ids = [i for together in zip_longest(*splits) for i in together if i]
    jobs = [(options.data, i) for i in ids[: options.limit]]
    if options.engine == "fast":
        return report(in_fast(jobs), len(jobs))
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=40) as pool:
        return report(pool.imap(in_textworld, jobs), len(jobs))


def report(results: Iterator[tuple[str, str, int]], total: int) -> int:
    """Print every fault and a summary; 0 if there is none."""
    bad = steps = 0
    for n, (task_id, wrong, length) in enumerate(results, 1):
        bad, steps = bad + bool(wrong), steps + length
        if wrong:
            print(f"{task_id}: {wrong}")
        if sys.stderr.isatty():
            print(f"\r{n}/{total}", end="", file=sys.stderr)
    print(f"{total - bad} of {total} games won, {steps / total:.1f} steps on average")
    return int(bad > 0)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).resolve().parent))  # where alfworld.py would be taken for the package
    sys.exit(main())
