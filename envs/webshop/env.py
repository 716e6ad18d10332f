"""`seedbench/WebShop-v0`: buy what the instruction asks for. An action is `search[words]` or `click[name]`."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from seedbench.core import (
    Anchor,
    EpisodeOver,
    Info,
    Lesson,
    Mode,
    Parsed,
    Preset,
    SeedbenchError,
    Task,
    TextEnv,
    Trajectory,
    stream,
)
from seedbench.envs.webshop import facts, oracle
from seedbench.envs.webshop.data import Dataset, open_dataset
from seedbench.envs.webshop.goals import Goal
from seedbench.envs.webshop.lessons import Played, learn
from seedbench.envs.webshop.nouns import Tagger, open_tagger
from seedbench.envs.webshop.pages import Page, act, clickables, executable, refusal
from seedbench.envs.webshop.rendering import RENDERINGS, Session
from seedbench.envs.webshop.reward import RULES, RewardParts, explain_reward
from seedbench.prompts import Prompt, parse_tagged, sha256_json

VERSION = 1  # raise it when any output changes

WEBSHOP_PROMPT = Prompt(
    name="webshop-v1",
    system=(
        "You shop in a web store. Find a product that fits the task, open it, choose the options that the task names "
        "and buy it. Each turn, give one action as <action>...</action>: search[words] where there is a search box, or "
        "click[name] with a name from the list. You may think first inside <think>...</think>."
    ),
    history=2,
)


class WebShopInfo(Info):
    """Info with the task's id and, once something was bought, every part of the score (RewardParts); {} before."""

    task: str
    reward_parts: dict[str, Any]


