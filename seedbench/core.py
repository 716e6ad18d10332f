"""The nouns. Everything else in seedbench is written in terms of what stands here.

A `Task` is a frozen exam question with an id that never changes. A `TextEnv` is a Gymnasium environment whose
observations and actions are text. Once a turn an agent receives a `View` (all that it may see) and gives a `Reply`
(all that it said). One episode leaves one `Trajectory`.

Only numpy and gymnasium are imported here, and nothing of seedbench.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypedDict

import gymnasium as gym
import numpy as np

if TYPE_CHECKING:
    from seedbench.prompts import Prompt

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}
Mode = Literal["strict", "tolerant"]
Ended = Literal["terminated", "truncated", "error"]


class SeedbenchError(Exception):
    """Something a user can mend. The message is one sentence that names the cause and the cure."""


class InfrastructureError(SeedbenchError):
    """A server, a connection or a device failed, not the agent: the episode stays unplayed and is played again."""


class EpisodeOver(SeedbenchError, gym.error.ResetNeeded):
    """`step` was called before `reset`, or after the episode had ended."""


class UnsupportedError(SeedbenchError):
    """This environment cannot do what was asked of it (cloning over HTTP, say), now or later."""


def stream(*parts: int | str) -> int:
    """Hash `parts` to an integer in [0, 2**53): the seed of one independent random stream, the same on any machine.

    53 bits, so that the number survives JSON readers that keep numbers as doubles.
    """
    key = json.dumps(parts, separators=(",", ":"), ensure_ascii=True).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 11


def short_name(env_id: str) -> str:
    """A Gymnasium id as the command line says it: `alfworld` for "seedbench/ALFWorld-v0"."""
    return env_id.rpartition("/")[2].partition("-v")[0].lower()


@dataclass(frozen=True, slots=True)
class Task:
    """One question of the exam. `id` is stable for ever and never an index; `env` is a Gymnasium id."""

    id: str
    env: str
    split: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Parsed(NamedTuple):
    """What a parser made of a reply: the action ("" if none), whether the format was kept, and if not, why."""

    action: str
    format_valid: bool
    reason: str = ""


class Lesson(NamedTuple):
    """What an episode teaches: what happened, and a skill for whoever plays such a task next."""

    summary: str
    skill: str


class Anchor(NamedTuple):
    """A piece of evidence for a task's answer: a step towards it, never the whole way (SSPO, arXiv 2608.12764)."""

    title: str  # of the document it stands in
    source: str  # that document's id, or what else the environment can look it up by
    text: str  # words of the document, as they are


class Info(TypedDict):
    """`info` of reset and step. An environment may add keys of its own; these are always there."""

    goal: str
    kind: str
    admissible: list[str]  # only strings that can be executed as they stand
    is_action_valid: bool  # the environment accepted the last action
    invalid_reason: str
    won: bool
    score: float
    steps: int


@dataclass(frozen=True, slots=True)
class View:
    """All that an agent may see at one turn, and the seed of its own random stream for that turn."""

    goal: str
    observation: str
    admissible: tuple[str, ...]
    history: tuple[tuple[str, str], ...]  # (observation, action taken on it), oldest first, whole episode
    hint: str = ""
    stream: int = 0
    messages: tuple[Message, ...] = ()  # the prompt rendered from the fields above


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids as they were fed and sampled, never re-encoded from text; `logprobs` are those sampled from."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # natural log, at the sampling temperature, one a completion token


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent said. `play` parses the text with the environment's own parser, so an agent need not."""

    text: str
    tokens: Tokens | None = None
    finish_reason: str = ""  # "stop", "length", or what an endpoint reports
    usage: Mapping[str, int] = field(default_factory=dict)  # prompt_tokens, completion_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: what was seen, said, understood and earned."""

    view: View
    reply: Reply
    action: str
    format_valid: bool
    reason: str  # why the format was not valid
    reward: float
    action_valid: bool
    invalid_reason: str  # why the environment did not accept the action
    prompt_sha: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode from reset to end. `ended="error"` keeps a crashed episode in the denominator, with score 0."""

    task: Task
    seed: int  # what the environment was reset with
    trial: int
    steps: tuple[Step, ...]
    score: float
    success: bool
    ended: Ended
    error: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)  # TextEnv.MEASURES of the last info


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a policy draws its tokens; temperature 0 is greedy. Raises SeedbenchError for what describes no reply."""

    temperature: float = 0.4
    top_p: float = 1.0
    max_new_tokens: int = 512

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise SeedbenchError(f"temperature is {self.temperature}: give 0 (greedy) or a finite number above it.")
        if not 0 < self.top_p <= 1:
            raise SeedbenchError(f"top-p is {self.top_p}: give a number above 0 and at most 1.")
        if self.max_new_tokens < 1:
            raise SeedbenchError(f"max-new-tokens is {self.max_new_tokens}: give 1 or more.")


@dataclass(frozen=True, slots=True)
class Preset:
    """The settings of one protocol, set together and recorded by name; None leaves the environment's own default."""

    max_steps: int | None = None
    history: int | None = None
    sampling: Sampling = Sampling()
    options: Mapping[str, Any] = field(default_factory=dict)  # further settings of the environment: its reward, say


