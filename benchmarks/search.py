"""Search in process and over HTTP, in CPU milliseconds a query of the process that searches, beside Search-R1's server.

    python benchmarks/search.py --peer SEARCH_R1_CHECKOUT

A generated corpus: 100,000 passages of 60 to 100 words of a Zipf law, in the shape of wiki-18; the commonest words are
those that Lucene's English analyzer leaves out, as in English. Queries of 3 to 12 such words, none twice; 3 passages a
query. Without --peer the ratios are to figures that were measured elsewhere (PEER).
`--work DIR` keeps corpus and indexes for the next run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import search_http, search_peer
from seedbench.indexes.analysis import STOP_WORDS

PEER = {"batch": 1.4, "single": 2.9, "concurrent": 2.3}  # CPU-ms: Search-R1 a14dc3a, 100,000 passages, another 2 cores
K = 3
WORDS = 60_000
STOP = sorted(STOP_WORDS)


def words(rng: np.random.Generator, size: int) -> str:
    """`size` words of a Zipf law over 60,000: the r-th most frequent has a frequency near 1 / r."""
    ranks = np.minimum(WORDS ** rng.random(size), WORDS).astype(int) - 1
    made = (f"{'bcdfgl'[r % 6]}{'aeiou'[r % 5]}{r:x}" for r in ranks)
    return " ".join(STOP[r] if r < len(STOP) else word for r, word in zip(ranks, made, strict=True))


def write_corpus(path: Path, count: int) -> Path:
    """`count` passages, the same ones whenever it is called."""
    if not path.exists():
        rng = np.random.default_rng(0)
        part = path.with_suffix(".part")
        with part.open("w") as out:
            for i in range(count):
                title, text = words(rng, 2), words(rng, int(rng.integers(60, 101)))
                out.write(json.dumps({"id": str(i), "contents": f'"{title}"\n{text}'}) + "\n")
        part.replace(path)
    return path


def queries(seed: int) -> Iterator[str]:
    """Queries without end; no two seeds share a stream."""
    rng = np.random.default_rng([1, seed])
    while True:
        yield words(rng, int(rng.integers(3, 13)))


def take(source: Iterator[str], count: int) -> list[str]:
    return [next(source) for _ in range(count)]


def index(work: Path, kind: str, count: int) -> Path:
    """An index folder of ours over the first corpus of that size, built unless it is there."""
    from seedbench.indexes import folder

    path = work / f"{kind}-{count}"
    folder.build(kind, write_corpus(work / f"corpus-{count}.jsonl", count), path, say=lambda text: None)
    return path


def inside(path: str, warming: int, count: int) -> None:
    """Run in a process of its own: CPU-ms a query, in batches of 256 and singly, resident MB; printed as JSON."""
    from seedbench.indexes.folder import open_index

    retriever, source = open_index(path), queries(2)
    for _ in range(0, warming, 256):
        retriever.search(take(source, 256), K)
    figures = {}
    for name, size in (("batch", 256), ("single", 1)):
        asked = take(source, count)
        began = time.process_time()
        for i in range(0, count, size):
            retriever.search(asked[i : i + size], K)
        figures[name] = 1000 * (time.process_time() - began) / count
    figures["rss"] = search_http.resident("self")
    print(json.dumps(figures))


def in_process(path: Path, warming: int, count: int) -> dict[str, float]:
    """`inside`, run."""
    command = [sys.executable, __file__, "--inside", str(path), str(warming), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def dense(rows: int) -> None:
    """Exact search of 384-d vectors: our int8 and float32 rows, and FAISS as it comes."""
    from seedbench.indexes.nearest import Rows, quantise

    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((rows, 384), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked = vectors[:512] + np.float32(0.05)

    def per_query(search: object, size: int) -> float:
        assert callable(search)
        search(asked[:256])
        began = time.process_time()
        for i in range(0, 512 if size > 1 else 64, size):
            search(asked[i : i + size])
        return 1000 * (time.process_time() - began) / (512 if size > 1 else 64)

    searches = {"int8 rows": Rows(*quantise(vectors)), "float32 rows": Rows(vectors)}
    figures = {name: [per_query(lambda q, s=s: s.top(q, K), size) for size in (256, 1)] for name, s in searches.items()}
    try:
        import faiss
    except ModuleNotFoundError:
        print("faiss is not installed: not compared")
    else:
        flat = faiss.IndexFlatIP(384)
        flat.add(vectors)
        figures["faiss flat"] = [per_query(lambda q: flat.search(q, K), size) for size in (256, 1)]
    print(
        f"dense, exact, {rows} x 384: "
        + ", ".join(f"{n} {b:.2f} batch {s:.2f} single" for n, (b, s) in figures.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="a checkout of Search-R1")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=5120, help="measured of each kind")
    parser.add_argument("--warming", type=int, default=8192, help="queries before: Java compiles what is used often")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.inside[0], int(args.inside[1]), int(args.inside[2]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        measure(work, args)


def measure(work: Path, args: argparse.Namespace) -> None:
    """Print every figure; CPU-ms a query throughout."""
    big = index(work, "lucene", args.passages)
    lucene = in_process(big, args.warming, args.queries)
    print(f"lucene in process, {args.passages} passages: {_figures(lucene)} (batch target 0.5)")
    small = {kind: in_process(index(work, kind, 10_000), args.warming, 2048) for kind in ("bm25", "lucene")}
    ratio = small["bm25"]["batch"] / small["lucene"]["batch"]
    print(f"10,000 passages: bm25 {_figures(small['bm25'])}; lucene {_figures(small['lucene'])}; "
          f"bm25 / lucene {ratio:.2f} (target 3)")  # fmt: skip
    plan = search_http.Plan(args.warming, args.queries, K)
    with search_http.ours(big, cache=0) as (port, pid):
        mine = search_http.figures(port, pid, plan, queries(4))
    print(f"seedbench serve search: {_figures(mine)} (RSS target 600)")
    theirs = PEER
    if args.peer is None:
        print(f"Search-R1's server was not run (--peer); its figures from elsewhere: {_figures(theirs)}")
    else:
        with search_peer.serving(args.peer, work, work / f"corpus-{args.passages}.jsonl") as (port, pid):
            theirs = search_http.figures(port, pid, plan, queries(4))
        print(f"Search-R1's retrieval_server.py: {_figures(theirs)}")
    print("Search-R1 / seedbench: " + ", ".join(f"{n} {theirs[n] / mine[n]:.1f}" for n in PEER)
          + f" (targets: batch 2, others 3); Search-R1's batch over HTTP / our batch in process: "
          f"{theirs['batch'] / lucene['batch']:.1f}")  # fmt: skip
    with search_http.ours(big, cache=10_000) as (port, pid):
        search_http.rollouts(port, pid, plan, queries(5))
    dense(args.passages)


def _figures(found: dict[str, float]) -> str:
    return ", ".join(f"RSS {v:.0f} MB" if n == "rss" else f"{v:.2f} {n}" for n, v in found.items())


if __name__ == "__main__":
    main()
