"""What `seedbench data check|generate|import searchqa` call. `progress(done, total)` counts questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.envs.searchqa import folders, mini
from seedbench.envs.searchqa.data import KINDS, Dataset, Question, open_dataset
from seedbench.envs.searchqa.env import SearchQAEnv
from seedbench.envs.searchqa.folders import Progress
from seedbench.envs.searchqa.published import MANIFEST, PASSAGES, SEEN, UNFINISHED, UNSEEN, Published

SCHEMA = "seedbench.searchqa/1"
# Questions of the published test sets, and of the samples of them that DeepResearcher tests on.
COUNTS = {
    "nq": (3610, 512),
    "triviaqa": (11313, 512),
    "popqa": (14267, 512),
    "hotpotqa": (7405, 512),
    "2wikimultihopqa": (12576, 512),
    "musique": (2417, 512),
    "bamboogle": (125,),
}
GENERATED = (  # what the columns of `generate` mean
    "oracle: share of the questions that the oracle, which knows the hops, answers within 8 turns of 3 passages; "
    "searches: how many it needs; bare: share of the questions of several hops whose last passage their own words find."
)


def check(data: str, progress: Progress) -> list[dict[str, Any]]:
    """Count published questions, and play those that come with their own passages with the oracle.

    One row a split: split, expected, found, missing, damaged, wrong, pinned, solved, first. `missing` is what a set
    that is there lacks of its published number, `damaged` is 1 where the files are no longer those that were imported,
    `solved` counts questions that the oracle wins by searching, `wrong` generated ones that it does not; `first` is the
    first complaint as a sentence.
    """
    dataset = open_dataset(data)
    return _rows(dataset, data, progress)


def import_published(source: Path, dest: Path, progress: Progress) -> list[dict[str, Any]]:
    """Write the questions of `source` (a file or a folder of them) into `dest`, one file a set; returns `check`'s rows.

    The same questions give the same digest in both places. Raises SeedbenchError for files that are missing, broken or
    ambiguous, for a `dest` that holds other questions, and where nothing can be written.
    """
    if not source.exists():
        raise SeedbenchError(f"{source} is not there; name the file or folder of questions.")
    found = Published(source)
    held = folders.held(dest / MANIFEST, SCHEMA)
    if held not in ("", found.digest()):
        raise SeedbenchError(f"{dest} holds other questions already; name another folder, or remove it first.")
    with folders.writing(dest):
        if not held:
            (dest / UNFINISHED).touch()
        for (kind, role), questions in found.groups.items():
            (dest / kind).mkdir(exist_ok=True)
            folders.write_lines(dest / kind / f"{role}.jsonl", map(_row, questions))
        if passages := found.passages():
            folders.write_lines(dest / PASSAGES, ({"id": p.id, "title": p.title, "text": p.text} for p in passages))
        counts = {f"{kind}/{role}": len(found.groups[kind, role]) for kind, role in sorted(found.groups)}
        folders.write_lines(dest / MANIFEST, [{"schema": SCHEMA, "digest": found.digest(), "questions": counts}])
        (dest / UNFINISHED).unlink(missing_ok=True)
    return _rows(Published(dest), str(dest), progress)


def generate(
    dest: Path, progress: Progress, *, seed: int = 0, level: int = 2, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Generate an encyclopedia and questions about it into the folder `dest`: see mini.generate_folder."""
    if folders.held(dest / MANIFEST, SCHEMA):
        raise SeedbenchError(f"{dest} holds questions already; name another folder, or remove it first.")
    return mini.generate_folder(dest, progress, seed=seed, level=level, sizes=sizes)


def _rows(dataset: Dataset, data: str, progress: Progress) -> list[dict[str, Any]]:
    published = isinstance(dataset, Published)
    damaged = published and folders.held(Path(data) / MANIFEST, SCHEMA) not in ("", dataset.digest())
    env = None if dataset.passages() is None else SearchQAEnv(data)
    needs = "Without passages: needs an index of wiki-18 (--retriever)."
    return folders.table(dataset, env, _short if published else None, needs, damaged, progress)


def _short(split: str, kinds: Mapping[str, int]) -> tuple[int, str]:
    """How many questions the sets of a test split lack of their published numbers, and that as a sentence."""
    of_split = {"seen": SEEN, "unseen": UNSEEN}.get(split, ())
    return folders.lacking(COUNTS, {kind: kinds.get(kind, 0) for kind in KINDS if kind in of_split})


def _row(question: Question) -> dict[str, Any]:
    """A question as FlashRAG writes one, and its evidence."""
    told = {"id": question.id.partition("/")[2], "question": question.question}
    known = {"golden_answers": list(question.golds), "data_source": question.kind}
    hops = [{k: v for k, v in asdict(hop).items() if v or k != "text"} for hop in question.evidence]
    return told | known | ({"evidence": hops} if hops else {})
