"""play(): the one loop that steps environments. Training, evaluation, SFT data and human play all go through it.

It keeps every slot busy: whenever an episode ends, the next one takes its place, and the agent is asked for one batch
of replies over all episodes that wait for one. What an episode does depends on its task, seed and trial alone, never
on which others share the batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from seedbench.core import (
    Agent,
    Ended,
    InfrastructureError,
    Mode,
    Parsed,
    Reply,
    Step,
    Task,
    TextEnv,
    Tokens,
    Trajectory,
    View,
    stream,
)
from seedbench.prompts import Prompt, prompt_sha

OVERLAP = 16  # calls to remote environments under way at a time
# What ends an episode and not the run: a sys.exit() in somebody's agent, too.
RAISED = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class Episode:
    """One (task, trial) to be played. `seed` is the run's; `env_seed` the episode's own, hashed from all three."""

    task: Task
    seed: int = 0
    trial: int = 0
    hint: str = ""

    @property
    def env_seed(self) -> int:
        return stream(self.seed, self.task.id, self.trial)


def play(
    make_env: Callable[[], TextEnv],
    episodes: Iterable[Episode],
    agent: Agent,
    *,
    slots: int = 64,
    prompt: Prompt | None = None,
    mode: Mode = "strict",
    on_unplayed: Callable[[Episode, InfrastructureError], None] | None = None,
) -> Iterator[Trajectory]:
    """Play every episode once, at most `slots` at a time, and yield each trajectory as it ends.

    An exception of the environment or of the agent ends its episode with ended="error": it stays in the denominator.
    An InfrastructureError leaves the episode unplayed: it goes to `on_unplayed`, and is raised where none is given.
    """
    waiting = deque(episodes)
    running: list[_Running] = []
    spare: list[TextEnv] = []
    pool = ThreadPoolExecutor(min(OVERLAP, slots), "seedbench-play")  # its threads start when first used
    try:
        while waiting or running:
            begun = len(running)
            while waiting and len(running) < slots:
                env = spare.pop() if spare else make_env()
                running.append(_Running(waiting.popleft(), env, prompt or env.PROMPT, mode))
            _each(pool, [(r, r.reset) for r in running[begun:]])
            live = [r for r in running if r.ended is None]
            if live:
                replies = _ask(agent, [r.view for r in live], [r.env for r in live])
                _each(pool, [(r, partial(r.advance, reply)) for r, reply in zip(live, replies, strict=True)])
            ended = [r for r in running if r.ended is not None]
            running = [r for r in running if r.ended is None]
            for r in ended:
                if r.failure is None:
                    spare.append(r.env)
                else:  # an environment that raised may be broken: it is not used again
                    r.env.close()
                if not isinstance(r.failure, InfrastructureError):
                    yield r.trajectory()
                elif on_unplayed is not None:
                    on_unplayed(r.episode, r.failure)
                else:
                    raise r.failure
    finally:
        pool.shutdown()
        for env in (*spare, *(r.env for r in running)):
            env.close()


def _each(pool: ThreadPoolExecutor, calls: Sequence[tuple[_Running, Callable[[], None]]]) -> None:
    """Make every call: one after another, and those to remote environments side by side."""
    waits = [pool.submit(call) for r, call in calls if r.env.remote]
    for r, call in calls:
        if not r.env.remote:
            call()
    for wait in waits:
        wait.result()


def _ask(agent: Agent, views: Sequence[View], envs: Sequence[TextEnv]) -> list[Reply | BaseException]:
    """One batch; if it raises as a whole, each view alone, so that one bad episode does not take the others along."""
    try:
        replies: list[Reply | BaseException] = list(agent.act(views, envs) if agent.needs_env else agent.act(views))
        if len(replies) != len(views):
            return [ValueError(f"the agent gave {len(replies)} replies to {len(views)} views")] * len(views)
        return replies
    except RAISED as error:  # whatever an agent raises is that episode's failure, by contract
        if len(views) == 1 or isinstance(error, InfrastructureError):
            return [error] * len(views)
        return [_ask(agent, [view], [env])[0] for view, env in zip(views, envs, strict=True)]


@dataclass
class _Running:
    """One episode under way in its slot."""

    episode: Episode
    env: TextEnv
    prompt: Prompt
    mode: Mode
    steps: list[Step] = field(default_factory=list)
    history: tuple[tuple[str, str], ...] = ()
    ended: Ended | None = None
    failure: BaseException | None = None
    score: float = 0.0
    success: bool = False
    measures: Mapping[str, float] = field(default_factory=dict)
    view: View = field(init=False)
    sha: str = ""

    def reset(self) -> None:
        self.env.playing = (self.episode.task, self.episode.trial)
        try:
            observation, info = self.env.reset(seed=self.episode.env_seed, options={"task": self.episode.task.id})
            self._see(observation, info["goal"], info["admissible"])
        except RAISED as error:  # any fault of an environment becomes an error episode, by contract
            self._fail(error)

    def _see(self, observation: str, goal: str, admissible: Sequence[str]) -> None:
        turn = stream(self.episode.env_seed, len(self.steps))
        goal, observation = writable(goal), writable(observation)  # a user's own files may hold anything
        view = View(goal, observation, tuple(map(writable, admissible)), self.history, self.episode.hint, turn)
        messages = tuple(self.prompt.render(view))
        self.view = replace(view, messages=messages)
        self.sha = prompt_sha(messages)

    def advance(self, reply: Reply | BaseException) -> None:
        """Parse a reply, step the environment with it and record the turn."""
        if not isinstance(reply, Reply):
            wrong = TypeError(f"the agent gave {type(reply).__name__} in the place of a Reply")
            return self._fail(reply if isinstance(reply, BaseException) else wrong)
        if fault := reply_fault(reply):
            return self._fail(TypeError(f"the agent's reply cannot be used: {fault}"))
        if (text := writable(reply.text)) != reply.text:
            reply = Reply(text, reply.tokens, reply.finish_reason, reply.usage)
        parsed = self.env.parse(text, self.mode)
        if not parsed.format_valid and reply.finish_reason == "length":
            parsed = Parsed(parsed.action, False, f"{parsed.reason} (the reply was cut at the token limit)")
        try:
            observation, reward, terminated, truncated, info = self.env.step(parsed.action)
        except RAISED as error:  # as in reset
            self._record(reply, parsed, 0.0, False, "the environment raised")
            return self._fail(error)
        self._record(reply, parsed, float(reward), info["is_action_valid"], info["invalid_reason"])
        self.history = (*self.history, (self.view.observation, parsed.action))
        if terminated or truncated:
            self.ended = "terminated" if terminated else "truncated"
            self.score, self.success = float(info["score"]), bool(info["won"])
            self.measures = {k: float(v) for k in self.env.MEASURES if isinstance(v := info.get(k), int | float)}
        else:
            try:
                self._see(observation, info["goal"], info["admissible"])
            except RAISED as error:  # an Info that breaks the contract
                self._fail(error)

    def _record(self, reply: Reply, parsed: Parsed, reward: float, valid: bool, why: str) -> None:
        action, format_valid, reason = parsed
        self.steps.append(Step(self.view, reply, action, format_valid, reason, reward, valid, why, self.sha))

    def _fail(self, error: BaseException) -> None:
        self.ended, self.failure = "error", error

    def trajectory(self) -> Trajectory:
        """What the finished episode leaves."""
        assert self.ended is not None
        e, error = self.episode, "" if self.failure is None else _words(self.failure)
        told = (self.score, self.success, self.ended, error, self.measures)
        return Trajectory(e.task, e.env_seed, e.trial, tuple(self.steps), *told)


def reply_fault(reply: Reply) -> str:
    """Why an agent's Reply cannot be parsed and recorded; "" if it can."""
    if not isinstance(reply.text, str) or not isinstance(reply.finish_reason, str):
        return "text and finish_reason must be strings"
    if not isinstance(reply.usage, Mapping) or not all(type(n) is int and n >= 0 for n in reply.usage.values()):
        return "usage must map names to counts"
    if reply.tokens is None:
        return ""
    t = reply.tokens
    if not isinstance(t, Tokens) or len(t.completion_ids) != len(t.logprobs):
        return "tokens need one log-probability for each completion id"
    if {*map(type, t.prompt_ids), *map(type, t.completion_ids)} - {int}:  # a generator took 1 % of a rollout
        return "token ids must be integers"
    return "" if all(math.isfinite(p) for p in t.logprobs) else "a log-probability is not finite"


def writable(text: str) -> str:
    """`text` with lone surrogates, which no file can hold, replaced by question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _words(error: BaseException) -> str:
    try:
        return writable(f"{type(error).__name__}: {error}")
    except Exception:  # an exception of somebody's own may not even be printable
        return type(error).__name__
