"""Our BM25 and, where pyserini and Java are installed, real Lucene in the same run: python benchmarks/bm25.py

A generated corpus of short documents with a Zipf vocabulary; queries of 3 to 12 words drawn from it. Prints seconds to
build, memory, and milliseconds a query for the 50 best; CPU time. Lucene's figure includes pyjnius and the fetching of
ids, as a Python program would pay them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from seedbench.indexes.bm25 import Bm25
from tests import lucene

WORDS = 60_000


def words(rng: np.random.Generator, size: int) -> str:
    """`size` words of a Zipf law: the r-th most frequent has a frequency near 1 / r."""
    ranks = np.minimum(WORDS ** rng.random(size), WORDS).astype(int)
    return " ".join(f"{'bcdfgl'[r % 6]}{'aeiou'[r % 5]}{r:x}" for r in ranks)


def documents(count: int) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(0)
    for i in range(count):
        yield f"D{i:07}", words(rng, int(rng.integers(10, 60)))


def memory() -> float:
    """Resident MB of this process."""
    status = Path("/proc/self/status")
    if not status.exists():  # only Linux says
        return float("nan")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def per_query(search: Callable[[str], object], queries: list[str]) -> float:
    """Milliseconds of CPU a query; the first 200 warm up."""
    for query in queries[:200]:
        search(query)
    start = time.process_time()
    for query in queries:
        search(query)
    return (time.process_time() - start) / len(queries) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=1000)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    queries = [words(rng, int(rng.integers(3, 13))) for _ in range(args.queries)]
    before, start = memory(), time.process_time()
    for _ in documents(args.documents):
        pass
    generating, start = time.process_time() - start, time.process_time()
    index = Bm25(documents(args.documents))
    ours_built = time.process_time() - start - generating
    print(f"{args.documents} documents, {args.queries} queries, 50 hits, CPU time")
    print(f"bm25    build {ours_built:6.1f} s   memory +{memory() - before:.0f} MB", end="   ")
    ours = per_query(lambda query: index.top(query, 50), queries)
    print(f"query {ours:.3f} ms")
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
        start = time.process_time()
        loaded = Bm25.load(folder)
        print(f"        saved {size:.0f} MB   load {time.process_time() - start:.2f} s", end="   ")
        print(f"query {per_query(lambda query: loaded.top(query, 50), queries):.3f} ms")
    if reason := lucene.missing():
        print(f"lucene  not run: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        peer = lucene.Lucene(Path(folder), documents(args.documents))
        built = time.process_time() - start - generating
        theirs = per_query(lambda query: peer.search(query, 50), queries)
        print(f"lucene  build {built:6.1f} s   {'':14}   query {theirs:.3f} ms   ({peer.version})")
        print(f"ratio lucene / bm25: build {built / ours_built:.2f}, query {theirs / ours:.2f}")
        same = all([(p.id, p.score) for p in index.search([q], 50)[0]] == peer.search(q, 50) for q in queries[:200])
        print(f"same hits and scores on 200 queries: {same}")


if __name__ == "__main__":
    main()
