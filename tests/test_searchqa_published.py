"""Published question files in every shape: splits, ids, refusals, import; and the real files where they are at hand."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from seedbench.envs.searchqa import data, folders
from seedbench.envs.searchqa.data import KINDS
from seedbench.envs.searchqa.files import COUNTS, check, import_published
from seedbench.envs.searchqa.published import Published
from seedbench.envs.searchqa.rows import kind_of, kind_of_file, role_of_file
from seedbench.exam import make_env
from seedbench.indexes.bm25 import Bm25
from tests import searchqa_island
from tests.conftest import need


def quiet(done: int, total: int) -> None:
    assert done <= total


def put(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def flashrag(prefix: str, n: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"{prefix}_{i}", "question": f"{prefix} {i}?", "golden_answers": [f"a{i}"], **more} for i in range(n)
    ]


def test_a_flashrag_tree(tmp_path: Path) -> None:
    """One folder a set; test goes before dev; train is of nq and hotpotqa alone, less what the tests ask."""
    put(tmp_path / "nq" / "test.jsonl", flashrag("nq-test", 3))
    put(tmp_path / "nq" / "dev.jsonl", flashrag("nq-dev", 9))
    put(
        tmp_path / "nq" / "train.jsonl",
        [*flashrag("nq-train", 300), {"question": "NQ-TEST 1?", "golden_answers": ["x"]}],
    )
    put(tmp_path / "hotpotqa" / "dev.jsonl", flashrag("hotpot-dev", 2))
    put(tmp_path / "hotpotqa" / "train.jsonl", flashrag("hotpot-train", 300))
    for kind in KINDS:
        if kind not in ("nq", "hotpotqa"):
            put(tmp_path / kind / "test.jsonl", flashrag(kind, 2))
    put(tmp_path / "musique" / "train.jsonl", flashrag("musique-train", 5))
    found = Published(tmp_path)
    ids = {split: [task.id for task in found.tasks(split)] for split in ("train", "dev", "seen", "unseen", "paper")}
    assert ids["seen"] == [
        "nq/nq-test_0",
        "nq/nq-test_1",
        "nq/nq-test_2",
        "hotpotqa/hotpot-dev_0",
        "hotpotqa/hotpot-dev_1",
    ]
    assert [i.split("/")[0] for i in ids["unseen"]] == [k for k in KINDS if k not in ("nq", "hotpotqa") for _ in "ab"]
    assert len(ids["paper"]) == 15 and set(ids["paper"]) == set(ids["seen"]) | set(ids["unseen"])
    assert len(ids["train"]) + len(ids["dev"]) == 600 and 1 <= len(ids["dev"]) <= 15
    assert not set(ids["train"]) & set(ids["dev"])
    assert {found.question(i).question.lower() for i in ids["train"]} & {"nq-test 1?"} == set()
    assert found.passages() is None and not found.pinned("seen")
    assert found.question("nq/nq-test_1").golds == ("a1",)


def test_dev_does_not_depend_on_what_else_is_there(tmp_path: Path) -> None:
    put(tmp_path / "a" / "nq_train.jsonl", flashrag("t", 1000))
    put(tmp_path / "b" / "nq_train.jsonl", flashrag("t", 2000))
    few, many = ({t.id for t in Published(tmp_path / name).tasks("dev")} for name in "ab")
    assert few and few == {t for t in many if int(t.rpartition("_")[2]) < 1000}


def test_search_r1_parquet(tmp_path: Path) -> None:
    need(find_spec("pyarrow"), "parquet files need pyarrow (the train extra brings it)")
    import pyarrow
    from pyarrow import parquet

    rows = [
        {
            "data_source": source,
            "id": f"test_{n}",
            "question": " who? ",
            "golden_answers": None if n else ["x"],
            "prompt": [{"role": "user", "content": "Answer."}],
            "reward_model": {"style": "rule", "ground_truth": {"target": ["y", "z"]}},
            "extra_info": {"split": "test", "index": n},
        }
        for n, source in enumerate(["nq", "searchR1_hotpotqa", "bamboogle"])
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    found = Published(tmp_path)
    assert [t.id for t in found.tasks("seen")] == ["nq/test_0", "hotpotqa/test_1"]
    assert found.question("nq/test_0").golds == ("x",) and found.question("bamboogle/test_2").golds == ("y", "z")
    (tmp_path / "test.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SeedbenchError, match="no whole parquet file"):
        Published(tmp_path)


def test_deepresearcher_and_nq_open(tmp_path: Path) -> None:
    put(tmp_path / "d.jsonl", [
        {"id": "tq_1", "data_source": "tq", "question": "who?", "golden_answers": ["a<|answer_split|>b"]},
        {"id": "x", "data_source": "Bamboogle", "question": "what?",
         "golden_answers": "c<|answer_split|> <|answer_split|>d"},
        {"id": "x", "data_source": "2wiki", "question": "where?", "golden_answers": ["e"]},
    ])  # fmt: skip
    found = Published(tmp_path / "d.jsonl")
    assert [t.id for t in found.tasks("unseen")] == ["triviaqa/tq_1", "2wikimultihopqa/x", "bamboogle/x"]
    assert found.question("triviaqa/tq_1").golds == ("a", "b") and found.question("bamboogle/x").golds == ("c", "d")
    put(tmp_path / "nq_open.dev.jsonl", [{"question": "when was it", "answer": ["1972", "December 1972"]}])
    nq = Published(tmp_path / "nq_open.dev.jsonl")
    (task,) = nq.tasks("seen")
    assert task.id.startswith("nq/") and len(task.id) == 19 and task.kind == "nq"
    assert (
        Published(put(tmp_path / "natural-questions.jsonl", [{"question": "when  was it", "answer": ["1972"]}]))
        .tasks("seen")[0]
        .id
        == task.id
    )  # a digest of the question, wherever it stands


def test_hotpotqa_in_both_shapes(tmp_path: Path) -> None:
    columns = searchqa_island.rows()
    pairs = [
        {
            "_id": row["id"],
            "question": row["question"],
            "answer": row["answer"],
            "supporting_facts": list(zip(*row["supporting_facts"].values(), strict=True)),
            "context": list(zip(*row["context"].values(), strict=True)),
        }
        for row in columns
    ]
    one = Published(put(tmp_path / "hotpotqa.jsonl", columns))
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps(pairs))
    two = Published(tmp_path / "hotpot_dev_distractor_v1.json")
    assert one.digest() == two.digest() and one.tasks("seen") == two.tasks("seen")
    passages = {p.id: p for p in one.passages() or ()}
    assert len(passages) == len(searchqa_island.PLACES) and list(passages) == sorted(passages)
    hops = one.question("hotpotqa/q0").evidence
    assert [(passages[h.passage].title, h.title, h.sentence) for h in hops] == [
        ("Orrin Lighthouse", "Orrin Lighthouse", 1),
        ("Mara Quint", "Mara Quint", 1),
    ]
    assert passages[hops[1].passage].text == "Mara Quint was an engineer. She was born in Dallow."


@pytest.mark.parametrize("pack, ending", [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_packed_files(tmp_path: Path, pack: Any, ending: str) -> None:
    plain = put(tmp_path / "nq.jsonl", flashrag("q", 20))
    packed = tmp_path / f"nq.jsonl{ending}"
    packed.write_bytes(pack(plain.read_bytes()))
    assert Published(packed).digest() == Published(plain).digest()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(SeedbenchError, match="cut short"):
        Published(packed)


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("nq.jsonl", '{"question": "a?", "answer": ["b"]}\n{"questi', "line 2 is not JSON"),
        ("nq.jsonl", "<!doctype html>\n", "line 1 is not JSON .*or a page"),
        ("nq.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("nq.jsonl.gz", "version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
        ("nq.parquet", "version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
        ("nq.jsonl", "[1]\n", "line 1 is no JSON object"),
        ("nq.json", '{"a": 1}', "no list of questions"),
        ("nq.jsonl", '{"question": "a?", "answer": [" "]}\n', "line 1 has no answer that is not empty"),
        ("nq.jsonl", '{"question": "a?", "answer": [1]}\n', "line 1 holds no question with its answers as texts"),
        ("nq.jsonl", '{"question": " ", "answer": ["b"]}\n', "line 1 holds no question"),
        ("nq.jsonl", '{"question": "a?", "answer": ["b"]}\n{"question": "c?"}\n', "line 2 is no question"),
        (
            "nq.jsonl",
            '{"id": 1, "question": "a?", "answer": "b"}\n{"id": 1, "question": "c?", "answer": "d"}\n',
            "line 2 has the id",
        ),
        ("quiz.jsonl", '{"question": "a?", "answer": ["b"]}\n', "let its name begin with one of them"),
        ("x.jsonl", '{"data_source": "web_questions", "question": "a?", "answer": ["b"]}\n', "is of web_questions"),
        ("hotpotqa.jsonl", '{"question": "a?", "answer": "b", "context": [["t"]]}\n', "no readable sentences"),
        (
            "hotpotqa.jsonl",
            '{"question": "a?", "answer": "b", "context": [["t", "s"]]}\n',
            "no list of titles and sentences",
        ),
        (
            "hotpotqa.jsonl",
            '{"question": "a?", "answer": "b", "context": [["t", ["s"]]], "supporting_facts": [["t", null]]}\n',
            "supporting facts that are no titles and numbers",
        ),
        ("corpus.jsonl", '{"title": "a", "text": "b"}\n', "holds no questions"),
        ("notes.txt", "nothing", "holds no questions"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SeedbenchError, match=says):
        Published(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    for content in (b'{"question": "\xff"}\n', b"PAR1\xd7", '{"question": "a?"}'.encode("utf-16")):
        (tmp_path / "nq.jsonl").write_bytes(content)
        with pytest.raises(SeedbenchError, match="is not UTF-8 text"):
            Published(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    plain = put(tmp_path / "nq.jsonl", flashrag("n", 2))
    (tmp_path / "nq_test.jsonl").write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    assert Published(tmp_path / "nq_test.jsonl").digest() == Published(plain).digest()


def test_half_surrogate_pairs_can_be_imported(tmp_path: Path) -> None:
    """JSON can say them, UTF-8 cannot: they are read as U+FFFD, so that files can be written and digests agree."""
    context = {"context": [["T\udfff", ["s \ud800."]]], "supporting_facts": [["T\udfff", 0]]}
    row = {"question": "who \ud800?", "answer": "x\udfff", **context}
    source = put(tmp_path / "source" / "hotpotqa.jsonl", [row])
    import_published(source, tmp_path / "dest", quiet)
    before, after = Published(source), Published(tmp_path / "dest")
    assert before.digest() == after.digest()
    question = after.question(after.tasks("seen")[0].id)
    assert (question.question, question.golds, question.evidence[0].title) == ("who \ufffd?", ("x\ufffd",), "T\ufffd")
    assert [(p.title, p.text) for p in after.passages() or ()] == [("T\ufffd", "s \ufffd.")]


def test_two_files_with_the_same_set(tmp_path: Path) -> None:
    put(tmp_path / "nq.jsonl", flashrag("a", 1))
    put(tmp_path / "nq-open.jsonl", flashrag("b", 1))
    with pytest.raises(SeedbenchError, match=r"both hold test questions of nq"):
        Published(tmp_path)


def test_splits_that_are_not_there(tmp_path: Path) -> None:
    found = Published(put(tmp_path / "nq.jsonl", flashrag("a", 1)))
    for split, says in (
        ("train", "no question of the split train"),
        ("paper", "triviaqa, popqa"),
        ("test", "no split"),
    ):
        with pytest.raises(SeedbenchError, match=says):
            found.tasks(split)
    with pytest.raises(SeedbenchError, match="No question has the id"):
        found.question("nq/zzz")


@pytest.mark.parametrize("name", ["nq", "NQ", "nq_open", "searchR1_nq", "natural_questions"])
def test_names_of_sets(name: str) -> None:
    assert kind_of(name) == "nq"


def test_names_of_files() -> None:
    assert kind_of("web_questions") is None
    assert [kind_of_file(Path(p)) for p in ("2wiki/dev.jsonl", "x/hotpot_dev_v1.json", "popqa.jsonl", "x/y.jsonl")] == [
        "2wikimultihopqa", "hotpotqa", "popqa", None,
    ]  # fmt: skip
    assert [role_of_file(Path(p)) for p in ("nq/train.jsonl", "nq-open.dev.jsonl.xz", "validation.parquet", "nq.jsonl",
                                            "restraint.jsonl")] == ["train", "dev", "dev", "test", "test"]  # fmt: skip


def test_without_an_index_questions_are_listed_and_not_played(tmp_path: Path) -> None:
    env = make_env("seedbench/SearchQA-v0", data=put(tmp_path / "nq.jsonl", flashrag("a", 1)))
    assert len(env.tasks("seen")) == 1
    for call in (env.digest, lambda: env.reset(options={"task": "nq/a_0"})):
        with pytest.raises(SeedbenchError, match="seedbench index build"):
            call()


def test_import(tmp_path: Path) -> None:
    source = searchqa_island.write(tmp_path / "source")
    put(source / "nq" / "test.jsonl", flashrag("n", 512))
    rows = import_published(source, tmp_path / "dest", quiet)
    found = {row["split"]: row for row in rows}
    assert found["seen"]["found"] == 515 and found["seen"]["missing"] == 7405 - 3 and found["seen"]["damaged"] == 0
    assert found["seen"]["first"].startswith("hotpotqa has 3 of 7405 published questions.")  # 512 is DeepResearcher's
    assert found["unseen"] == {"split": "unseen", "expected": 0, "found": 0, "missing": 0, "damaged": 0, "wrong": 0,
                               "pinned": False, "solved": 0, "first": ""}  # fmt: skip
    before, after = Published(source), Published(tmp_path / "dest")
    assert before.digest() == after.digest() and before.tasks("seen") == after.tasks("seen")
    assert before.passages() == after.passages() and before.question("hotpotqa/q0") == after.question("hotpotqa/q0")
    assert import_published(source, tmp_path / "dest", quiet) == rows  # again, and nothing changes
    other = put(tmp_path / "other" / "nq.jsonl", flashrag("m", 1))
    with pytest.raises(SeedbenchError, match="holds other questions already"):
        import_published(other, tmp_path / "dest", quiet)
    assert not list((tmp_path / "dest").rglob("*.part"))


def test_an_import_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no data set of fewer questions: it is refused until the same command has ended."""
    source = searchqa_island.write(tmp_path / "source")
    put(source / "nq" / "test.jsonl", flashrag("n", 3))
    write, calls = folders.write_lines, iter((True, False))

    def full(path: Path, rows: Iterable[Any]) -> None:
        if not next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, rows)

    monkeypatch.setattr(folders, "write_lines", full)
    with pytest.raises(SeedbenchError, match="the disk is full; free some space and run the same command again"):
        import_published(source, tmp_path / "dest", quiet)
    with pytest.raises(SeedbenchError, match="has not finished: run the same"):
        Published(tmp_path / "dest")
    monkeypatch.undo()
    import_published(source, tmp_path / "dest", quiet)
    assert Published(tmp_path / "dest").digest() == Published(source).digest()


