"""`seedbench/SearchQA-v0`: answer a question by searching a collection of passages, several times if need be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from seedbench.core import (
    Anchor,
    EpisodeOver,
    Lesson,
    Mode,
    Parsed,
    Preset,
    Retriever,
    SeedbenchError,
    Task,
    Trajectory,
)
from seedbench.envs.searchqa import evidence, oracle, scoring, tags
from seedbench.envs.searchqa.asking import LONGEST_ACTION, LONGEST_QUERY, MOST_HITS, AskingEnv, AskingInfo, typed
from seedbench.envs.searchqa.data import open_dataset
from seedbench.envs.searchqa.lessons import Played, learn
from seedbench.envs.searchqa.protocols import PROTOCOLS
from seedbench.envs.searchqa.retrieval import find, open_retriever
from seedbench.prompts import Prompt, sha256_json

VERSION = 1  # raise it when any output changes

SEARCHQA_PROMPT = Prompt(
    name="searchqa-v1",
    system=(
        "You answer a question, and may search a collection of passages first. Each turn, end with one block: "
        "<search>...</search> with a few words to look for, or <answer>...</answer> with the answer alone, as short as "
        "it can be, which ends the task. You may think first inside <think>...</think>."
    ),
    history=-1,
    show_actions=False,
    reply_format="{action}",
)


class SearchQAEnv(AskingEnv):
    """One question an episode, which ends with an answer; won, score and reward are its exact match.

    `data` is "mini" or a folder of questions; `split` is what `reset` without options draws from; `retriever` is bm25,
    lucene, dense or hybrid over the passages that come with the questions, the folder of an index, or the URL of a
    search server; `top_k` passages are shown a search; `reward` names the rules (protocols.py): em is ours, search-r1,
    search-r1-format and verl-agent are the published ones. In the last turn nothing is searched for.
    """

    PROMPT = SEARCHQA_PROMPT
    TYPED: ClassVar[str] = "Type `search WORDS` or `answer WORDS`."
    SETTINGS: ClassVar[tuple[str, ...]] = ("reward", "top_k")
    MEASURES: ClassVar[tuple[str, ...]] = ("f1", "sub_em")
    # Search-R1 plays four turns and then one in which it does not search any more: five replies.
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "seedbench": Preset(options={"reward": "em"}),
        "search-r1": Preset(max_steps=5, history=-1, options={"reward": "search-r1"}),
        "search-r1-format": Preset(max_steps=5, history=-1, options={"reward": "search-r1-format"}),
        "verl-agent": Preset(max_steps=4, history=4, options={"reward": "verl-agent"}),
    }

    def __init__(
        self,
        data: str | Path = "mini",
        max_steps: int = 8,
        split: str = "train",
        retriever: str | Path | None = None,
        top_k: int = 3,
        reward: str = "em",
    ):
        if max_steps < 1:
            raise SeedbenchError(f"max_steps is {max_steps}; give at least 1.")
        if not 1 <= top_k <= MOST_HITS:
            raise SeedbenchError(f"top_k is {top_k}; give 1 to {MOST_HITS}.")
        if reward not in PROTOCOLS:
            raise SeedbenchError(f"There is no reward {reward!r}; choose one of {', '.join(PROTOCOLS)}.")
        self.data, self.split, self.max_steps = str(data), split, max_steps
        self.top_k, self.reward = top_k, reward
        self.dataset = open_dataset(self.data)
        self._retriever_name = None if retriever is None else str(retriever)
        self._rules = PROTOCOLS[reward]
        self._transcript = ""
        self._found: tuple[str, ...] = ()  # ids of all passages shown, each once, in order
        self._searched: tuple[str, ...] = ()
        self._hits: tuple[str, ...] = ()  # of those, what the last step showed
        self._titles: tuple[str, ...] = ()  # of the passages shown last
        self._answer: str | None = None

    def _open_retriever(self) -> Retriever:
        return open_retriever(self.dataset, self._retriever_name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, AskingInfo]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        self._question = question = self.dataset.question(self.chosen_task(options))
        _ = self.retriever  # a missing index is found before the first turn
        self._goal = tags.escape(question.question)
        if self._rules.question_mark and not self._goal.endswith("?"):
            self._goal += "?"
        self._transcript = self._rules.opening
        self._found, self._searched, self._hits, self._titles, self._answer = (), (), (), (), None
        self._steps, self._over = 0, False
        return f"{self._goal}\nNothing was searched for yet.", self._info("")

    def step(self, action: str) -> tuple[str, float, bool, bool, AskingInfo]:  # type: ignore[override]
        if self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step()")
        action = action[:LONGEST_ACTION]
        rules, move, last = self._rules, self._rules.read(action), self._steps + 1 >= self.max_steps
        shown, hits = "", []
        if move.kind == "search" and not last:
            query = move.content.strip()[:LONGEST_QUERY]
            hits = find(self.retriever, query, self.top_k) if query else []
            self._searched = (*self._searched, query)
            shown = rules.show(hits)
        elif move.kind == "nothing" and not last:
            shown = rules.refuse(move.reason)
        self._steps += 1
        self._hits = tuple(hit.id for hit in hits)
        self._found = tuple(dict.fromkeys((*self._found, *self._hits)))
        self._titles = tuple(hit.title for hit in hits) or self._titles
        if rules.pay is not None:
            self._transcript += action + shown
        answered = move.kind == "answer"
        self._over = answered or last
        reward = 0.0
        if self._over:
            self._answer = rules.answer(move, self._transcript)
            reward = rules.reward(self._answer, self._transcript, self._asked().golds)
        observation = shown.strip() or ("The answer was given." if answered else "There are no turns left.")
        return observation, reward, answered, last and not answered, self._info(move.reason)

    def _info(self, reason: str) -> AskingInfo:
        won = self._answer is not None and scoring.exact_match(self._answer, self._asked().golds)
        search = tags.block(tags.SEARCH, self._goal)
        return self._about(reason, [search], self._answer, won, self._hits, set(self._found))

    def expert(self) -> str | None:
        """Searches for the evidence, then answers; at once where none is known, and in the last turn in any case."""
        question = self._asked()
        action = oracle.next_action(question, self._found, self._searched)
        last = self._steps + 1 >= self.max_steps
        if not question.evidence or (last and action is not None):
            return tags.block(tags.ANSWER, tags.escape(question.golds[0]))
        return action

    def sample(self, rng: np.random.Generator) -> str:
        """A search for some words of the question, or the title of a passage shown last as the answer."""
        titles = [title for title in map(tags.escape, self._titles) if title]
        if titles and rng.random() < 0.5:
            return tags.block(tags.ANSWER, titles[int(rng.integers(len(titles)))])
        return tags.block(tags.SEARCH, self._some_words(rng))

    def digest(self) -> str:
        settings = [self.max_steps, self.reward, self.top_k]
        parts = [VERSION, settings, self.retriever.digest(), self.dataset.digest()]
        return sha256_json(["seedbench/SearchQA-v0", *parts])

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        """Searches again for what the episode searched for."""
        moves = [self._rules.read(step.action) for step in trajectory.steps]
        found = frozenset(self._again(trajectory)._found)
        return learn(trajectory, self.dataset.question(trajectory.task.id), Played(moves, found))

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        return evidence.anchors(self.dataset.question(task.id), lambda hop: self._document(hop.passage, hop.title))

    def outcome(self, trajectory: Trajectory) -> str:
        last = self._rules.read(trajectory.steps[-1].action) if trajectory.steps else None
        return tags.escape(last.content) if last is not None and last.kind == "answer" else ""

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        return PROTOCOLS[self.reward].parse(text, mode)

    @staticmethod
    def typed(line: str) -> str:
        return typed(line, (tags.SEARCH, tags.ANSWER))
