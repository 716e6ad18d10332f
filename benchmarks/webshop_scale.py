"""Memory and speed of a large imported WebShop catalogue, served by several processes.

    python benchmarks/webshop_scale.py --folder SCRATCH [--products 200000] [--processes 4] [--full 1181436]

Makes a catalogue in the original's format (records of about 2.7 kB, text with the word statistics of shop pages),
imports it in a process of its own, lets several processes play in it at once, and prints a table. SCRATCH needs about
3 GB for 200,000 products and is left behind. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.envs.webshop.data import open_dataset
from seedbench.envs.webshop.env import WebShopEnv
from seedbench.envs.webshop.nouns import Lexicon

CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
BATCH = 2000  # products generated at once
VOCABULARY = 120_000  # words, drawn with frequency 1 / rank: about as many distinct terms a product as the original's
FULL = 1_181_436  # products of the original


def words(rng: np.random.Generator, vocabulary: np.ndarray, n: int) -> list[str]:
    """`n` words of a Zipf distribution."""
    rank = np.exp(rng.random(n) * np.log(len(vocabulary))).astype(np.int64) - 1
    return list(vocabulary[rank])


def records(products: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Products in the original's format."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    vocabulary = np.array(["".join(rng.choice(letters, int(n))) for n in rng.integers(3, 11, VOCABULARY)])
    for start in range(0, products, BATCH):
        here = min(BATCH, products - start)
        pool = iter(words(rng, vocabulary, here * 420))

        def text(n: int, pool: Iterator[str] = pool) -> str:
            return " ".join(next(pool) for _ in range(n))

        for i in range(start, start + here):
            sizes = [{"value": s} for s in ("small", "medium", "large")]
            colours = [{"value": text(2)} for _ in range(int(rng.integers(1, 9)))]
            yield {
                "asin": f"B{(i * 2654435761) % 2**31:09X}",
                "name": f"{text(14).title()} model {i}",
                "full_description": text(38),
                "small_description": [text(46 if k else 14) for k in range(6)],
                "pricing": ("", f"${rng.integers(5, 300)}.99", "$8.98 - $11.99")[int(rng.choice(3, p=(0.1, 0.8, 0.1)))],
                "images": [f"https://images.example/{i:012}{'x' * 60}.jpg" for _ in range(4)],
                "product_category": " › ".join(text(2).title() for _ in range(4)),
                "category": CATEGORIES[i % 5],
                "query": text(3),
                "customization_options": {"size": sizes, "color": colours} if i % 5 < 2 else "",
                "average_rating": "4.3",
                "page": 1,
                "model": "",
            }


def generate(folder: Path, products: int) -> None:
    """Write the four files that an import reads: products, attributes, 12,087 human instructions, nouns of titles."""
    folder.mkdir(parents=True, exist_ok=True)
    lexicon, human = Lexicon(), max(1, products // 12_087)
    names = ("items_shuffle", "items_ins_v2", "items_human_ins", "title_nouns")
    items, attributes, instructions, nouns = ((folder / f"{name}.json").open("w") for name in names)
    for file, opening in ((items, "["), (attributes, "{"), (instructions, "{"), (nouns, "[")):
        file.write(opening)
    for i, record in enumerate(records(products)):
        comma = "," if i else ""
        wishes = record["full_description"].split()[:3]
        goal = {"instruction": f"Find me {' '.join(wishes)}", "instruction_attributes": wishes} if i % 12 < 5 else {}
        items.write(comma + json.dumps(record, ensure_ascii=False))
        attributes.write(f"{comma}{json.dumps(record['asin'])}:{json.dumps({'attributes': wishes, **goal})}")
        nouns.write(comma + json.dumps(lexicon.nouns(record["name"])))
        if i % human == 0:
            said = {"instruction": f"I want {record['name']}.", "instruction_attributes": wishes}
            text = json.dumps([{**said, "asin": record["asin"], "instruction_options": ["small"]}])
            instructions.write(f"{comma}{json.dumps(record['asin'])}:{text}")
    for file, closing in ((items, "]"), (attributes, "}"), (instructions, "}"), (nouns, "]")):
        file.write(closing)
        file.close()


def memory(pid: int | str = "self") -> dict[str, float]:
    """MB of a process by kind, from /proc/PID/smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}


