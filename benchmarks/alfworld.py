"""Speed and memory of the ALFWorld engines, ours beside the real one, in one run.

    python benchmarks/alfworld.py                          # 3 embedded games in the real engines, about a minute
    python benchmarks/alfworld.py --data DIR --games 6     # published games

All engines play the same games with the same random commands. Times are CPU seconds, medians; the real engine runs in
a process of its own, once untouched and once with seedbench's caches. Exit code 0 if every goal of the table is met.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

from seedbench.envs.alfworld.backend import Entry, game_text
from seedbench.envs.alfworld.data import Dataset, GameSource, open_dataset
from seedbench.envs.alfworld.engine import Game, State
from seedbench.envs.alfworld.env import ALFWorldEnv

STEPS = 50
SEQUENCES = 20  # of random commands, for the fast engine; the real ones play the first


class Job(NamedTuple):
    """One game and the commands that are played in it."""

    source: GameSource
    file: str
    kind: str
    sequences: list[list[str]]


def main() -> int:
    sys.path.remove(str(Path(__file__).resolve().parent))  # where this file would be taken for the package alfworld
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=3, help="games that the real engines play")
    parser.add_argument("--data", default="mini")
    parser.add_argument("--split", default="seen")
    parser.add_argument("--engine", help=argparse.SUPPRESS)  # in the process of a real engine
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(time_real(options.engine, json.load(sys.stdin))))
        return 0
    dataset = open_dataset(options.data)
    jobs = [make_job(dataset, task_id) for task_id in spread(dataset, options.split, options.games)]
    ours = time_fast(jobs)
    untouched, cached = in_a_process("plain", jobs), in_a_process("textworld", jobs)
    seconds, size = time_batch(options.data, options.split), kilobytes(options.data, options.split)
    print(
        f"{options.games} games of `{options.data}` in the real engine, {STEPS} random steps each; CPU time, medians.\n"
    )
    return report(ours, untouched, cached, seconds, size)


def spread(dataset: Dataset, split: str, games: int) -> list[str]:
    tasks = dataset.tasks(split)
    return [task.id for task in tasks[:: max(1, len(tasks) // games)][:games]]


def make_job(dataset: Dataset, task_id: str) -> Job:
    task, source = dataset.task(task_id), dataset.source(task_id)
    game = Game(source.problem, source.task)
    sequences = []
    for number in range(SEQUENCES):
        rng, state, commands = random.Random(f"{task_id} {number}"), State(game), []
        for _ in range(STEPS):
            commands.append(rng.choice(state.admissible()))
            state.step(commands[-1])
        sequences.append(commands)
    return Job(source, game_text(Entry(task_id, task.kind, source, dataset)), task.kind, sequences)


Times = tuple[float, float]  # seconds of load and reset, seconds of a step with the admissible list


def time_fast(jobs: list[Job]) -> Times:
    loads, steps = [], []
    for job in jobs:
        for _ in range(5):
            began = time.process_time_ns()
            state = State(Game(job.source.problem, job.source.task))
            state.reset()
            state.admissible()
            loads.append((time.process_time_ns() - began) / 1e9)
        began = time.process_time_ns()
        for commands in job.sequences:
            state.reset()
            for command in commands:
                state.step(command)
                state.admissible()
        steps.append((time.process_time_ns() - began) / 1e9 / (STEPS * len(job.sequences)))
    return statistics.median(loads), statistics.median(steps)


def in_a_process(engine: str, jobs: list[Job]) -> Times:
    given = json.dumps([[job.file, job.kind, job.sequences[0]] for job in jobs])
    command = [sys.executable, __file__, "--engine", engine]
    load, step = json.loads(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)
    return load, step


def time_real(engine: str, jobs: list[list[Any]]) -> Times:
    """The same in the real engine, in this process. The very first load, which imports and warms up, is not counted."""
    from seedbench.envs.alfworld.real.worker import ENGINES

    real, loads, steps = ENGINES[engine](), [], []
    warm = [jobs[0][0].replace(":objects", ":objects ", 1), jobs[0][1], jobs[0][2][:1]]  # a game no cache will know
    for number, (file, kind, commands) in enumerate([warm, *jobs]):
        began = time.process_time()
        real.open(number, file, kind)
        loads.append(time.process_time() - began)
        for command in commands:
            began = time.process_time()
            real.step(number, command)
            steps.append(time.process_time() - began)
        real.drop(number)
    return statistics.median(loads[1:]), statistics.median(steps[1:])


def time_batch(data: str, split: str, games: int = 16, copies: int = 8) -> float:
    """Seconds for 16 games x 8 copies x 50 random steps in our engine, loading included."""
    dataset, rng, best = open_dataset(data), random.Random(0), []
    ids = spread(dataset, split, games)
    sources = {task_id: dataset.source(task_id) for task_id in ids}  # reading and checking files is not the engine
    for _ in range(3):
        began = time.process_time()
        for source in sources.values():
            state = State(Game(source.problem, source.task))
            for _ in range(copies):
                state.reset()
                for _ in range(STEPS):
                    state.step(rng.choice(state.admissible()))
        best.append(time.process_time() - began)
    return statistics.median(best)


def kilobytes(data: str, split: str, environments: int = 1000) -> float:
    """KB that one more environment takes, with a game of 16 under way in each."""
    ids = spread(open_dataset(data), split, 16)

    def begin(number: int) -> ALFWorldEnv:
        env = ALFWorldEnv(data, split=split)
        _, info = env.reset(seed=number, options={"task": ids[number % len(ids)]})
        for _ in range(5):
            *_, info = env.step(info["admissible"][number % len(info["admissible"])])
        return env

    held = [begin(number) for number in range(len(ids))]
    tracemalloc.start()
    held += [begin(number) for number in range(environments)]
    size = tracemalloc.get_traced_memory()[0] / environments / 1e3
    tracemalloc.stop()
    return size


def report(ours: Times, untouched: Times, cached: Times, seconds: float, size: float) -> int:
    names = ("load and reset", "step with admissible list")
    goals = (200, 5000)
    print("| | ours | real, untouched | real, cached | untouched / ours | goal |\n|---|---|---|---|---|---|")
    met = []
    for name, goal, mine, plain, turbo in zip(names, goals, ours, untouched, cached, strict=True):
        ratio = plain / mine
        met.append(ratio >= goal)
        times = " | ".join(f"{1e3 * t:.2g} ms" if t < 1e-3 else f"{1e3 * t:.3g} ms" for t in (mine, plain, turbo))
        print(f"| {name} | {times} | {ratio:,.0f} | {goal:,} |")
    met += [seconds < 0.2, size <= 50]
    print(f"| 16 games x 8 copies x {STEPS} random steps | {seconds:.3f} s | | | | under 0.2 s |")
    print(f"| one more environment | {size:.1f} KB | | | | at most 50 KB |")
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
