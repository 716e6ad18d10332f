"""`seedbench data`: list, import, check, generate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitSubcommandPrefixes, Positional, subcommand

from seedbench.commands.common import OptInt, lazy


@dataclass(frozen=True)
class DataList:
    """List the environments, their data sets and how many tasks each split holds."""

    data: str = "mini"
    """mini, or a folder of published files."""
    env: str = "all"
    """Comma list of environments, or all."""

    def __call__(self) -> None:
        lazy("seedbench.data", "print_list")(self.env, self.data)


@dataclass(frozen=True)
class DataImport:
    """Verify published files against the committed manifest and copy what an environment needs into one folder."""

    env: Positional[Literal["alfworld", "webshop", "searchqa", "deepsearch"]]
    """Which environment the files belong to."""
    source: Positional[Path]
    """ALFWorld: the folder that holds json_2.1.1, or the published zip archive. WebShop: the folder with the original's
    items_shuffle, items_ins_v2 and items_human_ins files, .json or .json.xz. search-QA: a file or a folder of questions
    as FlashRAG, Search-R1, DeepResearcher, nq_open or HotpotQA publish them, JSONL, JSON or parquet. Deep search: those
    of BrowseComp, BrowseComp-Plus, GAIA, FRAMES, or pairs of question and answer, CSV and TSV too."""
    dest: Positional[Path]
    """Folder to fill; pass it to --data afterwards. An interrupted import goes on where it stopped."""

    def __call__(self) -> None:
        lazy("seedbench.data", "run_import")(self.env, self.source, self.dest)


@dataclass(frozen=True)
class DataCheck:
    """Check every file of a data set against the committed manifest.

    Exit 1 if a file is damaged, differs or is missing from a split that is there. A folder may lack whole splits.
    """

    env: Positional[Literal["alfworld", "webshop", "searchqa", "deepsearch"]]
    """Which environment the files belong to."""
    data: Positional[str] = "mini"
    """mini, or the folder of published or generated files."""

    def __call__(self) -> None:
        lazy("seedbench.data", "run_check")(self.env, self.data)


@dataclass(frozen=True)
class DataGenerate:
    """Make tasks of your own, by the generator that made `mini`; results on them are marked unpinned."""

    env: Positional[Literal["alfworld", "webshop", "searchqa", "deepsearch"]]
    """Which environment to generate for."""
    dest: Positional[Path]
    """New folder; pass it to --data afterwards."""
    seed: int = 0
    """Seed of the generator; another seed gives other tasks."""
    level: int = 2
    """Difficulty, 1 to 4; mini is 2. ALFWorld: more furniture, objects and distractors, and longer episodes.
    WebShop: more near misses, options and attributes asked for, more words said otherwise than the shop does.
    search-QA and deep search: more passages that nearly fit, more words said otherwise; search-QA: more hops. 0, for a
    warm start: ALFWorld without habits, deep search with numbers for answers."""
    train: OptInt = None
    """Tasks of the train split. Without any of the four, as many as mini has; with some, only those splits."""
    dev: OptInt = None
    """Tasks of the dev split."""
    seen: OptInt = None
    """Tasks of the seen split."""
    unseen: OptInt = None
    """Tasks of the unseen split."""

    def __call__(self) -> None:
        given = {split: getattr(self, split) for split in ("train", "dev", "seen", "unseen")}
        sizes = {split: n for split, n in given.items() if n is not None} or None
        lazy("seedbench.data", "run_generate")(self.env, self.dest, self.seed, self.level, sizes)


@dataclass(frozen=True)
class Data:
    """List, import, check and generate the games, goals and questions that environments play."""

    command: OmitSubcommandPrefixes[
        Annotated[DataList, subcommand("list")]
        | Annotated[DataImport, subcommand("import")]
        | Annotated[DataCheck, subcommand("check")]
        | Annotated[DataGenerate, subcommand("generate")]
    ]

    def __call__(self) -> None:
        self.command()
