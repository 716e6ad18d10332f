"""Where search-QA's questions and passages come from: the embedded `mini` world, or a folder of published files.

data = open_dataset("mini")
for task in data.tasks("seen"):
    question = data.question(task.id)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from seedbench.core import Passage, Task

ENV_ID = "seedbench/SearchQA-v0"
SPLITS = ("train", "dev", "seen", "unseen", "paper")
KINDS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One hop: the passage and the sentence of it that state a fact which the answer rests on."""

    passage: str  # id of the gold passage
    title: str
    sentence: int = -1  # index in the passage's text; -1 where the files do not say
    query: str = ""  # what the oracle searches for at this hop, without a later hop's answer; "" where unknown


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the answers that count as right, its kind (KINDS), and its hops in order where they are known."""

    id: str
    question: str
    golds: tuple[str, ...]
    kind: str
    evidence: tuple[Evidence, ...] = ()


class Dataset(ABC):
    """The questions behind one `data=`. Shared by all environments and threads of a process."""

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """The whole split in order. Raises SeedbenchError for an unknown or empty split."""

    @abstractmethod
    def question(self, task_id: str) -> Question:
        """What the task asks. Raises SeedbenchError for an unknown id."""

    @abstractmethod
    def passages(self) -> Sequence[Passage] | None:
        """The corpus that comes with the questions; None where the user must name an index."""

    @abstractmethod
    def digest(self) -> str:
        """Digest of questions, answers and the corpus that comes with them."""

    def pinned(self, split: str) -> bool:
        """Whether the committed manifest fixes the digest of every task of `split`."""
        return False
