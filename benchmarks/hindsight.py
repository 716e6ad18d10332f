"""What SEED and SSPO add to an update of GRPO, part by part, and what batching and prefix reuse save.

    python benchmarks/hindsight.py                                        # about three minutes of one core
    python benchmarks/hindsight.py --env searchqa --model tiny --max-new-tokens 64

CPU seconds (time.process_time) of one torch thread, medians of --repeats. One batch of episodes is played, and every
part is timed on it, with the same weights and the functions that the training loop calls:

play, update         GRPO: the episodes; forward and backward passes over the rows with an advantage
lessons              SEED: the policy analyses all episodes
prompts, scoring     the teacher's prompts, with lesson or evidence in the slot, and one pass without gradient: for SEED
                     over every row with a lesson, for SSPO over failed rows with an advantage
longer update        SEED teaches rows of groups without spread too, where GRPO has no gradient
exchange of weights  SSPO: a copy of the policy to and fro

A lesson stands behind the task line, so teacher and student begin alike up to there: the share that is printed bounds
what reading that beginning once could save; the code reads every prompt whole.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not this folder, whose alfworld.py hides the package

import torch  # noqa: E402

from seedbench.baselines import grpo, seed, sspo  # noqa: E402
from seedbench.baselines.anchors.fair import of_task  # noqa: E402
from seedbench.baselines.player import Player  # noqa: E402
from seedbench.baselines.skills.hindsight import analyse  # noqa: E402
from seedbench.policy.fit import fit  # noqa: E402
from seedbench.rollout import Episode  # noqa: E402
from seedbench.train.args import Args  # noqa: E402
from seedbench.train.hints import SeedArgs, SspoArgs  # noqa: E402
from seedbench.train.rows import Row, batch_of, passes, rows_of  # noqa: E402
from seedbench.train.teacher import Teacher  # noqa: E402

Ids = tuple[int, ...]


def cpu(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median CPU seconds of a call, and what the last one returned."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        found = work()
        times.append(time.process_time() - started)
    return statistics.median(times), found


def common(first: Ids, second: Ids) -> int:
    """Tokens that both begin with."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


