"""The embedded questions: answerable in one way only, by all that the passages say; disjoint; new patterns unseen."""

from __future__ import annotations

import lzma
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from seedbench.core import Passage, SeedbenchError
from seedbench.envs import manifests
from seedbench.envs.deepsearch import freeze, mini, rehearse
from seedbench.envs.deepsearch.data import MOST_ANCHORS
from seedbench.envs.deepsearch.generate import SIZES, Search, generate
from seedbench.envs.deepsearch.patterns import FEWEST, MOST, patterns
from seedbench.envs.searchqa.data import Question
from seedbench.envs.searchqa.questions import normal
from seedbench.envs.searchqa.relations import RELATIONS
from seedbench.envs.searchqa.retrieval import K1, B
from seedbench.indexes.bm25 import Bm25
from tests.test_searchqa_world import told

COMMITTED = (
    Path(manifests.__file__).with_name("deepsearch_mini.jsonl.xz"),
    Path(mini.__file__).with_name("mini.jsonl.xz"),
)


@pytest.fixture(scope="module")
def data() -> mini.Frozen:
    return mini.open_mini()


@pytest.fixture(scope="module")
def asked(data: mini.Frozen) -> dict[str, list[Question]]:
    return {split: [data.question(task.id) for task in data.tasks(split)] for split in SIZES}


@pytest.fixture(scope="module")
def made() -> Search:
    return generate(0, 2, SIZES, "deepsearch-mini")


@pytest.fixture(scope="module")
def facts(data: mini.Frozen) -> dict[str, dict[str, str]]:
    """What the passages say, read by templates and not taken from the generator: subject -> relation -> object."""
    return {p.title: {r: value for r, (value, _) in told(p).items()} for p in data.passages()}


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    """When the generator is changed on purpose, this test goes; the files stay."""
    new = tmp_path / "manifest.xz", tmp_path / "pack.xz"
    freeze.write_mini(*new)
    for fresh, old in zip(new, COMMITTED, strict=True):
        assert lzma.decompress(fresh.read_bytes()) == lzma.decompress(old.read_bytes())


def test_sizes_kinds_and_spread(data: mini.Frozen, asked: dict[str, list[Question]]) -> None:
    for split, least in {"train": 600, "dev": 100, "seen": 200, "unseen": 200}.items():
        kinds = Counter(question.kind for question in asked[split])
        assert len(asked[split]) >= least and set(kinds) == {f"{n}-hop" for n in range(FEWEST, MOST + 1)}
        assert max(kinds.values()) - min(kinds.values()) <= 1
        golds = Counter(normal(question.golds[0]) for question in asked[split])
        assert max(golds.values()) <= len(asked[split]) / 20, golds.most_common(3)


def parts(pattern: str) -> tuple[str, list[list[str]], list[str]]:
    kind, _, rest = pattern.partition(": ")
    constraints, _, tail = rest.partition(" > ")
    return kind, [path.split(".") for path in constraints.split(" & ")], tail.split(".")


def test_one_thing_fits_all_facts_and_no_single_fact_singles_it_out(
    data: mini.Frozen, made: Search, facts: dict[str, dict[str, str]]
) -> None:
    """By trying every subject of the world, once with the facts that passages tell and once with all there are."""
    worlds = (_World(facts), _World(made.facts.facts))
    for split in SIZES:
        for task in data.tasks(split):
            question, form = data.question(task.id), made.forms[task.id]
            kind, paths, tail = parts(task.options["path"])
            assert (kind, [list(path) for path, _ in form.constraints]) == (kind, paths)
            assert all(value in question.question for _, value in form.constraints)
            assert FEWEST <= sum(map(len, paths)) + len(tail) <= MOST
            for world in worlds:
                alone = [{n for n, end in world.ends(kind, p).items() if end == v} for p, v in form.constraints]
                (hub,) = set.intersection(*alone)
                assert min(map(len, alone)) >= 2
                assert world.end(hub, tail) == question.golds[0]


class _World:
    """Facts by subject, walked forwards only: nothing here goes back from an object, as the generator does."""

    def __init__(self, facts: Mapping[str, Mapping[str, str]]):
        self.facts = facts
        self.kept: dict[tuple[str, tuple[str, ...]], dict[str, str | None]] = {}

    def end(self, name: str, path: Iterable[str]) -> str | None:
        for step in path:
            if step not in self.facts.get(name, {}):
                return None
            name = self.facts[name][step]
        return name

    def ends(self, kind: str, path: tuple[str, ...]) -> dict[str, str | None]:
        """Where a path leads from every subject of a kind."""
        if (kind, path) not in self.kept:
            able = [n for n, of in self.facts.items() if any(RELATIONS[r].domain == kind for r in of)]
            self.kept[kind, path] = {name: self.end(name, path) for name in able}
        return self.kept[kind, path]


