"""`seedbench/DeepSearch-v0`: answer a question by many searches and visits to the pages that they list."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
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
    Passage,
    Preset,
    Retriever,
    Sampling,
    SeedbenchError,
    Task,
    TextEnv,
    Trajectory,
)
from seedbench.envs.deepsearch import oracle, shown, tags
from seedbench.envs.deepsearch.data import Dataset, open_dataset
from seedbench.envs.deepsearch.lessons import learn
from seedbench.envs.deepsearch.pages import snippet, windows
from seedbench.envs.deepsearch.prompts import PROMPTS, LongPrompt
from seedbench.envs.deepsearch.rehearse import next_window
from seedbench.envs.deepsearch.tags import FORMATS, Move
from seedbench.envs.searchqa import scoring
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.retrieval import find, open_retriever
from seedbench.prompts import sha256_json

VERSION = 1  # raise it when any output changes
LONGEST_QUERY = 10_000  # characters of a query or a goal that are read
LONGEST_ACTION = 100_000  # characters of an action that are read, here as over HTTP, where no more are sent
LONGEST_TITLE = 200
MOST_HITS = 100
SAMPLING = Sampling(temperature=0.6, top_p=0.95)
NEEDS_INDEX = (
    "These questions come without pages: name an index that holds them with --retriever (a folder of `seedbench index "
    "build`, or the URL of a search server)."
)


class DeepSearchInfo(Info):
    """Info with the task's id; em, f1 and sub_em of the answer (0.0 before it); ids of the documents that this step
    listed or opened; searches and visits so far; evidence: the share of gold documents that were listed or opened so
    far; precision: the share of searches that listed one (both 0.0 where none is known)."""

    task: str
    em: float
    f1: float
    sub_em: float
    retrieved: list[str]
    searches: int
    visits: int
    evidence: float
    precision: float


class DeepSearchEnv(TextEnv):
    """One question an episode, which ends with an answer; won, score and reward are its exact match.

    `data` is "mini" or a folder of questions; `split` is what `reset` without options draws from; `retriever` is bm25,
    lucene, dense or hybrid over the passages that come with the questions, the folder of an index, or the URL of a
    search server. A search lists `top_k` documents with the number by which a visit names them for the whole episode;
    a visit shows `window` characters of one. `prompt` says how actions are written: tags, or tools (native calls). Of
    past observations a prompt holds `room` characters, the newest. In the last turn nothing is searched or visited.
    """

    TYPED: ClassVar[str] = "Type `search WORDS`, `visit NUMBER` or `answer WORDS`."
    SETTINGS: ClassVar[tuple[str, ...]] = ("prompt", "top_k", "window", "snippet", "room")
    MEASURES: ClassVar[tuple[str, ...]] = ("f1", "searches", "visits", "evidence", "precision")
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "seedbench": Preset(sampling=SAMPLING),
        "tools": Preset(sampling=SAMPLING, options={"prompt": "tools"}),
        # The paper's: a context of 128 thousand tokens, some four characters each, and 100 steps.
        "sspo": Preset(max_steps=100, history=-1, sampling=SAMPLING, options={"room": 400_000}),
        "sspo-tools": Preset(
            max_steps=100, history=-1, sampling=SAMPLING, options={"room": 400_000, "prompt": "tools"}
        ),
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
    ):
        self.data, self.split = str(data), split
        self.dataset: Dataset = open_dataset(self.data)
        usual = shown.SMALL if self.dataset.small else shown.LARGE
        given = {"max_steps": max_steps, "top_k": top_k, "window": window, "snippet": snippet, "room": room}
        size = usual._replace(**{name: value for name, value in given.items() if value is not None})
        for name, value in size._asdict().items():
            if value < 1:
                raise SeedbenchError(f"{name} is {value}; give at least 1.")
        if size.top_k > MOST_HITS:
            raise SeedbenchError(f"top_k is {size.top_k}; give 1 to {MOST_HITS}.")
        if prompt not in PROMPTS:
            raise SeedbenchError(f"There is no prompt {prompt!r}; choose one of {', '.join(PROMPTS)}.")
        self.max_steps, self.top_k, self.snippet, self.window, self.room = size
        self.prompt = prompt
        self._retriever_name = None if retriever is None else str(retriever)
        self.remote = (self._retriever_name or "").startswith(("http://", "https://"))
        self._question: Question | None = None
        self._task, self._goal = "", ""
        self._listed: tuple[Passage, ...] = ()  # every document listed, in the order of its number from 1 on
        self._read: frozenset[tuple[str, int]] = frozenset()  # (document, window) of every visit
        self._searched: tuple[str, ...] = ()
        self._lucky = 0  # searches that listed a gold document
        self._visits = 0
        self._last: tuple[str, ...] = ()  # ids that the last step listed or opened
        self._results: tuple[int, ...] = ()  # numbers of what the last search listed
        self._answer: str | None = None
        self._steps, self._over = 0, True

    @property
    def PROMPT(self) -> LongPrompt:  # type: ignore[override]
        """By the settings `prompt` and `room`."""
        return dataclasses.replace(PROMPTS[self.prompt], room=self.room)

    @cached_property
    def retriever(self) -> Retriever:
        """Opened when it is first needed, so that questions can be listed without an index."""
        kinds = self._retriever_name in (None, "bm25", "lucene", "dense", "hybrid")
        if kinds and self.dataset.corpus is None:
            raise SeedbenchError(NEEDS_INDEX)
        return open_retriever(self.dataset.corpus or self.dataset, self._retriever_name)

    @property
    def replay(self) -> Literal["exact", "score"]:  # type: ignore[override]
        """exact where the same query finds the same documents anywhere; an approximate index promises less."""
        return "exact" if getattr(self.retriever, "exact", False) else "score"

    def tasks(self, split: str) -> Sequence[Task]:
        return self.dataset.tasks(split)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, DeepSearchInfo]:  # type: ignore[override]
        gym.Env.reset(self, seed=seed)
        self._task = self.chosen_task(options)
        self._question = self.dataset.question(self._task)
        _ = self.retriever  # a missing index is found before the first turn
        self._goal = tags.escape(self._question.question)
        self._listed, self._read, self._searched = (), frozenset(), ()
        self._lucky, self._visits, self._last, self._results, self._answer = 0, 0, (), (), None
        self._steps, self._over = 0, False
        return f"{self._goal}\nNothing was searched for yet.", self._info("")

    def step(self, action: str) -> tuple[str, float, bool, bool, DeepSearchInfo]:  # type: ignore[override]
        if self._over:
            raise EpisodeOver("the episode has ended or never began: call reset() before step()")
        move, last = FORMATS[self.prompt].read(action[:LONGEST_ACTION]), self._steps + 1 >= self.max_steps
        if move.kind == "visit" and not 1 <= move.number <= len(self._listed):
            move = Move("nothing", reason=f"no result has the number {move.number}")
        self._last = ()
        if move.kind == "answer":
            said, self._answer = "The answer was given.", move.content
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

    def _search(self, query: str) -> str:
        """The results as `[number] Title: beginning`, one a line."""
        hits = find(self.retriever, query, self.top_k)
        self._searched = (*self._searched, query)
        self._last = tuple(hit.id for hit in hits)
        self._lucky += bool(self._gold().intersection(self._last))
        known = {page.id: number for number, page in enumerate(self._listed, 1)}
        fresh = {hit.id: hit for hit in hits if hit.id not in known}
        self._listed = (*self._listed, *fresh.values())
        known = {page.id: number for number, page in enumerate(self._listed, 1)}
        self._results = tuple(known[hit.id] for hit in hits)
        return "\n".join(self._line(number) for number in self._results) or "No results found."

    def _line(self, number: int) -> str:
        page = self._listed[number - 1]
        title, text = snippet(tags.escape(page.title), LONGEST_TITLE), tags.escape(page.text)
        if title and text.startswith(title):  # encyclopedias begin with what the title says already
            text = text[len(title) :].lstrip(" ,")
        return f"[{number}] {title}: {snippet(text, self.snippet)}"

    def _visit(self, number: int, goal: str) -> str:
        """`[number] Title (part i of n)` and that part."""
        page = self._listed[number - 1]
        parts = windows(tags.escape(page.text), self.window)
        at = next_window(parts, {n for name, n in self._read if name == page.id}, goal)
        self._read |= {(page.id, at)}
        self._visits += 1
        self._last = (page.id,)
        part = f" (part {at + 1} of {len(parts)})" if len(parts) > 1 else ""
        return f"[{number}] {snippet(tags.escape(page.title), LONGEST_TITLE)}{part}\n{parts[at]}"

    def _gold(self) -> frozenset[str]:
        return frozenset(hop.passage for hop in self._asked().evidence)

    def _info(self, reason: str) -> DeepSearchInfo:
        question, answer, write = self._asked(), self._answer, FORMATS[self.prompt].write
        em = float(answer is not None and scoring.exact_match(answer, question.golds))
        gold, searches = self._gold(), len(self._searched)
        return {
            "goal": self._goal,
            "kind": question.kind,
            "admissible": [
                write(Move("search", self._goal)),
                *(write(Move("visit", number=number)) for number in self._results),
            ],
            "is_action_valid": not reason,
            "invalid_reason": reason,
            "won": bool(em),
            "score": em,
            "steps": self._steps,
            "task": self._task,
            "em": em,
            "f1": 0.0 if answer is None else scoring.f1(answer, question.golds),
            "sub_em": float(answer is not None and scoring.substring_match(answer, question.golds)),
            "retrieved": list(self._last),
            "searches": searches,
            "visits": self._visits,
            "evidence": len(gold.intersection(page.id for page in self._listed)) / len(gold) if gold else 0.0,
            "precision": self._lucky / searches if searches else 0.0,
        }

    def _asked(self) -> Question:
        if self._question is None:
            raise EpisodeOver("no episode has begun: call reset() first")
        return self._question

    def expert(self) -> str | None:
        """Walks the evidence, then answers; at once where none is known, and in the last turn in any case."""
        question = self._asked()
        listed = {page.id: number for number, page in enumerate(self._listed, 1)}
        gold = self._gold()
        pages = {page.id: windows(tags.escape(page.text), self.window) for page in self._listed if page.id in gold}
        move = oracle.next_move(question, listed, self._read, self._searched, pages)
        last = self._steps + 1 >= self.max_steps
        if not question.evidence or (last and move is not None):
            move = Move("answer", question.golds[0])
        return None if move is None else FORMATS[self.prompt].write(move._replace(content=tags.escape(move.content)))

    def sample(self, rng: np.random.Generator) -> str:
        """A search for some words of the question, a visit of something listed last, or its title as the answer."""
        write, draw = FORMATS[self.prompt].write, rng.random()
        if self._results and draw < 0.6:
            number = self._results[int(rng.integers(len(self._results)))]
            title = tags.escape(self._listed[number - 1].title)
            return write(Move("visit", number=number) if draw >= 0.2 or not title else Move("answer", title))
        words = self._goal.split()
        chosen = rng.permutation(len(words))[: int(rng.integers(1, 5))]
        return write(Move("search", " ".join(words[i] for i in sorted(chosen))))

    def clone(self) -> DeepSearchEnv:
        other = copy.copy(self)  # all that an episode holds is immutable
        if self._np_random is not None:
            other._np_random = copy.deepcopy(self._np_random)
        return other

    def digest(self) -> str:
        settings = [self.max_steps, *(getattr(self, name) for name in self.SETTINGS)]
        return sha256_json(
            ["seedbench/DeepSearch-v0", VERSION, settings, self.retriever.digest(), self.dataset.digest()]
        )

    def pinned(self, split: str) -> bool:
        return self.dataset.pinned(split)

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        """Sentences of the gold pages, none of which holds the answer."""
        return self.dataset.anchors(self.dataset.question(task.id))

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        """Plays the episode again to see which pages it listed and read."""
        other = self.clone()
        other.reset(seed=trajectory.seed, options={"task": trajectory.task.id})
        moves = []
        for step in trajectory.steps:
            moves.append(FORMATS[self.prompt].read(step.action[:LONGEST_ACTION]))
            other.step(step.action)
            if other._over:
                break
        listed, read = {page.id for page in other._listed}, {page for page, _ in other._read}
        return learn(trajectory, self.dataset.question(trajectory.task.id), moves, listed, read)

    def secrets(self, task: Task) -> tuple[str, ...]:
        """The answers, and the titles of gold pages that the question does not name."""
        question = self.dataset.question(task.id)
        named = scoring.normalise(question.question)
        titles = [hop.title for hop in question.evidence if scoring.normalise(hop.title) not in named]
        return tuple(dict.fromkeys(filter(None, (*question.golds, *titles))))

    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        return FORMATS[self.prompt].parse(text, mode)

    @staticmethod
    def typed(line: str) -> str:
        """`search words`, `visit number` and `answer words` as the action that they mean; other text as it stands."""
        for tag in tags.BLOCKS:
            word, _, rest = line.partition(" ")
            if word.lower() == tag and rest.strip():
                return tags.block(tag, rest.strip())
        return line
