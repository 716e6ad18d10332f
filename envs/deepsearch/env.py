"""`seedbench/DeepSearch-v0`: answer a question by many searches and visits to the pages that they list."""

from __future__ import annotations

import dataclasses
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
    Sampling,
    SeedbenchError,
    Task,
    Trajectory,
)
from seedbench.envs.deepsearch import oracle, shown, tags
from seedbench.envs.deepsearch.browser import Browser
from seedbench.envs.deepsearch.data import Dataset, open_dataset
from seedbench.envs.deepsearch.engine import open_engine, whole
from seedbench.envs.deepsearch.judge import open_judge, prompt_digest
from seedbench.envs.deepsearch.lessons import learn
from seedbench.envs.deepsearch.pages import windows
from seedbench.envs.deepsearch.prompts import PROMPTS, LongPrompt
from seedbench.envs.deepsearch.tags import FORMATS, Move
from seedbench.envs.searchqa import scoring
from seedbench.envs.searchqa.asking import LONGEST_ACTION, LONGEST_QUERY, AskingEnv, AskingInfo, typed
from seedbench.envs.searchqa.data import Dataset as Questions
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.retrieval import find
from seedbench.prompts import sha256_json

VERSION = 1  # raise it when any output changes
SAMPLING = Sampling(temperature=0.6, top_p=0.95)


class DeepSearchInfo(AskingInfo):
    """... `retrieved` are the documents that the step listed or opened; with searches and visits so far, and precision:
    the share of searches that listed a gold document (0.0 where none is known)."""

    searches: int
    visits: int
    precision: float


