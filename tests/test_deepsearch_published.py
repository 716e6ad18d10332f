"""Published questions: read in every shape, sealed where their authors seal them, split, imported, and played."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.cli import main
from seedbench.core import SeedbenchError
from seedbench.envs.deepsearch.files import check, import_published
from seedbench.envs.deepsearch.published import QUESTIONS, Published
from seedbench.envs.deepsearch.rows import CANARY
from seedbench.envs.deepsearch.sealing import seal, unseal
from seedbench.exam import make_env

ENV = "seedbench/DeepSearch-v0"
SECRET = "Which lighthouse stands on the isle of Vell"


def quiet(done: int, total: int) -> None:
    return None


def write_jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """One file of each kind, as it is published."""
    there = tmp_path / "files"
    there.mkdir()
    with (there / "browse_comp_test_set.csv").open("w", newline="") as out:
        table = csv.DictWriter(out, ["problem", "answer", "problem_topic", "canary"])
        table.writeheader()
        told = {"problem": seal(f"{SECRET}?", "canary one"), "answer": seal("Orrin", "canary one")}
        table.writerow({**told, "problem_topic": "x", "canary": "canary one"})
    docs = [{"docid": "d7", "url": "http://d/7", "text": f"Vell is an isle. {'It rains. ' * 60}"},
            {"docid": "d9", "url": "http://d/9", "text": "Orrin stands there."}]  # fmt: skip
    sealed = [{k: seal(v, "canary two") for k, v in doc.items()} for doc in docs]
    write_jsonl(there / "bcp.jsonl", {
        "query_id": "17", "query": seal(f"{SECRET} now?", "canary two"), "answer": seal("Orrin", "canary two"),
        "gold_docs": sealed[1:], "evidence_docs": sealed, "negative_docs": [],
    })  # fmt: skip
    (there / CANARY).write_text("canary two\n")
    gaia = {"Question": "What is two and two?", "Level": 1, "Final answer": "4", "file_name": ""}
    write_jsonl(there / "metadata.jsonl", {"task_id": "g1", **gaia}, {"task_id": "g2", **gaia, "file_name": "a.pdf"},
                {"task_id": "g3", **gaia, "Final answer": "?"})  # fmt: skip
    (there / "frames.tsv").write_text('\tPrompt\tAnswer\twiki_links\n0\tWho "was" it?\tJane Ballou\t[]\n')
    return there


def test_sealing_is_the_published_cipher_and_needs_the_canary() -> None:
    # By hand: sha256("a") begins ca 97, "hi" is 68 69; ca ^ 68 = a2, 97 ^ 69 = fe; base64 of a2 fe.
    assert seal("hi", "a") == "ov4=" and unseal("ov4=", "a") == "hi"
    text = "a question of more than thirty-two bytes, with an umlaut: ü"
    assert unseal(seal(text, "c"), "c") == text
    for wrong in ("not base64!", "ov4"):
        with pytest.raises(SeedbenchError):
            unseal(wrong, "a")


def test_every_shape_is_read(files: Path) -> None:
    data = Published(files)
    assert {task.kind for task in data.tasks("unseen")} == {"browsecomp", "browsecomp-plus", "gaia", "frames"}
    assert [task.id for task in data.tasks("unseen")] == [task.id for task in data.tasks("paper")]
    assert len(data.tasks("unseen")) == 4 and data.withheld
    plus = data.question("browsecomp-plus/17")
    assert (plus.question, plus.golds) == (f"{SECRET} now?", ("Orrin",))
    assert {page.passage for page in plus.evidence} == {"d7", "d9"}
    (anchor,) = data.anchors(plus)  # the other page holds the answer
    assert (anchor.source, anchor.title) == ("d7", "http://d/7") and anchor.text.startswith("Vell is an isle.")
    assert data.question("gaia/g1").golds == ("4",)
    with pytest.raises(SeedbenchError, match="split train"):
        data.tasks("train")


def test_an_import_has_the_same_digest_and_nothing_of_the_sealed_in_the_clear(files: Path, tmp_path: Path) -> None:
    dest = tmp_path / "imported"
    rows = import_published(files, dest, quiet)
    assert [(row["split"], row["found"]) for row in rows][-1] == ("unseen", 4) and not any(r["damaged"] for r in rows)
    assert "browsecomp has 1 of 1266" in rows[-1]["first"] and "--retriever" in rows[-1]["first"]
    written = "".join(path.read_text() for path in dest.iterdir())
    assert "Vell" not in written and "Orrin" not in written and "Jane Ballou" in written
    assert Published(dest).digest() == Published(files).digest()
    assert Published(dest).question("browsecomp-plus/17") == Published(files).question("browsecomp-plus/17")
    lines = (dest / QUESTIONS).read_text().splitlines()
    (dest / QUESTIONS).write_text("\n".join(lines[1:]) + "\n")
    assert all(row["damaged"] for row in check(str(dest), quiet))
    with pytest.raises(SeedbenchError, match="other questions"):
        import_published(write_jsonl(tmp_path / "x.jsonl", {"question": "a", "answer": "b"}), dest, quiet)


def test_what_its_own_script_decrypted_is_read_too_and_sealed_again(tmp_path: Path) -> None:
    clear = {"query_id": "17", "query": f"{SECRET}?", "answer": "Orrin", "gold_docs": [{"docid": "d9", "text": "x"}]}
    import_published(write_jsonl(tmp_path / "decrypted.jsonl", clear), tmp_path / "in", quiet)
    assert SECRET not in (tmp_path / "in" / QUESTIONS).read_text()
    assert Published(tmp_path / "in").question("browsecomp-plus/17").question == f"{SECRET}?"


def test_pairs_are_split_and_nobody_trains_on_the_test(tmp_path: Path) -> None:
    pairs = [{"id": str(n), "question": f"what is {n}", "answers": [str(n)]} for n in range(400)]
    write_jsonl(tmp_path / "train.jsonl", *pairs)
    write_jsonl(tmp_path / "test.jsonl", {"id": "t", "question": "What is 7", "answer": "7"})
    data = Published(tmp_path)
    sizes = {split: len(data.tasks(split)) for split in ("train", "dev", "seen")}
    assert sizes["train"] + sizes["dev"] == 399 and 0 < sizes["dev"] < 20 and sizes["seen"] == 1


@pytest.mark.parametrize("name, content, match", [
    ("a.jsonl", '{"question": "q"}\n', "a.jsonl"),
    ("a.jsonl", '{"query_id": "1", "query": "b64", "answer": "b64"}\n', "canary"),
    ("a.csv", "problem,answer,canary\nzzz,zzz,c\n", "encrypted"),
    ("a.txt", "hello", "no question"),
    ("a.jsonl", '{"question": "", "answer": "x"}\n', "no question"),
])  # fmt: skip
def test_what_is_no_question_file_is_refused_with_a_sentence(
    tmp_path: Path, name: str, content: str, match: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SeedbenchError, match=match):
        Published(tmp_path)


def test_a_sealed_question_is_in_no_file_of_a_run(files: Path, tmp_path: Path) -> None:
    corpus = write_jsonl(
        tmp_path / "c.jsonl", {"docid": "d7", "text": "Vell is an isle."}, {"docid": "d8", "text": "x y"}
    )
    main(["index", "build", str(corpus), str(tmp_path / "index"), "--kind", "bm25"])
    (files / "frames.tsv").unlink()
    (files / "metadata.jsonl").unlink()
    import_published(files, tmp_path / "in", quiet)
    what = ["--data", str(tmp_path / "in"), "--retriever", str(tmp_path / "index"), "--env", "deepsearch"]
    main(["eval", "--agent", "null", *what, "--split", "unseen", "--out", str(tmp_path / "run"), "--quiet"])
    import gzip

    for path in (tmp_path / "run").iterdir():
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert b"lighthouse" not in raw, path
    main(["verify", str(tmp_path / "run"), "--data", str(tmp_path / "in"), "--retriever", str(tmp_path / "index")])
    env = make_env(ENV, data=tmp_path / "in", retriever=tmp_path / "index", split="unseen")
    assert env.max_steps == 50
    _, info = env.reset(options={"task": "browsecomp-plus/17"})
    assert info["goal"].startswith(SECRET)
    assert env.step("<search>isle Vell</search>")[-1]["evidence"] == 0.5  # type: ignore[typeddict-item]
    with pytest.raises(SeedbenchError, match="--retriever"):
        make_env(ENV, data=tmp_path / "in").reset(options={"task": "browsecomp-plus/17"})


def test_the_frames_questions_at_hand(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "searchqa" / "frames_824_no_wikilinks.jsonl.xz"
    rows = import_published(source, tmp_path / "frames", quiet)
    assert rows[-1]["found"] == 824 and rows[-1]["missing"] == 0
    data = Published(tmp_path / "frames")
    assert data.question("frames/wiki____0").golds == ("Jane Ballou",) and not data.withheld
