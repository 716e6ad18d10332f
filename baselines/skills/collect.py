"""Episodes to learn skills from: train tasks, the same number of each kind, played several times by any agent.

SEED plays 180 tasks eight times with the base policy at temperature 0.4 (arXiv 2607.14777, stage 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from seedbench.agents import load_agent, public_spec
from seedbench.baselines.lines import Lines
from seedbench.baselines.skills.rows import COLLECTED
from seedbench.baselines.skills.store import begin, key, line_of, settings_of
from seedbench.core import InfrastructureError, SeedbenchError, Task, stream
from seedbench.exam import Config, plan
from seedbench.record import locked
from seedbench.rollout import Episode, play


def balanced(tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """`n` tasks in the order of `tasks`, drawn kind by kind in turn, so that kinds differ by one at most.

    A kind that runs out leaves its turns to the others. Raises SeedbenchError where there are fewer than `n`.
    """
    if n > len(tasks):
        raise SeedbenchError(f"--tasks is {n}, but the train split holds {len(tasks)}: give {len(tasks)} or fewer.")
    by_kind: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        by_kind.setdefault(task.kind, []).append(place)
    drawn = []
    for kind in sorted(by_kind):
        order = np.random.default_rng(stream("skills", seed, kind)).permutation(len(by_kind[kind]))
        drawn.append([by_kind[kind][int(i)] for i in order])
    turns = (place for place in chain.from_iterable(zip_longest(*drawn)) if place is not None)
    return [tasks[place] for place in sorted(place for _, place in zip(range(n), turns, strict=False))]


def resume(out: Path) -> None:
    """Play what is left of a project."""
    settings = settings_of(out)
    run(out, Config(**settings["config"]), settings["tasks"])


def run(out: Path, config: Config, tasks: int) -> None:
    """Play `tasks` train tasks `config.trials` times each into the folder `out`; what is there is kept.

    Raises InfrastructureError at the end where episodes could not be played: the same call plays those.
    """
    exam = plan(config)[0]
    chosen = balanced(exam.tasks["train"], tasks, config.seed)
    agent = load_agent(config.agent, batch=config.batch, device=config.device, dtype=config.dtype,
                       threads=config.threads, chat_template=config.chat_template)  # fmt: skip
    agent.sampling, agent.env = exam.sampling, exam.env_id
    if out.exists() and not out.is_dir():
        raise SeedbenchError(f"--out {out} is a file: name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        begin(out, replace(config, agent=public_spec(config.agent)), tasks)  # no password is written
        lines = Lines(out / "trajectories.jsonl", COLLECTED)
        there = {(row["record"]["task"], row["record"]["trial"]) for row in lines.rows}
        episodes = [Episode(task, config.seed, trial, exam.hint(task))
                    for task in chosen for trial in range(config.trials)]  # fmt: skip
        left = [e for e in episodes if (e.task.id, e.trial) not in there]
        unplayed: list[InfrastructureError] = []
        with Progress(console=Console(stderr=True), disable=agent.interactive) as bar:
            shown = bar.add_task("collect", total=len(episodes), completed=len(episodes) - len(left))
            for t in play(exam.make, left, agent, slots=exam.slots, prompt=exam.prompt, mode=config.parse,
                          on_unplayed=lambda _, error: unplayed.append(error)):  # fmt: skip
                assert key(t) not in there
                lines.append(line_of(t))
                bar.advance(shown)
    wanted = {(e.task.id, e.trial) for e in episodes}
    won = {(r["task"], r["trial"]): r["success"] for r in (row["record"] for row in lines.rows)}
    won = {k: success for k, success in won.items() if k in wanted}
    print(f"{out}: {len(won)} of {len(episodes)} episodes of {len(chosen)} tasks, {sum(won.values())} won")
    if unplayed:
        raise InfrastructureError(
            f"{len(unplayed)} episodes were not played ({unplayed[-1]}): `seedbench skills collect --resume {out}`."
        )
