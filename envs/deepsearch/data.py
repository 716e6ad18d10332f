"""Where deep search's questions and pages come from: the embedded `mini` set, or what `data import` made of files.

data = open_dataset("mini")
for task in data.tasks("seen"):
    question = data.question(task.id)
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

from seedbench.core import Anchor, SeedbenchError
from seedbench.envs.searchqa.data import SPLITS as SPLITS
from seedbench.envs.searchqa.data import Dataset as Questions
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.data import check_split as _check_split

ENV_ID = "seedbench/DeepSearch-v0"
MOST_ANCHORS = 6


class Dataset(Questions):
    """Questions, and the passages among which they can be answered if those come with them."""

    small = False  # pages of a few sentences: less of each is shown, and 16 steps are enough
    withheld = False  # its questions must not be written in the clear
    corpus: Questions | None = None  # whose passages are searched where none are named

    def anchors(self, question: Question) -> tuple[Anchor, ...]:
        """At most 6 pieces of evidence, none of which holds the answer; none where no evidence is known."""
        return ()


check_split = partial(_check_split, whose="Deep search")


def open_dataset(data: str | Path) -> Dataset:
    """The data set of `data`, opened once a process: "mini", or a folder. Raises SeedbenchError for anything else."""
    return _open(str(data))


@lru_cache(maxsize=4)
def _open(data: str) -> Dataset:
    from seedbench.envs.deepsearch import mini, published  # which build on the nouns above

    if data == "mini":
        return mini.open_mini()
    path = Path(data)
    if (path / mini.LISTING).is_file():
        return mini.open_generated(path)
    if not path.exists():
        raise SeedbenchError(f'{data} is not there; give "mini", or a folder (or file) of questions.')
    return published.Published(path)
