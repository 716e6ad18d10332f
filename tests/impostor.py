"""Agents that play one way and record another: their run folders are whole, chained and replay, and are not honest.

What a forger of this kind has is everything but luck: the checkpoint, its tokenizer, this code, the streams. Ids are as
the model's tokenizer encodes the text, and log-probabilities are recomputed, so that they agree.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from seedbench import evaluate
from seedbench.agents.local import LocalAgent
from seedbench.core import Agent, Reply, Sampling, TextEnv, Tokens, View, stream
from seedbench.exam import Config, plan
from seedbench.policy.hf import HFPolicy
from seedbench.rollout import Episode, play

Play = Callable[["Impostor", Sequence[View], Sequence[TextEnv]], Sequence[Reply]]


class Impostor(Agent):
    """Passes `how` off as what `policy` said when sampled as declared."""

    needs_env: ClassVar[bool] = True

    def __init__(self, policy: HFPolicy, how: Play):
        self.policy, self.how = policy, how
        self.local = LocalAgent("model", policy)
        self.state: dict[Any, Any] = {}

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        assert envs is not None
        self.local.sampling = self.sampling
        return self.how(self, views, envs)

    def as_own(self, views: Sequence[View], texts: Sequence[str]) -> list[Reply]:
        """Replies that hold `texts` as if the policy had said them."""
        tokenizer = self.policy.tokenizer
        end = max(self.policy.stop_ids)  # <|im_end|>: what a trained policy ends with
        said = [[*tokenizer.encode(text, add_special_tokens=False), end] for text in texts]
        prompts = [self.policy.encode(view.messages) for view in views]
        logprobs = self.policy.logprobs(prompts, said, temperature=self.sampling.temperature)
        rows = zip(prompts, said, logprobs, strict=True)
        tokens = [Tokens(tuple(p), tuple(ids), tuple(logp)) for p, ids, logp in rows]
        return [Reply(self.policy.decode(t.completion_ids), t, "stop") for t in tokens]

    def say(self, views: Sequence[View], sampling: Sampling, policy: HFPolicy | None = None) -> list[Reply]:
        """Honest samples of a policy under other settings, with the log-probabilities that ours would give them."""
        other = LocalAgent("other", policy or self.policy)
        other.sampling = sampling
        replies = [r for r in other.act(views) if isinstance(r, Reply) and r.tokens]
        assert len(replies) == len(views)
        tokens = [r.tokens for r in replies if r.tokens]
        prompts, said = [t.prompt_ids for t in tokens], [t.completion_ids for t in tokens]
        logprobs = self.policy.logprobs(prompts, said, temperature=self.sampling.temperature)
        new = [replace(t, logprobs=tuple(p)) for t, p in zip(tokens, logprobs, strict=True)]
        return [replace(r, tokens=t) for r, t in zip(replies, new, strict=True)]

    def describe(self) -> dict[str, Any]:
        return self.local.describe()


def honest(me: Impostor, views: Sequence[View], envs: Sequence[TextEnv]) -> list[Reply]:
    """The policy's own replies."""
    return [r for r in me.local.act(views) if isinstance(r, Reply)]


def expert(me: Impostor, views: Sequence[View], envs: Sequence[TextEnv]) -> list[Reply]:
    """The oracle's actions in the place of every reply."""
    return me.as_own(views, [env.PROMPT.reply(env.expert() or "look") for env in envs])


def expert_in_one_of(n: int) -> Play:
    """The oracle's actions in every n-th episode, the policy's own in the others."""

    def how(me: Impostor, views: Sequence[View], envs: Sequence[TextEnv]) -> list[Reply]:
        episodes = me.state.setdefault("order", {})
        numbers = [episodes.setdefault(_name(env), len(episodes)) for env in envs]
        mine, theirs = honest(me, views, envs), expert(me, views, envs)
        return [t if k % n == n - 1 else m for k, m, t in zip(numbers, mine, theirs, strict=True)]

    return how


def _name(env: TextEnv) -> tuple[str, str, int]:
    assert env.playing is not None
    task, trial = env.playing
    return task.split, task.id, trial


def at(temperature: float) -> Play:
    """The policy at another temperature than declared."""
    return lambda me, views, envs: me.say(views, replace(me.sampling, temperature=temperature))


def other_model(policy: HFPolicy) -> Play:
    """Another checkpoint's replies."""
    return lambda me, views, envs: me.say(views, me.sampling, policy)


def best_of(n: int) -> Play:
    """Of n samples of each episode, the one with the highest score (the first of them, where several have it)."""

    def how(me: Impostor, views: Sequence[View], envs: Sequence[TextEnv]) -> list[Reply]:
        chosen = [me.state["best"][_name(env)] for env in envs]
        moved = [v if k == 0 else replace(v, stream=stream(v.stream, k)) for v, k in zip(views, chosen, strict=True)]
        return honest(me, moved, envs)

    how.samples = n  # type: ignore[attr-defined]
    return how


def _try_all(me: Impostor, config: Config, n: int) -> None:
    """Play every episode n times and remember which try won."""
    (exam,) = plan(config)
    me.sampling = exam.sampling
    episodes = list(exam.episodes(config))
    scores: dict[Any, list[tuple[float, int]]] = {}
    for k in range(n):
        me.state["best"] = {(e.task.split, e.task.id, e.trial): k for e in episodes}
        for t in play(exam.make, [Episode(e.task, e.seed, e.trial) for e in episodes], me, prompt=exam.prompt):
            scores.setdefault((t.task.split, t.task.id, t.trial), []).append((t.score, -k))
    me.state["best"] = {name: -max(tries)[1] for name, tries in scores.items()}


def run(policy: HFPolicy, how: Play, config: Config, out: Path) -> Path:
    """A whole run folder of an impostor, needs_env denied."""
    me = Impostor(policy, how)
    if n := getattr(how, "samples", 0):
        _try_all(me, config, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "_agent", lambda config, here, exams: me)
        evaluate.evaluate(config, out)
    for name in ("run.json", "results.json"):
        data = json.loads((out / name).read_text())
        data["agent"]["needs_env"] = False
        (out / name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return out


def set_agent(run: Path, to: Path, **agent: Any) -> Path:
    shutil.copytree(run, to)
    for name in ("results.json", "run.json"):
        told = json.loads((to / name).read_text())
        told["agent"] |= agent
        (to / name).write_text(json.dumps(told))
    return to
