"""Runs to verify, and forgeries of them: each as good as its forger can make it without playing.

`forge(run, name)` edits a copy of a run folder: a function changes lines and results, then hashes are chained anew
and, unless the forgery is about figures, every figure is computed again from the lines. So a forgery is found only by
the level that is meant to find it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seedbench import record
from seedbench.core import Agent, Reply, TextEnv, View, stream
from seedbench.exam import make_env
from seedbench.results import Results
from seedbench.summarize import EpisodeSummary, summarize

Line = dict[str, Any]
ALFWORLD, WEBSHOP, SEARCHQA = "seedbench/ALFWorld-v0", "seedbench/WebShop-v0", "seedbench/SearchQA-v0"


class Half(Agent):
    """The expert on about half of the tasks; elsewhere random, with a reply that cannot be parsed now and then."""

    name = "half"
    needs_env: ClassVar[bool] = True

    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> list[Reply | Exception]:
        return [self._reply(view, env) for view, env in zip(views, envs or (), strict=True)]

    def _reply(self, view: View, env: TextEnv) -> Reply | Exception:
        import numpy as np

        assert env.playing is not None
        draw = stream("half", env.playing[0].id, env.playing[1])
        if draw % 11 == 0 and len(view.history) == 2:
            return RuntimeError("a fault of the agent")
        if len(view.history) == 1:
            return Reply("<think>hm</think>no action at all")
        action = env.expert() if draw % 2 else env.sample(np.random.default_rng(view.stream))
        return Reply(f"<think>now</think>{env.PROMPT.reply(action or 'look')}")


@dataclass
class Copy:
    """A run folder opened for forging."""

    folder: Path
    lines: list[Line]
    results: dict[str, Any]
    run: dict[str, Any]

    @classmethod
    def of(cls, folder: Path) -> Copy:
        lines = list(record.read_lines(folder / "trajectories.jsonl.gz"))
        results, run = (json.loads((folder / n).read_text()) for n in ("results.json", "run.json"))
        return cls(folder, lines, results, run)

    def find(self, env: str = ALFWORLD, least: int = 4, **has: Any) -> Line:
        """The first line of an environment with those values and that many steps."""
        return next(
            line
            for line in self.lines
            if line["env"] == env and len(line["steps"]) >= least and all(line[k] == v for k, v in has.items())
        )

    def figures(self) -> None:
        """Every figure, from the lines as they are now."""
        for row in self.results["results"]:
            kinds = kinds_of(row["env"], row["split"])
            ours = [line for line in self.lines if (line["env"], line["split"]) == (row["env"], row["split"])]
            tasks = list(dict.fromkeys(line["task"] for line in ours))
            episodes = [
                EpisodeSummary(
                    *(line["task"], kinds[line["task"]], line["trial"], line["score"], line["success"], line["ended"]),
                    len(line["steps"]),
                    sum(not s["format_valid"] for s in line["steps"]),
                    measures=line.get("measures", {}),
                )
                for line in ours
            ]
            made = summarize(
                *(row["env"], row["split"], row["data"], [(t, kinds[t]) for t in tasks], episodes),
                trials=self.results["protocol"]["trials"],
                max_steps=self.results["protocol"]["environments"][row["env"]]["max_steps"],
                partial=row["partial"],
                pinned=row["pinned"],
            )
            row.update({**made.model_dump(mode="json"), "tokens": row["tokens"]})

    def save(self) -> None:
        bare = [{k: v for k, v in line.items() if k not in ("prev", "hash")} for line in self.lines]
        self.results["chain_head"] = record.write_chained(self.folder / "trajectories.jsonl.gz", bare)
        self.run["protocol"] = self.results["protocol"]
        (self.folder / "run.json").write_text(json.dumps(self.run))
        (self.folder / "results.json").write_text(Results.model_validate(self.results).dumps())


def kinds_of(env: str, split: str) -> dict[str, str]:
    return {t.id: t.kind for t in make_env(env).tasks(split)}


@dataclass(frozen=True)
class Forgery:
    """What to change, the level that must see it, and words that its finding must hold."""

    level: str
    words: str
    change: Callable[[Copy], None]
    figures: bool = True


FORGERIES: dict[str, Forgery] = {}


def forgery(level: str, words: str, figures: bool = True) -> Callable[[Callable[[Copy], None]], Callable[[Copy], None]]:
    """Register a change."""

    def add(change: Callable[[Copy], None]) -> Callable[[Copy], None]:
        FORGERIES[change.__name__] = Forgery(level, words, change, figures)
        return change

    return add


def forge(folder: Path, name: str) -> None:
    """Do to a run folder what a forgery does."""
    it, copy = FORGERIES[name], Copy.of(folder)
    it.change(copy)
    if it.figures:
        copy.figures()
    copy.save()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- seen by form


@forgery("form", "there is no episode of", figures=False)
def dropped_failure(c: Copy) -> None:
    c.lines.remove(c.find(success=False))


@forgery("form", "this episode is there twice", figures=False)
def duplicated_success(c: Copy) -> None:
    failure = c.find(success=False)
    c.lines[c.lines.index(failure)] = dict(c.find(success=True))


@forgery("form", "this episode is there twice", figures=False)
def one_more_success(c: Copy) -> None:
    c.lines.append(dict(c.lines[-1]))


@forgery("form", "its seed is")
def swapped_episodes(c: Copy) -> None:
    """A task's success under the name of a task that failed."""
    a, b = c.find(success=True, trial=0), c.find(success=False, trial=0, ended="truncated")
    a["task"], b["task"] = b["task"], a["task"]
    i, j = c.lines.index(a), c.lines.index(b)
    c.lines[i], c.lines[j] = b, a


