"""The embedded encyclopedia: consistent, unambiguous, disjoint, answerable by searching and not from memory."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from seedbench.core import Passage, SeedbenchError
from seedbench.envs import manifests
from seedbench.envs.searchqa import freeze, mini, names, prose, questions
from seedbench.envs.searchqa.data import KINDS, Evidence, Question
from seedbench.envs.searchqa.generate import SIZES, Encyclopedia, generate
from seedbench.envs.searchqa.measure import found_bare, measure, searches
from seedbench.envs.searchqa.oracle import next_action
from seedbench.envs.searchqa.relations import RELATIONS, Both, Chain, Compare, Graph, path_of, solve, trace
from seedbench.envs.searchqa.sentences import FILLERS, SLOTS
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.porter import stem

TRAINED = ("nq", "hotpotqa")
COMMITTED = (
    Path(manifests.__file__).with_name("searchqa_mini.jsonl.xz"),
    Path(mini.__file__).with_name("mini.jsonl.xz"),
)


@pytest.fixture(scope="module")
def data() -> mini.Frozen:
    return mini.open_mini()


@pytest.fixture(scope="module")
def made() -> Encyclopedia:
    return generate(0, 2, SIZES, "searchqa-mini")


@pytest.fixture(scope="module")
def asked(data: mini.Frozen) -> dict[str, list[Question]]:
    return {split: [data.question(task.id) for task in data.tasks(split)] for split in SIZES}


@pytest.fixture(scope="module")
def index(data: mini.Frozen) -> Bm25:
    return Bm25(data.passages())


def message(call: object, *arguments: object, **named: object) -> str:
    with pytest.raises(SeedbenchError) as caught:
        call(*arguments, **named)  # type: ignore[operator]
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


# --- a reader that knows the templates, and nothing of the generator's facts


NAME = r"[A-Z]\w*(?:(?: (?:at|from|in|of|over|to))? [A-Z]\w*)*?"


@cache
def pattern(template: str) -> re.Pattern[str]:
    parts = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(re.escape(literal))
        if name == "name" or name in prose.relations_in(template):
            kind = RELATIONS[name].range if name != "name" else ""
            parts.append(f"(?P<{name}>{ {'year': r'[0-9]{4}', 'number': r'[0-9,]+'}.get(kind, NAME) })")
        elif name:
            parts.append(r"(?:an? [a-z ]+|[a-z ]+|He|She|His|Her|\d+)")
    return re.compile("".join(parts))


def kind_of(passage: Passage) -> str:
    """The kind whose templates read every sentence of the passage."""
    fitting = [k for k in SLOTS if all(any(True for _ in readings(k, passage.title, s)) for s in said(passage))]
    assert len(fitting) == 1, (passage, fitting)
    return fitting[0]


def said(passage: Passage) -> list[str]:
    return prose.sentences(passage.text)


def readings(kind: str, title: str, sentence: str) -> Iterator[dict[str, str]]:
    for template in [t for slot in SLOTS[kind] for t in slot] + list(FILLERS[kind]):
        found = pattern(template).fullmatch(sentence)
        if found and found.groupdict().get("name", title) == title:
            yield {relation: value for relation, value in found.groupdict().items() if relation != "name"}


def told(passage: Passage) -> dict[str, tuple[str, int]]:
    """What a passage says: relation -> (object, place of the sentence)."""
    kind, facts = kind_of(passage), {}
    for place, sentence in enumerate(said(passage)):
        ways = list(readings(kind, passage.title, sentence))
        assert all(way == ways[0] for way in ways), (sentence, ways)
        for relation, value in ways[0].items():
            assert relation not in facts
            facts[relation] = (value, place)
    return facts


# --- the exam paper


def test_the_committed_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    """When the generator is changed on purpose, this test goes; the files stay."""
    new = tmp_path / "manifest.xz", tmp_path / "pack.xz"
    freeze.write_mini(*new)
    for fresh, old in zip(new, COMMITTED, strict=True):
        assert lzma.decompress(fresh.read_bytes()) == lzma.decompress(old.read_bytes())
    assert sum(path.stat().st_size for path in COMMITTED) < 700_000


def test_sizes_ids_and_kinds(data: mini.Frozen, asked: dict[str, list[Question]]) -> None:
    for split, size in {"train": 2000, "dev": 200, "seen": 300, "unseen": 300}.items():
        tasks = data.tasks(split)
        kinds = Counter(task.kind for task in tasks)
        assert len(tasks) >= size and max(kinds.values()) - min(kinds.values()) <= 1
        assert set(kinds) == (set(KINDS) - set(TRAINED) if split == "unseen" else set(TRAINED))
        assert len({task.kind for task in tasks[: len(kinds)]}) == len(kinds)  # the first N are a fair sample
        assert data.pinned(split)
        for task in tasks:
            assert re.fullmatch(rf"searchqa-mini/{task.kind}/[0-9a-f]{{8}}", task.id)
            assert data.manifest.rows[task.id].digest.startswith(task.id[-8:])
    assert "paper" in message(data.tasks, "paper") and "paper" in message(data.tasks, "test")
    assert "No search-QA task" in message(data.question, "searchqa-mini/nq/00000000")


def test_splits_share_no_question_no_gold_passage_and_unseen_no_path(
    data: mini.Frozen, asked: dict[str, list[Question]]
) -> None:
    texts = [q.question for qs in asked.values() for q in qs]
    assert len(set(texts)) == len(texts)
    gold = {split: {e.title for q in qs for e in q.evidence} for split, qs in asked.items()}
    answers = {split: {q.golds[0] for q in qs if not q.golds[0][0].isdigit()} for split, qs in asked.items()}
    for one in SIZES:
        for other in SIZES:
            assert one == other or not (gold[one] | answers[one]) & (gold[other] | answers[other])
    paths = {split: {task.options["path"] for task in data.tasks(split)} for split in SIZES}
    assert paths["dev"] | paths["seen"] <= paths["train"]
    assert not paths["unseen"] & paths["train"] and len(paths["unseen"]) > 60


def test_passages(data: mini.Frozen) -> None:
    passages = data.passages()
    lengths = [len(f"{p.title} {p.text}".split()) for p in passages]
    assert len(passages) >= 3000 and min(lengths) >= 30 and max(lengths) <= 70
    assert 30 <= sum(lengths) / len(lengths) <= 45
    assert len({p.title for p in passages}) == len(passages) == len({p.id for p in passages})
    for p in passages:
        assert p.title in said(p)[0] and re.fullmatch(r"[A-Z].*\.", p.text)
        assert not re.search(r"\ba (?!uni)[aeiou]|\ban [^aeiou]|[{}<>]|  |,,|\.\.", p.text), p.text


def test_names_are_spelled_in_syllables_and_are_no_common_words(data: mini.Frozen) -> None:
    common = {stem(word) for word in prose.common_words()}
    titles = {p.title: kind_of(p) for p in data.passages()[::5]}
    words = {title.split()[-1] for title, kind in titles.items() if kind == "person"}
    words |= {title for title, kind in titles.items() if kind == "city"}
    spelled = re.compile(rf"(?:{'|'.join(names.SYLLABLES)})+[lnr]?")
    assert len(words) > 100 and all(spelled.fullmatch(word.lower()) for word in words)
    assert not {stem(word.lower()) for word in words} & common
    assert len({stem(word.lower()) for word in words}) == len(words)


# --- facts


def test_what_passages_say_is_what_the_world_holds(data: mini.Frozen, made: Encyclopedia) -> None:
    """Each fact stands in one passage, and the sentence that evidence points at states it."""
    passages = {p.title: p for p in data.passages()}
    read = {title: told(p) for title, p in passages.items()}
    for title, facts in read.items():
        for relation, (value, _) in facts.items():
            assert made.graph.facts[title][relation] == value
            if RELATIONS[relation].range not in ("year", "number", "river", "word"):
                assert kind_of(passages[value]) == RELATIONS[relation].range
    graph = Graph({title: {r: v for r, (v, _) in facts.items()} for title, facts in read.items()})
    for split_questions in made.questions.values():
        for question in split_questions:
            form = made.forms[question.id]
            frozen = data.question(question.id)
            assert frozen == question
            assert solve(made.graph, form) == {question.golds[0]}, question  # by all that is true
            if not isinstance(form, Both):
                assert solve(graph, form) == {question.golds[0]}, question  # by what a reader can know
            stated = {(e.title, e.sentence) for e in question.evidence}
            hops = trace(made.graph, form)
            assert {(hop.subject, read[hop.subject][hop.relation][1]) for hop in hops} == stated
            assert {e.passage for e in question.evidence} == {passages[hop.subject].id for hop in hops}


def test_lives_and_works_fit_together(made: Encyclopedia) -> None:
    facts = made.graph.facts
    year = {name: int(known["born"]) for name, known in facts.items() if "born" in known}
    end = {name: int(facts[name]["died"]) for name in year}
    checked: Counter[str] = Counter()
    for name, known in facts.items():
        for relation, least, most in (("father", 20, 48), ("mother", 20, 42), ("teacher", 14, 40), ("spouse", -14, 14)):
            if relation in known:
                checked[relation] += 1
                assert least <= year[name] - year[known[relation]] <= most
        for maker, when in (
            ("director", "released"), ("author", "published"), ("founder", "established"), ("architect", "opened"),
            ("rector", "chartered"), ("composer", "premiere"), ("painter", "painted"), ("winner", "first_held"),
            ("president", "independence"), ("star", "released"), ("score", "released"), ("librettist", "premiere"),
        ):  # fmt: skip
            if maker in known:
                checked[maker] += 1
                assert year[known[maker]] + 17 <= int(known[when]) <= end[known[maker]]
        if "source" in known:
            assert int(facts[known["source"]]["published"]) < int(known["released"])
        if "spouse" in known:
            assert facts[known["spouse"]].get("spouse") != name  # one of the two passages tells of a marriage
    assert len(checked) == 16 and min(checked.values()) > 40
    mayors = [known["mayor"] for known in facts.values() if "mayor" in known]
    presidents = [known["president"] for known in facts.values() if "president" in known]
    assert len({*mayors, *presidents}) == len(mayors) + len(presidents)


def test_solver_by_hand() -> None:
    graph = Graph({
        "F": {"director": "A", "released": "1920"}, "G": {"director": "B", "released": "1930"},
        "H": {"director": "A", "released": "1920"}, "A": {"born": "1890", "birthplace": "T"},
        "B": {"born": "1880", "birthplace": "U"},
    })  # fmt: skip
    assert solve(graph, Chain("F", ("director", "birthplace"))) == {"T"}
    assert solve(graph, Chain("A", ("~director",))) == {"F", "H"}
    assert solve(graph, Both((("director", "A"), ("released", "1920")))) == {"F", "H"}
    assert solve(graph, Compare("F", "G", (), "released", False, ("director",))) == {"A"}
    assert solve(graph, Compare("G", "F", (), "released", True, ("director",))) == {"B"}
    assert solve(graph, Compare("F", "H", (), "released", True, ("director",))) == set()  # of equals neither is later
    assert solve(graph, Compare("F", "G", ("director",), "born", False, ("birthplace",))) == {"U"}
    assert solve(graph, Chain("F", ("sponsor",))) == set()
    assert path_of(Compare("F", "G", ("director",), "born", False, ("birthplace",))) == (
        "director", "earlier:born", "birthplace",
    )  # fmt: skip


# --- questions


def test_no_question_and_no_query_gives_its_answer_away(asked: dict[str, list[Question]]) -> None:
    normal = questions.normal
    for question in (q for qs in asked.values() for q in qs):
        text = f" {normal(question.question)} "
        assert question.golds and all(f" {normal(gold)} " not in text for gold in question.golds), question
        assert question.golds[0].lower() not in ("yes", "no")
        known = question.question
        for hop in question.evidence:
            assert not any(f" {normal(gold)} " in f" {normal(hop.query)} " for gold in question.golds)
            later = [e.title for e in question.evidence if e.title != hop.title and e.title not in known]
            assert not any(f" {title} " in f" {hop.query} " for title in later)
            known += f" {hop.title} {hop.query}"
        assert re.fullmatch(r"\S.*\?", question.question)
        assert question.question[0].isupper() != (question.kind == "nq") and " a " not in f" {question.golds[0]} "


def test_memory_is_of_no_use(asked: dict[str, list[Question]]) -> None:
    """Always the most frequent answer of train scores nearly nothing, and so does the best constant of all."""
    common = {k: Counter(q.golds[0] for q in asked["train"] if q.kind == k).most_common(3) for k in TRAINED}
    overall = Counter(q.golds[0] for q in asked["train"]).most_common(1)[0][0]
    for split in ("dev", "seen", "unseen"):
        for kind in {q.kind for q in asked[split]}:
            held = [q for q in asked[split] if q.kind == kind]
            for guess, _ in [*common.get(kind, []), (overall, 0)]:
                assert sum(guess in q.golds for q in held) <= 1
    for kind, counts in common.items():
        assert counts[0][1] < 0.01 * sum(q.kind == kind for q in asked["train"])


@pytest.mark.parametrize("split", list(SIZES))
def test_the_oracle_answers_and_the_bare_question_does_not(
    split: str, asked: dict[str, list[Question]], index: Bm25
) -> None:
    sample = asked[split][:: 7 if split == "train" else 1]
    needed = [searches(index, question) for question in sample]
    assert sum(n is not None for n in needed) >= 0.99 * len(sample)
    several = [q for q in sample if len({e.passage for e in q.evidence}) > 1]
    assert len(several) > 60 and sum(found_bare(index, q) for q in several) < 0.25 * len(several)


def test_passages_are_found_by_their_titles(data: mini.Frozen, index: Bm25) -> None:
    sample = data.passages()[::4]
    found = index.search([p.title for p in sample], 3)
    assert sum(p.id == hits[0].id for p, hits in zip(sample, found, strict=True)) > 0.99 * len(sample)
    assert all(p.id in {hit.id for hit in hits} for p, hits in zip(sample, found, strict=True))
    assert data.manifest.header["corpus"] == index._meta["corpus"]


def test_oracle_by_hand() -> None:
    hops = (Evidence("p1", "Film", 0, "Film directed"), Evidence("p2", "Ann Bee", 1, "Ann Bee born"))
    question = Question("x", "Where was the director of Film born?", ("Tava",), "hotpotqa", hops)
    assert next_action(question, [], []) == "<search>Film directed</search>"
    assert next_action(question, {"p9"}, ["Film directed"]) == "<search>Film</search>"
    assert next_action(question, {"p1"}, ["Film directed"]) == "<search>Ann Bee born</search>"
    assert next_action(question, {"p1"}, ["Film directed", "Ann Bee born"]) == "<search>Ann Bee</search>"
    assert next_action(question, {"p2"}, ["Film directed"]) == "<search>Film</search>"
    assert next_action(question, {"p2", "p1"}, []) == "<answer>Tava</answer>"
    tried = ["Film directed", "Film", f"Film directed {question.question}"]
    assert next_action(question, [], tried) is None
    assert next_action(Question("x", "q?", ("a",), "nq"), [], []) is None
    blind = Question("x", "Who?", ("a",), "nq", (Evidence("p1", "T"),))
    assert next_action(blind, [], []) == "<search>Who?</search>"
    assert next_action(blind, [], ["Who?"]) == "<search>T</search>"


# --- files


def test_damage_is_refused(tmp_path: Path, data: mini.Frozen) -> None:
    small = {"train": 8, "dev": 4, "seen": 4, "unseen": 5}
    rows = mini.generate_folder(tmp_path, lambda done, total: None, seed=3, level=1, sizes=small)
    assert [(row["split"], row["questions"]) for row in rows] == list(small.items())
    assert all(row["oracle"] == 1 and row["passages"] > 3000 for row in rows)
    made = mini.open_generated(tmp_path)
    task = made.tasks("seen")[0]
    assert not made.pinned("seen") and made.question(task.id).id == task.id
    assert "already" in message(mini.generate_folder, tmp_path, lambda done, total: None, sizes=small)
    pack = tmp_path / mini.PACK
    whole = lzma.decompress(pack.read_bytes())
    question = next(line for line in whole.splitlines() if task.id.encode() in line)
    for old, new, what in (
        (b"town", b"city", "passages"),
        (question, question.replace(b'",["', b'",["The '), "not as its manifest says"),
        (question, question.replace(b'[["p', b'[["q'), "not as its manifest says"),
        (question + b"\n", b"", "not as its manifest says"),
        (question, b'["question"]', "cannot be read"),
        (question, b"{", "cannot be read"),
        (b'["passage",', b"[[],", "passages"),
    ):
        pack.write_bytes(lzma.compress(whole.replace(old, new), preset=0))
        assert what in message(mini.open_generated(tmp_path).question, task.id)
    pack.write_bytes(pack.read_bytes()[:-9])
    assert "cannot be read" in message(mini.open_generated(tmp_path).passages)
    pack.unlink()
    damaged = mini.open_generated(tmp_path)
    assert damaged.tasks("dev") and "cannot be read" in message(damaged.question, task.id)
    (tmp_path / mini.LISTING).write_bytes(b"nothing")
    assert "cannot be read" in message(mini.open_generated, tmp_path)


def test_listing_reads_no_passages() -> None:
    def read() -> bytes:
        raise AssertionError("the pack was read")

    frozen = mini.Frozen(manifests.load(mini.LISTED), read, committed=True)
    assert len(frozen.tasks("seen")) == SIZES["seen"] and frozen.digest()


def test_bad_requests(tmp_path: Path) -> None:
    assert "level 9" in message(generate, 0, 9, {"seen": 4})
    assert "'paper'" in message(generate, 0, 2, {"paper": 4})
    none = {"sizes": {"seen": 0}}
    assert "1 or more" in message(mini.generate_folder, tmp_path, lambda done, total: None, **none)
    (tmp_path / "file").touch()
    assert "cannot be written" in message(mini.generate_folder, tmp_path / "file" / "x", lambda done, total: None)


def test_levels_are_harder_and_larger_sizes_are_filled() -> None:
    sizes = {"seen": 40, "unseen": 40}
    lengths, kinds = [], []
    for level in (1, 4):
        made = generate(1, level, sizes)
        lengths.append(sum(len(p.text.split()) for p in made.passages) / len(made.passages))
        kinds.append([len({e.passage for e in q.evidence}) for q in made.questions["unseen"] if q.kind == "musique"])
        assert measure(Bm25(made.passages), made.questions["seen"])["oracle"] > 0.95
    assert lengths[0] < lengths[1] and max(kinds[0]) == 3 and min(kinds[1]) == 4
    assert len(generate(1, 2, {"dev": 500}).questions["dev"]) == 500


def test_the_same_in_any_process() -> None:
    code = (
        "from seedbench.envs.searchqa.generate import generate; from seedbench.prompts import sha256_json;"
        "made = generate(5, 3, {'dev': 20, 'unseen': 20});"
        "print(sha256_json([made.passages, [[q.id for q in s] for s in made.questions.values()]]))"
    )
    outputs = set()
    for seed in ("0", "4242"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        outputs.add(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)
    assert len(outputs) == 1 and len(outputs.pop()) == 65