def test_a_changed_import_is_damaged(tmp_path: Path) -> None:
    import_published(searchqa_island.write(tmp_path / "source"), tmp_path / "dest", quiet)
    file = tmp_path / "dest" / "hotpotqa" / "test.jsonl"
    file.write_text(file.read_text().replace("the Senn", "the Thames"))
    data._open.cache_clear()  # a process opens a folder once
    rows = check(str(tmp_path / "dest"), quiet)
    assert all(row["damaged"] == 1 and "import them again" in row["first"] for row in rows)
    (tmp_path / "dest" / "searchqa.json").write_text("{")
    with pytest.raises(SeedbenchError, match="cannot be read"):
        check(str(tmp_path / "dest"), quiet)


# The real files


def test_real_counts(shared_data: Path) -> None:
    folder = shared_data / "searchqa"
    nq = Published(folder / "nq_nq-open.dev.jsonl.xz")
    assert len(nq.tasks("seen")) == COUNTS["nq"][0] == 3610
    sample = Published(folder / "deepresearcher_test.jsonl.xz")
    assert (len(sample.tasks("seen")), len(sample.tasks("unseen")), len(sample.tasks("paper"))) == (1024, 2173, 3197)
    with pytest.raises(SeedbenchError, match="frames"):
        Published(folder)