class WebShopEnv(TextEnv):
    """One instruction an episode, which ends with a purchase; reward and score are those of the purchase.

    `data` is "mini" or a folder with the original's files; `goals` says which of a folder's goals (auto, synthetic,
    human); `split` is what `reset` without options draws from; `observation` is text, text_rich, html, url or json;
    `reward` is webshop or strict; `tagger` is auto, precomputed, spacy or lexicon (see nouns.py). Three of the
    original's traits are off unless asked for: `search_magic` (queries such as `<r>`), `buy_again` (an episode that
    goes on after its end and pays again), `leak_goal` (the goal hidden in the done page's HTML).
    """

    replay: Literal["exact", "score"] = "exact"
    PROMPT = WEBSHOP_PROMPT
    # Step limit and history of published evaluations, all sampled at 0.4: SEED's own and the verl-agent family's agree.
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "seedbench": Preset(),
        "seed": Preset(max_steps=15, history=2),
        "verl-agent": Preset(max_steps=15, history=2),
    }

    def __init__(
        self,
        data: str | Path = "mini",
        max_steps: int = 15,
        split: str = "train",
        observation: str = "text",
        reward: str = "webshop",
        goals: str = "auto",
        tagger: str = "auto",
        search_magic: bool = False,
        buy_again: bool = False,
        leak_goal: bool = False,
    ):
        if max_steps < 1:
            raise SeedbenchError(f"max_steps is {max_steps}; give at least 1.")
        if observation not in RENDERINGS:
            raise SeedbenchError(f"There is no observation {observation!r}; choose one of {', '.join(RENDERINGS)}.")
        rule = next((r for r in RULES if r == reward), None)
        if rule is None:
            raise SeedbenchError(f"There is no reward {reward!r}; choose one of {', '.join(RULES)}.")
        for package in ("rapidfuzz", "regex"):
            if find_spec(package) is None:
                raise SeedbenchError(f"WebShop needs {package}, which is not here: pip install -e '.[webshop]'.")
        self.data, self.split, self.max_steps = str(data), split, max_steps
        self.observation, self.reward, self.goals = observation, rule, goals
        self.search_magic, self.buy_again, self.leak_goal = search_magic, buy_again, leak_goal
        self.dataset: Dataset = open_dataset(self.data, goals)
        self.catalogue = self.dataset.catalogue
        self.tagger = _shared_tagger(self.dataset, tagger)
        self._render = RENDERINGS[observation]
        self._goal: Goal | None = None
        self._page = Page()
        self._session = Session("", "")
        self._prices: Mapping[str, float] = {}
        self._parts: RewardParts | None = None
        self._plan: oracle.Plan | None = None
        self._steps, self._over, self._magic_seed = 0, True, 0

    def tasks(self, split: str) -> Sequence[Task]:
        return self.dataset.tasks(split)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, WebShopInfo]:  # type: ignore[override]
        """Also takes `options={"goal": record, "prices": {asin: dollars}}`, as they are; prices may be left out."""
        gym.Env.reset(self, seed=seed)
        options = options or {}
        if "goal" in options:
            goal = Goal.from_record(options["goal"])
            name = f"given-{sha256_json(goal.to_record())[:8]}"
        else:
            name = self.chosen_task(options)
            goal = self.dataset.goal(name)
        self._goal, self._prices = goal, _price_table(options.get("prices"))
        hidden = json.dumps(goal.to_record(), ensure_ascii=False) if self.leak_goal else ""
        self._session = Session(name, goal.instruction_text, hidden=hidden)
        self._page, self._parts, self._plan = Page(), None, None
        self._steps, self._over = 0, False
        self._magic_seed = stream("webshop-magic", seed or 0, name)
        return self._observe(), self._info("")

    def step(self, action: str) -> tuple[str, float, bool, bool, WebShopInfo]:  # type: ignore[override]
        if self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step()")
        magic = random.Random(stream(self._magic_seed, self._steps)) if self.search_magic else None
        page = act(self.catalogue, self._page, action, magic)
        reason = refusal(self.catalogue, self._page, action) if page is None else ""
        self._steps += 1
        bought = page is not None and page.kind == "done"
        if page is not None:
            self._page = page
        if bought:
            self._parts = self._score(self._page)
            self._session = self._session._replace(score=self._parts.reward)
        truncated = not bought and self._steps >= self.max_steps
        self._over = truncated or (bought and not self.buy_again)
        reward = self._parts.reward if bought and self._parts else 0.0
        return self._observe(), reward, bought, truncated, self._info(reason)

    def _score(self, page: Page) -> RewardParts:
        product = self.catalogue.product(page.asin)
        return explain_reward(self._playing(), product, self._price(page.asin), page.options, self.tagger, self.reward)

    def _price(self, asin: str) -> float:
        return self._prices[asin] if asin in self._prices else self.catalogue.price(asin)

    def _observe(self) -> str:
        return self._render(self.catalogue, self._page, self._session)

    def clickables(self) -> tuple[str, ...]:
        """What the original lists as clickable on the present page, in its order; "search" on the start page."""
        return clickables(self.catalogue, self._page)

    def _admissible(self) -> list[str]:
        if self._page.kind == "start":
            words = oracle.query_words(self._session.instruction)
            return [f"search[{words}]"] if words else []
        return list(_clicks(self.clickables()))

    def _info(self, reason: str) -> WebShopInfo:
        score = self._session.score
        return {
            "goal": self._session.instruction,
            "kind": self._playing().category,
            "admissible": self._admissible(),
            "is_action_valid": not reason,
            "invalid_reason": reason,
            "won": score == 1,
            "score": score,
            "steps": self._steps,
            "task": self._session.id,
            "reward_parts": asdict(self._parts) if self._parts else {},
        }

    def _playing(self) -> Goal:
        if self._goal is None:
            raise EpisodeOver("no episode has begun: call reset() first")
        return self._goal

    def plan(self) -> oracle.Plan | None:
        """What the oracle means to buy in this episode, and its score: the most that is known to be reachable."""
        if self._plan is None:
            self._plan = oracle.make_plan(self.catalogue, self._playing(), self._price, self.tagger, self.reward)
        return self._plan

    def reachable(self, task_id: str) -> float:
        """The best score that the oracle knows for a task; 0.0 where nothing can be bought."""
        goal = self.dataset.goal(task_id)
        plan = oracle.make_plan(self.catalogue, goal, self.catalogue.price, self.tagger, self.reward)
        return plan.score if plan else 0.0

    def expert(self) -> str | None:
        plan = self.plan()
        return oracle.next_action(self._page, plan) if plan else None

    def sample(self, rng: np.random.Generator) -> str:
        """One of the admissible actions; on a page without any, the search of the goal's words."""
        actions = self._admissible() or [f"search[{oracle.query_words(self._session.instruction) or 'product'}]"]
        return actions[int(rng.integers(len(actions)))]

    def clone(self) -> WebShopEnv:
        other = copy.copy(self)  # all that an episode holds is immutable
        if self._np_random is not None:
            other._np_random = copy.deepcopy(self._np_random)
        return other

    def digest(self) -> str:
        settings = [self.max_steps, self.observation, self.reward, self.search_magic, self.buy_again, self.leak_goal]
        return sha256_json(["seedbench/WebShop-v0", VERSION, settings, self.dataset.digest(), self.tagger.name])

    def pinned(self, split: str) -> bool:
        return self.dataset.pinned(split)

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        return learn(trajectory, self.dataset.goal(trajectory.task.id), self._again(trajectory), self.catalogue)

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        return facts.anchors(self.dataset.goal(task.id))

    def document(self, task: Task, anchor: Anchor) -> str | None:
        return " ".join(facts.facts(self.dataset.goal(task.id))) if anchor.source == facts.SOURCE else None

    def outcome(self, trajectory: Trajectory) -> str:
        page = next(reversed(self._again(trajectory).pages), None)
        return self.catalogue.product(page.asin).title if page is not None and page.kind == "done" else ""

    def _again(self, trajectory: Trajectory) -> Played:
        """The pages of an episode, by its actions, in an environment apart."""
        other = self.clone()
        other.reset(seed=trajectory.seed, options={"task": trajectory.task.id})
        pages = []
        for step in trajectory.steps:
            other.step(step.action)
            pages.append(other._page)
            if other._over:
                break
        return Played(pages, other._parts)

    def secrets(self, task: Task) -> tuple[str, ...]:
        goal = self.dataset.goal(task.id)
        title = self.catalogue.product(goal.asin).title if goal.asin in self.catalogue else goal.name
        return tuple(dict.fromkeys(filter(None, (goal.asin, goal.name, title))))

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        return parse_tagged(text, mode)


@lru_cache(maxsize=8)
def _shared_tagger(dataset: Dataset, name: str) -> Tagger:
    return open_tagger(name, dataset.nouns)


def _price_table(given: object) -> Mapping[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SeedbenchError('options["prices"] is no table; give a mapping of asin to dollars.')
    return given


@lru_cache(maxsize=4096)
def _clicks(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that a click reaches, as actions."""
    return tuple(f"click[{name}]" for name in names if executable(name))