class DeepSearchEnv(AskingEnv):
    """One question an episode, which ends with an answer; won, score and reward are its exact match, or what a `judge`
    (MODEL@URL of an OpenAI-compatible endpoint) says of an answer that is none.

    `data` is "mini" or a folder of questions; `split` is what `reset` without options draws from; `retriever` is bm25,
    lucene, dense or hybrid over the passages that come with the questions, the folder of an index, the URL of a search
    server, or live search (live.py). A search lists `top_k` documents with `snippet` characters of each, and the number
    by which a visit names one for the whole episode; a visit shows `window` characters. `prompt` says how actions are
    written: tags, or tools (native calls). Of past observations a prompt holds `room` characters, the newest; chat and
    chat-tools hold them all, as turns. In the last turn nothing is searched or visited.
    """

    TYPED: ClassVar[str] = "Type `search WORDS`, `visit NUMBER` or `answer WORDS`."
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "prompt", "top_k", "window", "snippet", "room", "judge", "judge_prompt", "withheld",
    )  # fmt: skip
    MEASURES: ClassVar[tuple[str, ...]] = ("f1", "searches", "visits", "evidence", "precision")
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "seedbench": Preset(sampling=SAMPLING, options={"prompt": "tags"}),
        "tools": Preset(sampling=SAMPLING, options={"prompt": "tools"}),
        # The paper's: one context that grows to 128 thousand tokens, and 100 steps.
        "sspo": Preset(max_steps=100, history=-1, sampling=SAMPLING, options={"prompt": "chat"}),
        "sspo-tools": Preset(max_steps=100, history=-1, sampling=SAMPLING, options={"prompt": "chat-tools"}),
    }

    def __init__(
        self,
        data: str | Path = "mini",
        max_steps: int | None = None,
        split: str = "train",
        retriever: str | Path | None = None,
        top_k: int | None = None,
        window: int | None = None,
        snippet: int | None = None,
        room: int | None = None,
        prompt: str = "tags",
        judge: str | None = None,
    ):
        self.data, self.split = str(data), split
        self.dataset: Dataset = open_dataset(self.data)
        self.withheld = self.dataset.withheld
        if prompt not in PROMPTS:
            raise SeedbenchError(f"There is no prompt {prompt!r}; choose one of {', '.join(PROMPTS)}.")
        given = {"max_steps": max_steps, "top_k": top_k, "window": window, "snippet": snippet, "room": room}
        size = shown.chosen(self.dataset.small, given)
        self.max_steps, self.top_k, self.snippet, self.window, self.room = size
        self.prompt = prompt
        self._judge = None if judge is None else open_judge(judge)
        self.judge, self.judge_prompt = (self._judge.model, prompt_digest()) if self._judge else ("", "")
        self._retriever_name = None if retriever is None else str(retriever)
        self._browser = Browser()
        self._answer: str | None = None
        self._right = False

    @property
    def PROMPT(self) -> LongPrompt:  # type: ignore[override]
        """By the settings `prompt` and `room`."""
        return dataclasses.replace(PROMPTS[self.prompt], room=self.room)

    def _open_retriever(self) -> Retriever:
        return open_engine(self.dataset, self._retriever_name)

    @property
    def _documents(self) -> Questions:
        return self.dataset.corpus or self.dataset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, DeepSearchInfo]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        self._question = self.dataset.question(self.chosen_task(options))
        _ = self.retriever  # a missing index is found before the first turn
        self._goal = tags.escape(self._question.question)
        self._browser = Browser()
        self._answer, self._right = None, False
        self._steps, self._over = 0, False
        opening = "" if self.withheld else f"{self._goal}\n"  # an observation is recorded, the task line is not
        return f"{opening}Nothing was searched for yet.", self._info("")

    def step(self, action: str) -> tuple[str, float, bool, bool, DeepSearchInfo]:  # type: ignore[override]
        if self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step()")
        move, last = FORMATS[self.prompt].read(action[:LONGEST_ACTION]), self._steps + 1 >= self.max_steps
        if move.kind == "visit" and not 1 <= move.number <= len(self._browser.listed):
            move = Move("nothing", reason=f"no result has the number {move.number}")
        self._browser = dataclasses.replace(self._browser, last=())
        if move.kind == "answer":
            said, self._answer = "The answer was given.", move.content
            self._right = self._is_right(move.content)
        elif last:
            said = "There are no turns left."
        elif move.kind == "search":
            said = self._search(move.content[:LONGEST_QUERY])
        elif move.kind == "visit":
            said = self._visit(move.number, move.content[:LONGEST_QUERY])
        else:
            said = f"That was no action: {move.reason}."
        self._steps += 1
        answered = move.kind == "answer"
        self._over = answered or last
        info = self._info(move.reason)
        return said, info["score"], answered, last and not answered, info

    def _is_right(self, answer: str) -> bool:
        """Exact match, or else the judge's verdict where there is one."""
        question = self._asked()
        if scoring.exact_match(answer, question.golds):
            return True
        return self._judge is not None and self._judge.verdict(question.question, question.golds, answer)

    def _search(self, query: str) -> str:
        hits = find(self.retriever, query, self.top_k)
        self._browser, said = self._browser.search(query, hits, self._gold(), self.snippet)
        return said

    def _visit(self, number: int, goal: str) -> str:
        text = whole(self.retriever, self._browser.listed[number - 1])
        self._browser, said = self._browser.visit(number, text, goal, self.window)
        return said

    def _info(self, reason: str) -> DeepSearchInfo:
        seen, write = self._browser, FORMATS[self.prompt].write
        visits = [write(Move("visit", number=number)) for number in seen.results]
        actions, searches = [write(Move("search", self._goal)), *visits], len(seen.searched)
        return {
            **self._about(reason, actions, self._answer, self._right, seen.last, set(seen.numbers())),
            "searches": searches,
            "visits": seen.visits,
            "precision": seen.lucky / searches if searches else 0.0,
        }

    def expert(self) -> str | None:
        """Walks the evidence, then answers; at once where none is known, and in the last turn in any case."""
        return self._walked(self._asked())

    def informed(self) -> str | None:
        """Goes straight to the last page that the anchors name, by its title, and walks on from there."""
        question = self._asked()
        named = {anchor.source for anchor in self.dataset.anchors(question)}
        last = max((n for n, hop in enumerate(question.evidence) if hop.passage in named), default=None)
        if last is None:
            return self.expert()
        first, *rest = question.evidence[last:]
        way = (dataclasses.replace(first, query=first.title), *rest)
        return self._walked(dataclasses.replace(question, evidence=way))

    def _walked(self, question: Question) -> str | None:
        """The oracle's action on the way of `question`."""
        seen, gold = self._browser, self._gold()
        pages = {page.id: windows(tags.escape(page.text), self.window) for page in seen.listed if page.id in gold}
        move = oracle.next_move(question, seen.numbers(), seen.read, seen.searched, pages)
        last = self._steps + 1 >= self.max_steps
        if not question.evidence or (last and move is not None):
            move = Move("answer", question.golds[0])
        return None if move is None else FORMATS[self.prompt].write(move._replace(content=tags.escape(move.content)))

    def sample(self, rng: np.random.Generator) -> str:
        """A search for some words of the question, a visit of something listed last, or its title as the answer."""
        write, draw = FORMATS[self.prompt].write, rng.random()
        results = self._browser.results
        if results and draw < 0.6:
            number = results[int(rng.integers(len(results)))]
            title = tags.escape(self._browser.listed[number - 1].title)
            return write(Move("visit", number=number) if draw >= 0.2 or not title else Move("answer", title))
        return write(Move("search", self._some_words(rng)))

    def digest(self) -> str:
        settings = [self.max_steps, *(getattr(self, name) for name in self.SETTINGS)]
        return sha256_json(
            ["seedbench/DeepSearch-v0", VERSION, settings, self.retriever.digest(), self.dataset.digest()]
        )

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        """Sentences of the gold pages, none of which holds the answer."""
        return self.dataset.anchors(self.dataset.question(task.id))

    def outcome(self, trajectory: Trajectory) -> str:
        last = FORMATS[self.prompt].read(trajectory.steps[-1].action[:LONGEST_ACTION]) if trajectory.steps else None
        return tags.escape(last.content) if last is not None and last.kind == "answer" else ""

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        """Plays the episode again to see which pages it listed and read."""
        seen = self._again(trajectory)._browser
        moves = [FORMATS[self.prompt].read(step.action[:LONGEST_ACTION]) for step in trajectory.steps]
        read = {page for page, _ in seen.read}
        return learn(trajectory, self.dataset.question(trajectory.task.id), moves, seen.numbers(), read)

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        return FORMATS[self.prompt].parse(text, mode)

    @staticmethod
    def typed(line: str) -> str:
        return typed(line, tags.BLOCKS)