RECALL = {(1.2, 0.75): (0.645, 0.760, 0.915), (0.9, 0.4): (0.615, 0.750, 0.905)}  # at 3, 5, 10


@pytest.mark.parametrize("setting", RECALL, ids=str)
def test_real_recall(shared_data: Path, setting: tuple[float, float]) -> None:
    """100 questions of HotpotQA over their own 1,000 passages; the specification measured .645, .750, .905."""
    found = Published(shared_data / "searchqa" / "hotpotqa_distractor_100_with_contexts.jsonl.xz")
    passages, tasks = found.passages() or (), found.tasks("seen")
    assert (len(passages), len(tasks)) == (1000, 100)
    index = Bm25(passages, *setting)
    questions = [found.question(t.id) for t in tasks]
    found = index.search([q.question for q in questions], 10)
    for k, expected in zip((3, 5, 10), RECALL[setting], strict=True):
        shares = []
        for question, hits in zip(questions, found, strict=True):
            gold = {hop.passage for hop in question.evidence}
            shares.append(len(gold & {hit.id for hit in hits[:k]}) / len(gold))
        assert sum(shares) / 100 == pytest.approx(expected, abs=1e-9), (setting, k)


def test_real_questions_are_won_by_the_oracle(shared_data: Path) -> None:
    rows = check(str(shared_data / "searchqa" / "hotpotqa_distractor_100_with_contexts.jsonl.xz"), quiet)
    seen = next(row for row in rows if row["split"] == "seen")
    assert (seen["solved"], seen["wrong"], seen["missing"]) == (98, 0, 7305)  # two titles are not among three hits