class AnyText(gym.Space[str]):
    """Every string, the empty one included. (Gymnasium's `Text` needs a closed alphabet and a length.)"""

    def __init__(self, seed: int | None = None):
        super().__init__(shape=(), dtype=np.str_, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "".join(chr(c) for c in self.np_random.integers(32, 0x2FF, size=self.np_random.integers(0, 24)))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __repr__(self) -> str:
        return "AnyText()"

    @property
    def is_np_flattenable(self) -> bool:
        return False


class TextEnv(gym.Env[str, str], ABC):
    """Text in, text out; one episode at a time. Same task, seed and actions give the same bytes anywhere.

    `terminated` means that the environment ended the episode, `truncated` that the step limit did; `won` is a fact
    of its own in `info`. An action that the environment does not know costs a step and changes nothing else.
    """

    replay: Literal["exact", "score"] = "exact"
    remote: bool = False  # every call waits for a server: play() lets the calls of several episodes overlap
    max_sessions: int | None = None  # how many episodes that server holds at a time
    PROMPT: ClassVar[Prompt]
    PRESETS: ClassVar[Mapping[str, Preset]] = {"seedbench": Preset()}
    SETTINGS: ClassVar[tuple[str, ...]] = ()  # attributes that results.json records; a parser may depend on them
    MEASURES: ClassVar[tuple[str, ...]] = ()  # numbers in info whose values at the end results.json averages
    TYPED: ClassVar[str] = ""  # what a person may type, where that is not the action itself
    max_steps: int
    data: str
    split: str  # what `reset` without options draws from
    withheld: bool = False  # its tasks must not be written in the clear: run.json then holds no prompt of them
    playing: tuple[Task, int] | None = None  # task and trial under way, set by play(): for agents with needs_env

    observation_space = AnyText()
    action_space = AnyText()

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """The whole split in manifest order. Raises SeedbenchError for a split that is not at hand or is short."""

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:  # type: ignore[override]
        """Start `options={"task": id}`; without options, a task drawn by `seed` from the split given to `make`."""

    @abstractmethod
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:  # type: ignore[override]
        """Apply one action; returns observation, reward, terminated, truncated, info."""

    @abstractmethod
    def expert(self) -> str | None:
        """The next action of our own oracle from the present state; None when it knows no way to win."""

    def informed(self) -> str | None:
        """The next action of the oracle if it goes by the task's `anchors`; by default the expert's."""
        return self.expert()

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> str:
        """A legal random action from the present state: what the agent `random` plays."""

    @abstractmethod
    def clone(self) -> TextEnv:
        """An independent copy in the present state: stepping either leaves the other alone."""

    @abstractmethod
    def digest(self) -> str:
        """Version of the behaviour and of the assets; changes only when outputs change."""

    @abstractmethod
    def parse(self, text: str, mode: Mode = "strict") -> Parsed:
        """Read the action out of an agent's text. Never raises, whatever the text; depends on settings, never on the
        state of the episode."""

    def lesson(self, trajectory: Trajectory) -> Lesson | None:
        """What a rule of our own, which knows the task's facts, learns from an episode of this environment: true, in
        its words, without numbers and without the answer. None where there is no such rule. The state stays as it is.
        """
        return None

    def anchors(self, task: Task) -> tuple[Anchor, ...]:
        """At most 6 pieces of evidence that a teacher may be told of `task`; none where the environment knows none.
        The state stays as it is."""
        return ()

    def document(self, task: Task, anchor: Anchor) -> str | None:
        """The text that an anchor of `task` quotes from, by its source; None where there is no such document."""
        return None

    def answers(self, task: Task) -> tuple[str, ...]:
        """The texts that count as the right answer of a task which asks for one; none of another."""
        return ()

    def outcome(self, trajectory: Trajectory) -> str:
        """What an episode came to, in words: its answer, or what was bought; "" where it came to nothing. The state
        stays as it is."""
        return ""

    def secrets(self, task: Task) -> tuple[str, ...]:
        """Texts that a lesson about `task` must not hold, as they would give its answer away."""
        return ()

    @staticmethod
    def typed(line: str) -> str:
        """The action that a person means by a typed line."""
        return line

    def pinned(self, split: str) -> bool:
        """Whether the committed manifest fixes the digest of every task of `split`."""
        return False

    def chosen_task(self, options: Mapping[str, Any] | None) -> str:
        """The id of the task that `reset` was given, or one drawn from `split`. Raises SeedbenchError for no string."""
        if not options or "task" not in options:
            tasks = self.tasks(self.split)
            return tasks[int(self.np_random.integers(len(tasks)))].id
        if not isinstance(options["task"], str):
            raise SeedbenchError(f'options["task"] is {options["task"]!r}; give the id of a task as a string.')
        return options["task"]


class Agent(ABC):
    """Whoever plays. One call serves a batch of episodes, so that a GPU is fed; no state outlives a call."""

    name: str = ""
    needs_env: ClassVar[bool] = False  # asks for the environments themselves; run.json records it
    interactive: ClassVar[bool] = False  # talks to the terminal: one episode at a time, and no progress bar
    # Set before each environment is played: how to draw, its Gymnasium id, and what `view.messages` are rendered with.
    sampling: Sampling = Sampling()
    env: str = ""
    prompt: Prompt | None = None

    def plays(self, env_id: str) -> None:
        """Raise SeedbenchError if this agent cannot play an environment at all; asked before anything is played."""
        return None

    @abstractmethod
    def act(self, views: Sequence[View], envs: Sequence[TextEnv] | None = None) -> Sequence[Reply | Exception]:
        """One reply a view, in order; an Exception in a place is the failure of that view alone."""

    def describe(self) -> dict[str, Any]:
        """What run.json says of the agent: at least `spec` and `kind`."""
        return {"spec": self.name, "kind": type(self).__name__.lower()}


class Passage(NamedTuple):
    """A retrieved passage: its id in the corpus, title, text and the retriever's score (higher is better)."""

    id: str
    title: str
    text: str
    score: float


class Retriever(Protocol):
    """Search behind one interface; `digest` names the index, so that a result can be tied to it."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]: ...
    def digest(self) -> str: ...
