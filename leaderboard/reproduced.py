"""Level 5, reproduced: does the agent win as often again, on tasks and random streams chosen after the submission?

Everything is drawn from sha256(chain head, beacon): the head fixes the submission, and the beacon is public text from
after it (a block hash, a lottery draw), so that neither side can choose. The agent is loaded by the verifier's word
alone: a scripted agent of ours by name, a checkpoint by --model or by the run's hub id and only if its digests are
those recorded, an endpoint by --model openai:MODEL@URL. No path, address or module of a run is ever followed.

A claimed rate is itself an estimate from n tasks, so two tests are made: the exact binomial test of the new count
against the claimed rate as if that were known, and Fisher's exact test of both counts as two samples. Binomial alone
would call a claim of 134 in 134 refuted by the first loss; a finding therefore needs both below 1 %, after Holm's
adjustment over the rows of the result. Trials of one task are alike, so that tasks are counted, not episodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seedbench.core import Agent, SeedbenchError, Task, stream
from seedbench.exam import Exam
from seedbench.leaderboard.audit import OPEN, load, wrong_model
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.findings import Finding, Options
from seedbench.leaderboard.recorded import longest_prompt
from seedbench.leaderboard.run import TRAJECTORIES, Run
from seedbench.leaderboard.scripted import is_scripted
from seedbench.results import Result
from seedbench.rollout import Episode, play
from seedbench.stats import holm

LEVEL = 0.01
_SLOTS = 64


@dataclass(frozen=True)
class Outcome:
    """One row of a result, claimed and played again."""

    env: str
    split: str
    won: int  # of `played` tasks, now
    played: int
    claimed: int  # of `tasks`, by the result
    tasks: int

    def p_values(self) -> tuple[float, float]:
        """Two-sided exact p-values: binomial against the claimed rate, and Fisher's of the two samples."""
        try:
            from scipy.stats import binomtest, fisher_exact
        except ImportError as error:
            raise SeedbenchError(
                f"the level reproduced needs scipy ({error}); install it with `pip install -e '.[verify]'`."
            ) from error
        table = [[self.won, self.played - self.won], [self.claimed, self.tasks - self.claimed]]
        against = binomtest(self.won, self.played, self.claimed / self.tasks).pvalue
        return float(against), float(fisher_exact(table).pvalue)

    def __str__(self) -> str:
        binomial, fisher = self.p_values()
        now = f"{self.won} of {self.played} tasks won ({self.won / self.played:.1%})"
        then = f"claimed {self.claimed} of {self.tasks} ({self.claimed / self.tasks:.1%})"
        return f"{now}, {then}; exact binomial p {binomial:.3g}, two-sample p {fisher:.3g}"


def check_reproduced(run: Run, options: Options) -> list[Finding]:
    """Where the agent does not win as often as claimed. Raises SeedbenchError where the verifier must say more."""
    try:
        if not options.beacon:
            raise SeedbenchError(
                "--beacon is missing: give public words from after the submission, such as a block hash of today."
            )
        agent = agent_of(run, options)
        if not isinstance(agent, Agent):
            return agent
        outcomes = reproduce(run, agent, options.beacon, options.tasks, progress=not options.quiet)
    except Unreadable as error:
        return [Finding("reproduced", TRAJECTORIES, str(error))]
    if not options.quiet:
        for o in outcomes:
            print(f"reproduced: {o.env} {o.split}: {o}")
    return judge(outcomes)


def judge(outcomes: Sequence[Outcome]) -> list[Finding]:
    """The rows in which both tests, adjusted for the number of rows, fall below LEVEL."""
    both = [max(o.p_values()) for o in outcomes]
    return [
        Finding("reproduced", f"{o.env} {o.split}", f"{o}; adjusted for {len(outcomes)} rows {p:.2g}.")
        for o, p in zip(outcomes, holm(both), strict=True)
        if p < LEVEL
    ]


def agent_of(run: Run, options: Options) -> Agent | list[Finding]:
    """The agent that made the run, as far as the verifier can have it; or why it cannot be had."""
    from seedbench.agents import load_agent
    from seedbench.agents.local import Each, LocalAgent

    told = run.results.agent
    kind = told.get("kind")
    if is_scripted(run):
        return load_agent(str(kind))
    if kind in OPEN:
        policies, longest = load(run, options), longest_prompt(run)
        return wrong_model(run, policies, "reproduced") or Each(
            {e: LocalAgent("model", p, max_prompt_tokens=longest) for e, p in policies.items()}
        )
    if kind == "api":
        if options.model is None or not options.model.startswith("openai:"):
            return _impossible(run, "its model lies behind an endpoint; name yours with --model openai:MODEL@URL.")
        agent: Any = load_agent(options.model)
        if agent.model == told.get("model"):
            return agent
        return [
            Finding("reproduced", "agent.model", f"the run says {told.get('model')!r:.80}, not {agent.model!r:.80}.")
        ]
    return _impossible(run, f"an agent of kind {kind!r:.40} would run code that came with the submission, or a person.")


def _impossible(run: Run, why: str) -> list[Finding]:
    return [Finding("reproduced", run.stated, f"the agent cannot be played again: {why}")]


def draw(head: str, beacon: str, tasks: Sequence[Task], count: int) -> tuple[int, list[Task]]:
    """The seed of the new run and `count` of the tasks (all, where there are fewer), from chain head and beacon."""
    digest = hashlib.sha256((head + beacon).encode("utf-8", "surrogatepass")).hexdigest()
    ranked = sorted(tasks, key=lambda task: (stream(digest, task.env, task.split, task.id), task.id))
    return stream(digest), ranked[:count]


def reproduce(run: Run, agent: Agent, beacon: str, count: int, progress: bool = False) -> list[Outcome]:
    """Play `count` tasks of every row of the result again. An InfrastructureError ends it: nothing is judged then."""
    from rich.console import Console
    from rich.progress import Progress

    exams = {exam.env_id: exam for exam in run.exams}
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        return [_row(run, r, exams[r.env], agent, beacon, count, bar) for r in run.results.results]


def _row(run: Run, r: Result, exam: Exam, agent: Agent, beacon: str, count: int, bar: Any) -> Outcome:
    if not r.tasks:
        raise Unreadable(f"{r.env} {r.split} claims a rate over no task.")
    seed, tasks = draw(run.results.chain_head, beacon, exam.tasks[r.split], count)
    agent.sampling, agent.prompt, agent.env = exam.sampling, exam.prompt, exam.env_id
    episodes = [Episode(task, seed, 0, exam.hint(task)) for task in tasks]
    shown = bar.add_task(f"{r.env} {r.split}", total=len(episodes))
    won = 0
    for t in play(exam.make, episodes, agent, slots=_SLOTS, prompt=exam.prompt, mode=run.mode):
        won += t.success
        bar.advance(shown)
    return Outcome(r.env, r.split, won, len(episodes), round(r.success.mean * r.tasks), r.tasks)
