"""Approximate search with FAISS: scalar quantiser, inverted lists, HNSW. And what keeps FAISS from harm here.

FAISS reads its index files in C++ without much suspicion, so a file is read only after its digest was compared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.core import InfrastructureError, SeedbenchError, stream
from seedbench.indexes.encoders import sha256
from seedbench.indexes.nearest import Hits
from seedbench.indexes.scanning import Report
from seedbench.indexes.threads import cpus, environment

INDEX = "index.faiss"
CHUNK = 65_536  # rows added at a time
MARGIN = 16  # hits beyond k that are asked for, so that ties at the k-th can go by id
PER_LIST = 64  # training vectors a list
UPLOAD_SECONDS = 300.0
NEEDS = "pip install faiss-cpu"


def distributions() -> list[str]:
    """The installed distributions that bring a package `faiss`, by name."""
    names = {str(d.metadata["Name"]).lower().replace("_", "-") for d in metadata.distributions()}
    return sorted(n for n in names if n == "faiss" or n.startswith(("faiss-cpu", "faiss-gpu", "faiss-cuda")))


def load_faiss() -> Any:
    """FAISS, with matrix products for batches (its wheel never uses them at a batch of 256 otherwise, which is several
    times slower). Raises SeedbenchError where it is missing, or two distributions wrote over each other."""
    found = distributions()
    if len(found) > 1:
        raise SeedbenchError(
            f"{' and '.join(found)} are all installed and write over each other: pip uninstall {' '.join(found)}, then "
            f"install one of them."
        )
    try:
        with environment(OMP_WAIT_POLICY="PASSIVE"):
            import faiss
    except ImportError as error:
        raise SeedbenchError(f"This index needs FAISS ({error}): {NEEDS}") from error
    faiss.cvar.distance_compute_blas_threshold = 20
    faiss.omp_set_num_threads(cpus())
    return faiss


def description(settings: Mapping[str, Any], count: int) -> str:
    """FAISS's own name of the index that settings ask for."""
    lists = number_of_lists(settings, count)
    return {
        "sq8": "SQ8",
        "ivf": f"IVF{lists},Flat",
        "ivf_sq8": f"IVF{lists},SQ8",
        "hnsw": f"HNSW{settings['links']},Flat",
        "hnsw_sq8": f"HNSW{settings['links']},SQ8",
    }[settings["index"]]


def number_of_lists(settings: Mapping[str, Any], count: int) -> int:
    """`lists`, or for 0 four times the square root of the corpus; never so many that FAISS cannot train them well."""
    return max(1, min(settings["lists"] or round(4 * count**0.5), count // 39))


def bytes_needed(settings: Mapping[str, Any], count: int, dim: int) -> int:
    """Bytes of the finished index file (and of memory while it is built)."""
    row = {"sq8": dim, "ivf": 4 * dim + 8, "ivf_sq8": dim + 8}.get(settings["index"])
    if row is None:
        row = (dim if settings["index"] == "hnsw_sq8" else 4 * dim) + 8 * settings["links"] + 24
    lists = number_of_lists(settings, count) * (4 * dim + 16) if settings["index"].startswith("ivf") else 0
    return count * row + lists + 65_536


def build(vectors: np.ndarray, settings: Mapping[str, Any], folder: Path, report: Report) -> str:
    """Write an index of `vectors` (float32 [n, dim], memory-mapped) and return the sha256 of its file."""
    faiss = load_faiss()
    count, dim = vectors.shape
    index = faiss.index_factory(dim, description(settings, count), faiss.METRIC_INNER_PRODUCT)
    if settings["index"].startswith("hnsw"):
        index.hnsw.efConstruction = settings["ef_construction"]
    if not index.is_trained:
        index.train(_sample(vectors, PER_LIST * max(number_of_lists(settings, count), 256)))
    for start in range(0, count, CHUNK):
        index.add(np.ascontiguousarray(vectors[start : start + CHUNK]))
        report(min(start + CHUNK, count), count)
    part = folder / f"{INDEX}.part"
    faiss.write_index(index, str(part))
    os.replace(part, folder / INDEX)
    return sha256(folder / INDEX)


def _sample(vectors: np.ndarray, most: int) -> np.ndarray:
    if len(vectors) <= most:
        return np.ascontiguousarray(vectors)
    rng = np.random.default_rng(stream("dense index", "train", len(vectors)))
    return np.ascontiguousarray(vectors[np.sort(rng.choice(len(vectors), most, replace=False))])


class FaissIndex:
    """An index file, mapped into memory where FAISS can. Raises SeedbenchError unless it is the file that was built."""

    def __init__(self, folder: Path, digest: str, shape: tuple[int, int], settings: Mapping[str, Any], device: str):
        path = folder / INDEX
        if sha256(path) != digest:
            raise SeedbenchError(f"{path} is not the file that was built: copy it again, or build the index again.")
        faiss = load_faiss()
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            why = " ".join(str(error).split())[-200:]
            raise SeedbenchError(f"FAISS {faiss.__version__} cannot read {path} ({why}): build it again.") from error
        if (index.ntotal, index.d) != shape:
            raise SeedbenchError(f"{path} holds {index.ntotal} vectors, not {shape[0]}: build the index again.")
        if settings["index"].startswith("ivf"):
            index.nprobe = min(settings["probes"], index.nlist)
        self._hnsw = settings["index"].startswith("hnsw")
        self._ef = settings["ef_search"]
        self._faiss = faiss
        self._index = index if device == "cpu" else to_gpu(faiss, index)
        self._lock = threading.Lock()

    def top(self, queries: np.ndarray, k: int) -> list[Hits]:
        """As Rows.top, but for what an approximate index misses; of ties with the k-th, the first few."""
        wanted = min(k + MARGIN, self._index.ntotal)
        if not wanted or not len(queries):
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
        with self._lock:
            if self._hnsw:
                self._index.hnsw.efSearch = max(self._ef, wanted)
            scores, numbers = self._index.search(np.ascontiguousarray(queries, np.float32), wanted)
        return [Hits(n[n >= 0], s[n >= 0]) for n, s in zip(numbers, scores, strict=True)]


def to_gpu(faiss: Any, index: Any) -> Any:
    """The index on the first GPU, vectors in float16. Some wheels hang here without a word, so it has a time limit."""
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        raise SeedbenchError(
            "device is cuda, but this FAISS sees no GPU: pip uninstall faiss-cpu, then pip install "
            "'.[search-gpu]', or set SEEDBENCH_DENSE_DEVICE=cpu."
        )
    if not hasattr(index, "nprobe"):
        raise SeedbenchError("Of FAISS's indexes only ivf and ivf_sq8 run on a GPU here: set the device to cpu.")
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    resources = faiss.StandardGpuResources()
    moved = within(UPLOAD_SECONDS, lambda: faiss.index_cpu_to_gpu(resources, 0, index, options))
    moved.resources = resources  # must live as long as the index
    return moved


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns. Raises InfrastructureError when it takes longer; its thread is left behind."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((work(), None))
        except Exception as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise InfrastructureError(f"FAISS did not move the index to the GPU in {seconds:.0f} s: use device cpu.")
    result, error = found[0]
    if error is not None:
        raise InfrastructureError(f"FAISS cannot move the index to the GPU ({error}): use device cpu.") from error
    return result