class Bench:
    """One batch of episodes, its rows with GRPO's advantages, and the seconds of every part by name."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.found = options, dict[str, float]()
        same = ("env", "model", "max_new_tokens", "tasks", "group", "max_steps", "seed")
        self.given: dict[str, Any] = {name: getattr(options, name) for name in same}
        self.given["threads"] = 1
        self.args = SeedArgs(lambda_opd=0.1, analysis_tokens=options.analysis, **self.given)
        self.player = Player(self.args)

    def time(self, name: str, work: Callable[[], Any], told: str = "") -> Any:
        """Run and show a part; returns what it does."""
        self.found[name], result = cpu(work, self.options.repeats)
        self.show(name, self.found[name], told)
        return result

    def show(self, name: str, seconds: float, told: str = "") -> None:
        whole = self.found["play"] + self.found.get("update", 0.0)
        share = f"{seconds / whole:7.1%}" if "update" in self.found else " " * 7
        print(f"  {name:30} {seconds:8.2f} CPU-s {share}  {told}", flush=True)

    def grpo(self) -> None:
        args = self.args
        tasks = self.player.draw(args.tasks, "benchmark", args.seed)
        episodes = [Episode(task, args.seed, k) for task in tasks for k in range(args.group)]
        self.played = self.time("play", lambda: self.player.play(episodes))
        groups = [g for g in range(args.tasks) for _ in range(args.group)]
        self.rows = rows_of(self.played, groups, args.reward, args.reward_scale)
        for row, value in zip(self.rows, grpo.advantages(self.rows, args), strict=True):
            row.advantage = value
        self.busy = sum(bool(row.advantage) for row in self.rows)
        told = f"{self.busy} of {len(self.rows)} rows have an advantage"
        self.time("update", lambda: self.update(grpo.objective, Args(**self.given)), told)

    def update(self, objective: Callable[..., Any], args: Args) -> None:
        """Forward and backward passes as an update makes them, without the optimizer's step."""
        rows, model = self.rows, self.player.policy.model
        busy = [row for row in rows if row.advantage or (row.logp_teacher and args.teaches)]
        total = sum(len(row.completion_ids) for row in rows)
        taught = sum(len(row.completion_ids) for row in rows if row.logp_teacher)
        for some in passes(busy, args.token_budget):
            loss, _ = objective(self.player.policy, batch_of(some, total, taught, model.device), args)
            loss.backward()
        model.zero_grad()

    def longer(self, name: str, objective: Callable[..., Any], args: Args, told: str) -> None:
        """What the update takes beyond GRPO's."""
        seconds, _ = cpu(lambda: self.update(objective, args), self.options.repeats)
        self.found[name] = seconds - self.found["update"]
        self.show(name, self.found[name], told)

    def teach(self, name: str, rows: list[Row], hints: Sequence[str]) -> list[Ids]:
        """Build the teacher's prompts, as seedbench/train/scoring.py does, and score what was sampled after them."""
        policy, prompt = self.player.policy, self.player.exam.prompt
        views = [dataclasses.replace(row.view, hint=hint, messages=()) for row, hint in zip(rows, hints, strict=True)]

        def build() -> list[Ids]:
            pairs = zip(rows, views, strict=True)
            return [fit(policy, prompt, view, None, len(row.completion_ids))[0] for row, view in pairs]

        prompts: list[Ids] = self.time(f"{name}: prompts", build, f"{len(rows)} rows")
        done = [row.completion_ids for row in rows]
        for row, values in zip(
            rows, self.time(f"{name}: scoring", lambda: policy.logprobs(prompts, done)), strict=True
        ):
            row.logp_teacher = values
        return prompts

    def total(self, name: str) -> None:
        self.found[name] = sum(v for k, v in self.found.items() if k.startswith(f"{name}: "))
        self.show(f"{name} in all", self.found[name])

    def seed(self) -> None:
        few, most, policy = self.options.single, self.options.analysis, self.player.policy
        skills, cost = self.time("SEED: lessons", lambda: analyse(policy, self.played, most))
        has = [row for row in self.rows if skills[row.trajectory]]
        if not has:
            sys.exit("error: the policy wrote no lesson that can be read: take --model baselines/tiny/stage1/alfworld.")
        prompts = self.teach("SEED", has, [skills[row.trajectory] for row in has])
        self.longer("SEED: longer update", seed.objective, self.args, f"{len(self.rows)} rows")
        self.total("SEED")
        self.prefix("SEED", has, prompts)
        print(f"  lessons of {cost['analyzer_tokens'] / len(self.played):.0f} tokens after prompts of "
              f"{cost['analyzer_prompt_tokens'] / len(self.played):.0f}")  # fmt: skip
        alone, lone = cpu(lambda: [analyse(policy, [t], most)[0][0] for t in self.played[:few]], 1)
        self.faster("lessons", alone / len(lone), self.found["SEED: lessons"] / len(self.played))
        self.found["lessons alike"] = sum(a == b for a, b in zip(lone, skills, strict=False)) / len(lone)
        some = list(range(0, len(has), max(1, len(has) // (16 * few))))  # of early and late steps, short and long
        asked, done = [prompts[i] for i in some], [has[i].completion_ids for i in some]
        together, _ = cpu(lambda: policy.logprobs(asked, done), self.options.repeats)
        alone, _ = cpu(lambda: [policy.logprobs([p], [c]) for p, c in zip(asked, done, strict=True)], 1)
        self.faster("scoring", alone, together)

    def sspo(self) -> None:
        args, env = SspoArgs(**self.given), self.player.exam.make()
        for row in self.rows:
            row.logp_teacher = ()

        def evidence() -> list[str]:
            return [sspo.privileged(of_task(env, t.task), env.outcome(t), args) for t in self.played]

        def exchange() -> None:
            teacher.refresh(0)
            with teacher.speaks():
                pass

        hints = self.time("SSPO: evidence", evidence)
        failed = [row for row in self.rows if row.advantage and not row.correct]
        prompts = self.teach("SSPO", failed, [hints[row.trajectory] for row in failed])
        teacher = Teacher(dict(self.player.policy.model.named_parameters()), 50)
        self.time("SSPO: exchange of weights", exchange)
        self.longer("SSPO: weights of steps", sspo.objective, args, "a difference of two updates, and as noisy")
        self.total("SSPO")
        self.prefix("SSPO", failed, prompts)

    def prefix(self, name: str, rows: Sequence[Row], prompts: Sequence[Ids]) -> None:
        same = sum(common(row.prompt_ids, ids) for row, ids in zip(rows, prompts, strict=True))
        self.found[f"{name} prefix"] = same / max(1, sum(map(len, prompts)))
        print(f"  {self.found[f'{name} prefix']:.1%} of the teacher's prompt tokens begin the student's prompt, too")

    def faster(self, name: str, alone: float, together: float) -> None:
        self.found[f"{name} together"] = alone / together
        print(f"  {name} all together: {alone / together:.2f} times as fast as one at a time")


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--env", default="alfworld")
    p.add_argument("--model", default="baselines/tiny/stage1/alfworld", help="tiny, fresh or a folder")
    p.add_argument("--tasks", type=int, default=8)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--max-new-tokens", type=int, default=32, help="most tokens of a reply")
    p.add_argument("--analysis", type=int, default=96, help="most tokens of a lesson")
    p.add_argument("--max-steps", type=int, default=None)
    p.add_argument("--single", type=int, default=8, help="episodes whose lessons are also written one at a time")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--seed", type=int, default=0)
    options = p.parse_args(argv)
    torch.set_num_threads(1)
    bench = Bench(options)
    print(f"{options.env}, {options.model}; shares are of what GRPO takes")
    bench.grpo()
    bench.seed()
    bench.sspo()
    return bench.found


if __name__ == "__main__":
    main()
