"""`seedbench/DeepSearch-v0`: answer a question by many searches and visits to the pages that they list."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np

from seedbench.core import (
    Anchor,
    EpisodeOver,
    Info,
    InfrastructureError,
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
from seedbench.envs.deepsearch.browser import Browser
from seedbench.envs.deepsearch.data import Dataset, open_dataset
from seedbench.envs.deepsearch.judge import open_judge, prompt_digest
from seedbench.envs.deepsearch.lessons import learn
from seedbench.envs.deepsearch.live import PREFIX, Recorded, open_live
from seedbench.envs.deepsearch.pages import windows
from seedbench.envs.deepsearch.prompts import PROMPTS, LongPrompt
from seedbench.envs.deepsearch.tags import FORMATS, Move
from seedbench.envs.searchqa import scoring
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.retrieval import find, open_retriever
from seedbench.prompts import sha256_json

VERSION = 1  # raise it when any output changes
LONGEST_QUERY = 10_000  # characters of a query or a goal that are read
LONGEST_ACTION = 100_000  # characters of an action that are read, here as over HTTP, where no more are sent
MOST_HITS = 100
_live = lru_cache(maxsize=8)(open_live)
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
        self._judge = None if judge is None else open_judge(judge)
        self.judge, self.judge_prompt = (self._judge.model, prompt_digest()) if self._judge else ("", "")
        self._retriever_name = None if retriever is None else str(retriever)
        self.remote = (self._retriever_name or "").startswith(("http://", "https://"))
        self._question: Question | None = None
        self._task, self._goal = "", ""
        self._browser = Browser()
        self._answer: str | None = None
        self._right = False
        self._steps, self._over = 0, True

    @property
    def PROMPT(self) -> LongPrompt:  # type: ignore[override]
        """By the settings `prompt` and `room`."""
        return dataclasses.replace(PROMPTS[self.prompt], room=self.room)

    @cached_property
    def retriever(self) -> Retriever:
        """Opened when it is first needed, so that questions can be listed without an index."""
        if (self._retriever_name or "").startswith(PREFIX):
            return _live(str(self._retriever_name))
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
        text = self._whole(self._browser.listed[number - 1])
        self._browser, said = self._browser.visit(number, text, goal, self.window)
        return said

    def _whole(self, page: Passage) -> str:
        """The text of a page: what its search found, or, where that is live, what it is asked for now."""
        if not isinstance(self.retriever, Recorded):
            return page.text
        try:
            return self.retriever.page(page.id)
        except InfrastructureError:
            raise
        except Exception as error:  # the user's own code
            raise InfrastructureError(
                f"live search failed ({type(error).__name__}: {error}): mend it, then go on with --resume."
            ) from error

    def _gold(self) -> frozenset[str]:
        return frozenset(hop.passage for hop in self._asked().evidence)

    def _info(self, reason: str) -> DeepSearchInfo:
        question, answer, write = self._asked(), self._answer, FORMATS[self.prompt].write
        em = float(answer is not None and scoring.exact_match(answer, question.golds))
        gold, seen = self._gold(), self._browser
        searches = len(seen.searched)
        return {
            "goal": self._goal,
            "kind": question.kind,
            "admissible": [
                write(Move("search", self._goal)),
                *(write(Move("visit", number=number)) for number in seen.results),
            ],
            "is_action_valid": not reason,
            "invalid_reason": reason,
            "won": self._right,
            "score": float(self._right),
            "steps": self._steps,
            "task": self._task,
            "em": em,
            "f1": 0.0 if answer is None else scoring.f1(answer, question.golds),
            "sub_em": float(answer is not None and scoring.substring_match(answer, question.golds)),
            "retrieved": list(seen.last),
            "searches": searches,
            "visits": seen.visits,
            "evidence": len(gold.intersection(seen.numbers())) / len(gold) if gold else 0.0,
            "precision": seen.lucky / searches if searches else 0.0,
        }

    def _asked(self) -> Question:
        if self._question is None:
            raise EpisodeOver("no episode has begun: call reset() first")
        return self._question

    def expert(self) -> str | None:
        """Walks the evidence, then answers; at once where none is known, and in the last turn in any case."""
        question, seen, gold = self._asked(), self._browser, self._gold()
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

    def document(self, task: Task, anchor: Anchor) -> str | None:
        page = self._page(anchor)
        return None if page is None else page.text

    def _page(self, anchor: Anchor) -> Passage | None:
        """By its id: of the pages that come with the questions, else of what a search for its words finds."""
        if own := (self.dataset.corpus or self.dataset).by_id:
            return own.get(anchor.source)
        return next((hit for hit in find(self.retriever, anchor.text, MOST_HITS) if hit.id == anchor.source), None)

    def answers(self, task: Task) -> tuple[str, ...]:
        return self.dataset.question(task.id).golds

    def outcome(self, trajectory: Trajectory) -> str:
        last = FORMATS[self.prompt].read(trajectory.steps[-1].action[:LONGEST_ACTION]) if trajectory.steps else None
        return tags.escape(last.content) if last is not None and last.kind == "answer" else ""

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
        read = {page for page, _ in other._browser.read}
        return learn(trajectory, self.dataset.question(trajectory.task.id), moves, other._browser.numbers(), read)

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