@forgery("form", "out of order", figures=False)
def swapped_task_ids(c: Copy) -> None:
    a, b = c.find(success=True, trial=0), c.find(success=False, trial=0)
    a["task"], b["task"] = b["task"], a["task"]


@forgery("form", "out of order")
def reordered_lines(c: Copy) -> None:
    c.lines[0], c.lines[1] = c.lines[1], c.lines[0]


@forgery("form", "success.mean", figures=False)
def flipped_flag_alone(c: Copy) -> None:
    c.find(success=False, ended="truncated").update(success=True, score=1.0)


@forgery("form", "success.mean: says 0.99", figures=False)
def hand_typed_aggregate(c: Copy) -> None:
    c.results["results"][0]["success"].update(mean=0.99, ci=[0.9, 1.0])


@forgery("form", "by_kind", figures=False)
def hand_typed_kind(c: Copy) -> None:
    kinds = c.results["results"][0]["by_kind"]
    next(iter(kinds.values())).update(mean=0.123)


@forgery("form", "above pass^1", figures=False)
def rising_pass_k(c: Copy) -> None:
    c.results["results"][0]["pass_k"]["2"]["pass_hat"] = 1.0
    c.results["results"][0]["pass_k"]["1"]["pass_hat"] = 0.5


@forgery("form", "no such episode was to be played", figures=False)
def another_splits_tasks(c: Copy) -> None:
    """Tasks of dev, under the name of seen."""
    dev = [t.id for t in make_env(ALFWORLD).tasks("dev")]
    ours = [line for line in c.lines if (line["env"], line["split"]) == (ALFWORLD, "seen")]
    for i, line in enumerate(ours):
        line["task"] = dev[i // 2]


@forgery("form", "digest: says")
def edited_env_digest(c: Copy) -> None:
    c.results["protocol"]["environments"][ALFWORLD]["digest"] = sha("another environment")


@forgery("form", "prompt_digest: says")
def edited_prompt_digest(c: Copy) -> None:
    c.results["protocol"]["environments"][WEBSHOP]["prompt_digest"] = sha("another prompt")


@forgery("form", "digest: says")
def a_longer_limit(c: Copy) -> None:
    """More steps than the protocol had, stated as if it had them; the environment's digest is of its limit."""
    c.results["protocol"]["environments"][ALFWORLD]["max_steps"] = 30


@forgery("form", "its seed is")
def wrong_seed(c: Copy) -> None:
    c.find()["seed"] += 1


@forgery("form", "some are missing")
def shortened_episode(c: Copy) -> None:
    del c.find(ended="truncated")["steps"][3:]


@forgery("form", "partial: says False")
def called_whole(c: Copy) -> None:
    c.results["results"][0]["partial"] = False


@forgery("form", "there is no episode of")
def limit_denied(c: Copy) -> None:
    c.results["protocol"]["limit"] = None
    for row in c.results["results"]:
        row["partial"] = False


@forgery("form", "ended in an error and claims success", figures=False)
def a_won_error(c: Copy) -> None:
    next(line for line in c.lines if line["ended"] == "error").update(success=True, score=1.0)


@forgery("form", "ended in an error and claims {'f1': 1.0}", figures=False)
def a_measured_error(c: Copy) -> None:
    next(line for line in c.lines if line["ended"] == "error")["measures"] = {"f1": 1.0}


@forgery("form", "agent: is 1,")
def an_endless_agent(c: Copy) -> None:
    c.results["agent"]["note"] = c.run["agent"]["note"] = "A" * 1_000_000


@forgery("form", "its seed is")
def a_seed_that_no_float_holds(c: Copy) -> None:
    c.results["protocol"]["seed"] = 10**400 - 1


@forgery("form", "pinned: says False")
def called_unpinned(c: Copy) -> None:
    c.results["results"][0]["pinned"] = False


# -- seen by parse


@forgery("parse", "its text is read as")
def edited_text(c: Copy) -> None:
    step = c.find()["steps"][2]
    step["text"] = step["text"].replace(step["action"], "inventory")


@forgery("parse", "its text is read as")
def edited_action(c: Copy) -> None:
    c.find()["steps"][2]["action"] = "inventory"


@forgery("parse", "its text is read as")
def valid_format_claimed(c: Copy) -> None:
    c.find()["steps"][1]["format_valid"] = True


# -- seen by replay


@forgery("replay", "the observation is stored as")
def edited_action_and_text(c: Copy) -> None:
    step = c.find(success=True)["steps"][2]
    step["text"], step["action"] = step["text"].replace(step["action"], "inventory"), "inventory"


@forgery("replay", "the environment ended the episode")
def lost_on_purpose(c: Copy) -> None:
    """A win, drawn out to the limit and called a loss."""
    line = c.find(success=True)
    line.update(success=False, score=0.0, ended="truncated")
    limit = c.results["protocol"]["environments"][ALFWORLD]["max_steps"]
    line["steps"] += [dict(line["steps"][-1]) for _ in range(limit - len(line["steps"]))]


@forgery("replay", "the outcome is stored as success True")
def flipped_flag_with_figures(c: Copy) -> None:
    c.find(success=False, ended="truncated").update(success=True, score=1.0)


@forgery("replay", "the outcome is stored as success False, score 0.9")
def raised_score(c: Copy) -> None:
    c.find(WEBSHOP, 1, success=False)["score"] = 0.9


@forgery("replay", "the agent saw another prompt")
def hint_in_a_prompt(c: Copy) -> None:
    c.find()["steps"][3]["prompt_sha"] = sha("the plan: look")


@forgery("replay", "the reward is stored as")
def edited_reward(c: Copy) -> None:
    c.find(success=False)["steps"][2]["reward"] = 0.5


@forgery("replay", "the observation is stored as")
def edited_observation(c: Copy) -> None:
    c.find()["steps"][3]["observation"] += " You win."


@forgery("replay", "the environment goes on")
def shortened_and_called_ended(c: Copy) -> None:
    line = c.find(ended="truncated")
    del line["steps"][3:]
    line["ended"] = "terminated"


@forgery("replay", "the environment ended it as 'truncated'")
def failure_called_an_error(c: Copy) -> None:
    c.find(ended="truncated").update(ended="error", error="RuntimeError: the server was gone")


@forgery("replay", "the observation is stored as")
def swapped_episodes_with_seeds(c: Copy) -> None:
    swapped_episodes(c)
    for line in c.lines:
        line["seed"] = stream(c.results["protocol"]["seed"], line["task"], line["trial"])


@forgery("replay", "the agent saw another prompt")
def lesson_denied(c: Copy) -> None:
    """The run was played without a lesson; the other way round looks the same."""
    c.results["protocol"]["skill"] = "Open what is closed."


def repack(folder: Path, raw: bytes) -> None:
    """Put any bytes into trajectories.jsonl.gz."""
    (folder / "trajectories.jsonl.gz").write_bytes(gzip.compress(raw))