def peak() -> float:
    """Largest resident set of this process so far, MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def import_alone(source: Path, dest: Path, pipe: Connection) -> None:
    """Import in this process; send seconds and the peak of its memory."""
    from seedbench.envs.webshop.files import import_published

    private = [0.0]

    def look(done: int, total: int) -> None:
        private[0] = max(private[0], memory()["Anonymous"])

    before = time.perf_counter()
    import_published(source, dest, look)
    pipe.send({"seconds": time.perf_counter() - before, "peak": peak(), "anonymous": private[0]})


def play(folder: Path, number: int, episodes: int, pipe: Connection) -> None:
    """Open the catalogue, play and time, send the times, and stay until told to end."""
    before = time.perf_counter()
    env = WebShopEnv(data=folder)
    tasks = env.tasks("train")
    opened = time.perf_counter() - before
    rng = np.random.default_rng(number)
    resets, queries = [], []
    chosen = [tasks[task].id for task in rng.choice(len(tasks), episodes, replace=False).tolist()]
    for task in chosen:
        before = time.process_time()
        env.reset(options={"task": task})
        resets.append(time.process_time() - before)
    for turn, task in enumerate(chosen):
        query = env.dataset.goal(task).instruction_text.lower()
        before = time.process_time()
        env.catalogue.search(query)
        queries.append(time.process_time() - before)
        if turn % 4 == 0:
            env.reset(options={"task": task})
            while action := env.expert():
                env.step(action)
    again = tasks[0].id
    before = time.process_time()
    for _ in range(1000):
        env.reset(options={"task": again})
    warm = (time.process_time() - before) / 1000
    pipe.send({"opened": opened, "resets": resets, "queries": queries, "warm": warm, "pid": os.getpid()})
    pipe.recv()


def measure(folder: Path, processes: int, episodes: int) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """Times and memory of several processes that play at once."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    for number in range(processes):
        ours, theirs = context.Pipe()
        context.Process(target=play, args=(folder, number, episodes, theirs), daemon=True).start()
        pipes.append(ours)
    times = [pipe.recv() for pipe in pipes]
    found = [memory(said["pid"]) for said in times]
    for pipe in pipes:
        pipe.send("end")
    return times, found


def mapped(folder: Path) -> float:
    """MB of the arrays that a process maps: what could become resident if every page were touched."""
    files = [path for path in folder.rglob("*.npy") if path.name != "rows.data.npy"]
    return sum(path.stat().st_size for path in files) / 2**20


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--products", type=int, default=200_000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--full", type=int, default=FULL)
    args = parser.parse_args()
    source, dest = args.folder / f"source-{args.products}", args.folder / f"store-{args.products}"
    if not (source / "title_nouns.json").exists():
        generate(source, args.products)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    importer = context.Process(target=import_alone, args=(source, dest, theirs))
    importer.start()
    imported = ours.recv()
    importer.join()
    before = time.perf_counter()
    open_dataset(str(dest))
    opened = time.perf_counter() - before
    times, found = measure(dest, args.processes, args.episodes)
    size = (source / "items_shuffle.json").stat().st_size
    pss = sum(m["Pss"] for m in found)
    private = statistics.mean(m["Pss_Anon"] for m in found)
    scale = args.full / args.products
    queries = sorted(t for said in times for t in said["queries"])
    resets = [t for said in times for t in said["resets"]]
    ceiling = mapped(dest) * scale
    rows = [
        ("products; bytes a record", f"{args.products:,}; {size / args.products:,.0f}"),
        ("import, seconds", f"{imported['seconds']:.0f}"),
        ("import, peak resident / private MB", f"{imported['peak']:.0f} / {imported['anonymous']:.0f}"),
        ("open, seconds", f"{opened:.3f}"),
        (f"resident (PSS) of {args.processes} processes together, MB", f"{pss:.0f}"),
        ("  of it private to each, MB", f"{private:.0f}"),
        ("mapped by all together, MB", f"{mapped(dest):.0f}"),
        ("query, median / 99 %, CPU ms", f"{ms(statistics.median(queries))} / {ms(queries[-len(queries) // 100])}"),
        ("reset to a new task / to the same, CPU ms",
         f"{ms(statistics.median(resets))} / {ms(statistics.median(t['warm'] for t in times))}"),
        (f"{args.full:,} products: shared if every mapped page is touched, MB", f"{ceiling:.0f}"),
        (f"  with {args.processes} processes, MB", f"{ceiling + args.processes * private:.0f}"),
        ("  processes within 1.5 GB", f"{(1536 - ceiling) / private:.0f}"),
    ]  # fmt: skip
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
