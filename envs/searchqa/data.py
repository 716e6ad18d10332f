"""Where search-QA's questions and passages come from: the embedded `mini` world, or a folder of published files.

data = open_dataset("mini")
for task in data.tasks("seen"):
    question = data.question(task.id)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from seedbench.core import Passage, SeedbenchError, Task

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
    text: str = ""  # the sentence itself, where the files give it apart


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

    @cached_property
    def by_id(self) -> Mapping[str, Passage]:
        """Those passages by their ids; none where the user must name an index."""
        return {passage.id: passage for passage in self.passages() or ()}

    @abstractmethod
    def digest(self) -> str:
        """Digest of questions, answers and the corpus that comes with them."""

    def pinned(self, split: str) -> bool:
        """Whether the committed manifest fixes the digest of every task of `split`."""
        return False


def check_split(split: str, held: int, whose: str = "Search-QA") -> None:
    """Raises SeedbenchError for a split that there is not, or of which nothing is held."""
    if split not in SPLITS:
        raise SeedbenchError(f"{whose} has no split {split!r}; choose one of {', '.join(SPLITS)}.")
    if not held:
        raise SeedbenchError(f"These files hold no question of the split {split}; add the files that do.")


def open_dataset(data: str | Path) -> Dataset:
    """The data set of `data`, opened once a process: "mini", a generated folder, or published files.

    Raises SeedbenchError for what cannot be opened.
    """
    return _open(str(data))


@lru_cache(maxsize=4)
def _open(data: str) -> Dataset:
    from seedbench.envs.searchqa import mini, published  # which build on the nouns above

    if data == "mini":
        return mini.open_mini()
    path = Path(data)
    if not path.exists():
        raise SeedbenchError(f'{data} is not there; give "mini", or a folder (or file) of questions.')
    if path.is_dir() and (path / mini.LISTING).is_file():
        return mini.open_generated(path)
    return published.Published(path)