def test_the_evidence_tells_the_way(data: mini.Frozen, asked: dict[str, list[Question]]) -> None:
    """Every fact of the way is in its sentences, and the last of the way to the answer names the answer."""
    texts = {p.id: p for p in data.passages()}
    for questions in asked.values():
        for question in questions:
            sentences = [_sentence(texts[hop.passage], hop.sentence) for hop in question.evidence]
            assert any(question.golds[0] in sentence for sentence in sentences)
            said = normal(question.question)
            assert not any(f" {normal(gold)} " in f" {said} " for gold in question.golds)


def _sentence(passage: Passage, place: int) -> str:
    from seedbench.envs.searchqa.prose import sentences

    return sentences(passage.text)[place]


def test_splits_share_no_subject_no_fact_and_unseen_no_pattern(
    data: mini.Frozen, asked: dict[str, list[Question]]
) -> None:
    pages = {split: {hop.passage for q in questions for hop in q.evidence} for split, questions in asked.items()}
    for one, other in combinations(SIZES, 2):
        assert not pages[one] & pages[other]
    shapes = {split: {task.options["path"] for task in data.tasks(split)} for split in SIZES}
    trained = shapes["train"] | shapes["dev"] | shapes["seen"]
    assert not trained & shapes["unseen"]
    tails = {split: {(p.kind, p.tail) for p in patterns(split)} for split in ("train", "unseen")}
    assert not tails["train"] & tails["unseen"]
    pairs = {s: {(p.kind, frozenset(c)) for p in patterns(s) for c in combinations(p.paths, 2)} for s in tails}
    assert not pairs["train"] & pairs["unseen"]
    assert shapes["seen"] <= {f"{p.kind}: {_told(p.paths)} > {'.'.join(p.tail)}" for p in patterns("train")}


def _told(paths: tuple[tuple[str, ...], ...]) -> str:
    return " & ".join(".".join(path) for path in paths)


def test_the_oracle_walks_every_question_with_steps_to_spare(
    data: mini.Frozen, asked: dict[str, list[Question]]
) -> None:
    index = Bm25(data.passages(), k1=K1, b=B)
    needed = [rehearse.steps(index, question) for questions in asked.values() for question in questions]
    assert all(n is not None and n <= 12 for n in needed)


def test_anchors_stand_in_the_passages_and_hold_no_answer(data: mini.Frozen, asked: dict[str, list[Question]]) -> None:
    texts = {p.id: p for p in data.passages()}
    for question in (question for questions in asked.values() for question in questions):
        anchors = data.anchors(question)
        assert 1 <= len(anchors) <= MOST_ANCHORS
        for anchor in anchors:
            assert anchor.title == texts[anchor.source].title and anchor.text in texts[anchor.source].text
            assert not any(f" {normal(gold)} " in f" {normal(anchor.text)} " for gold in question.golds)


def test_a_generated_folder_plays_and_damage_is_told(tmp_path: Path) -> None:
    sizes = {"seen": 8, "unseen": 4}
    rows = mini.generate_folder(tmp_path / "a", lambda done, total: None, seed=3, level=3, sizes=sizes)
    assert [(row["split"], row["questions"]) for row in rows] == [("seen", 8), ("unseen", 4)]
    there = mini.open_generated(tmp_path / "a")
    assert len(there.tasks("seen")) == 8 and not there.pinned("seen") and len(there.passages()) > 3000
    with pytest.raises(SeedbenchError, match="no question of the split train"):
        there.tasks("train")
    lines = [line for line in lzma.decompress((tmp_path / "a" / mini.PACK).read_bytes()).splitlines() if line]
    (tmp_path / "a" / mini.PACK).write_bytes(lzma.compress(b"\n".join(lines[1:])))
    with pytest.raises(SeedbenchError, match="generate it again"):
        mini.open_generated(tmp_path / "a").question(there.tasks("seen")[0].id)


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    def refused(match: str, **what: object) -> None:
        with pytest.raises(SeedbenchError, match=match):
            mini.generate_folder(tmp_path / "x", lambda done, total: None, **what)  # type: ignore[arg-type]

    refused("level", level=9)
    refused("not for 'paper'", sizes={"paper": 3})
    refused("1 or more", sizes={"seen": 0})


def test_level_0_asks_for_numbers_alone() -> None:
    made = generate(0, 0, {"train": 8, "seen": 4})
    assert all(gold.isdecimal() for some in made.questions.values() for q in some for gold in q.golds)
    assert {split: len(some) for split, some in made.questions.items()} == {"train": 8, "seen": 4}
    assert {q.kind for q in made.questions["train"]} == {"3-hop", "4-hop", "5-hop", "6-hop"}
    with pytest.raises(SeedbenchError, match="3-hop questions for unseen"):
        generate(0, 0, {"unseen": 4})
