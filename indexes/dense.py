"""Dense retrieval: the passages whose vectors have the largest inner product with the query's.

    build("dense", "wiki-18.jsonl", "wiki_e5", {"encoder": "transformers", "model": "e5-base-v2", "preset": "e5"})
    Dense.of(passages)                        # in memory, with the encoder that works offline

`index` says how vectors are held and searched:

    int8               1 byte a number; all rows are looked at. With an exact encoder (wordllama) hits and scores are
                       the same on any machine; the others drift in the last bits, so they replay by score only
    flat, fp16         4 and 2 bytes; all rows are looked at
    sq8                FAISS's 8-bit quantiser; all rows, smaller than flat and less exact than int8
    ivf, ivf_sq8       FAISS, `lists` inverted lists of which `probes` are looked at
    hnsw, hnsw_sq8     FAISS, a graph of `links` a node (Malkov and Yashunin, 2016)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seedbench.core import Passage, SeedbenchError
from seedbench.indexes import ann, shards
from seedbench.indexes.corpus import Corpus
from seedbench.indexes.encoders import Encoder, from_config, open_encoder
from seedbench.indexes.gpu import TorchRows
from seedbench.indexes.nearest import Hits, Rows, quantise
from seedbench.indexes.records import contents
from seedbench.indexes.scanning import Report

KIND = "dense-1"
SCANS = {"int8": "int8", "flat": "float32", "fp16": "float16"}  # index -> dtype of the rows
GRAPHS = ("sq8", "ivf", "ivf_sq8", "hnsw", "hnsw_sq8")
ENCODER = {"encoder": "wordllama", "model": None, "preset": None, "query_prefix": None, "passage_prefix": None,
           "pooling": None, "max_length": None, "dtype": None, "batch": None}  # fmt: skip
SEARCH = {"index": "int8", "lists": 0, "probes": 16, "links": 32, "ef_construction": 80, "ef_search": 64}
SETTINGS: dict[str, Any] = {**ENCODER, **SEARCH, "device": "cpu"}
# Environment variables, for an index that was built elsewhere: cpu or cuda, and where the encoder's model is here.
DEVICE, MODEL = "SEEDBENCH_DENSE_DEVICE", "SEEDBENCH_DENSE_MODEL"
FACTS = "facts.json"  # what `build` returned
# Which of SEARCH an index depends on, besides itself.
_USES = {"ivf": ("lists", "probes"), "ivf_sq8": ("lists", "probes"), "hnsw": ("links", "ef_construction", "ef_search"),
         "hnsw_sq8": ("links", "ef_construction", "ef_search")}  # fmt: skip


class Engine(Protocol):
    """What finds vectors: Rows, TorchRows, FaissIndex."""

    def top(self, queries: np.ndarray, k: int) -> list[Hits]:
        """At least the k best of each query, unordered."""


class Dense:
    """Search by vectors. `vectors` names the bytes of the vectors or of the index file, for the digest."""

    kind = "dense"

    def __init__(
        self, corpus: Corpus, encoder: Encoder, engine: Engine, settings: Mapping[str, Any], vectors: Mapping[str, str]
    ):
        self._corpus, self._encoder, self._engine = corpus, encoder, engine
        self.exact = encoder.exact and settings["index"] == "int8" and isinstance(engine, Rows)
        used = ("index", *_USES.get(settings["index"], ()))
        self._said = {"corpus": corpus.digest(), "encoder": encoder.digest(), "vectors": dict(vectors),
                      "settings": {name: settings[name] for name in used}, "engine": type(engine).__name__}  # fmt: skip
        self._ranks: np.ndarray | None = None

    @classmethod
    def of(cls, passages: Iterable[Passage], encoder: Encoder | None = None, index: str = "int8") -> Dense:
        """Passages in memory, all rows looked at: `index` is int8, flat or fp16. The same digest as a folder's."""
        corpus = Corpus.of(passages)
        encoder = encoder or open_encoder({"encoder": "wordllama"})
        if index not in SCANS:
            raise SeedbenchError(f"In memory there is no index {index!r}: choose one of {', '.join(SCANS)}.")
        parts = [encoder.encode([contents(p) for p in corpus[i : i + shards.ROWS]], "passage")
                 for i in range(0, len(corpus), shards.ROWS)]  # fmt: skip
        vectors = np.concatenate([np.empty((0, encoder.dim), np.float32), *parts])
        arrays = dict(zip(("vectors", "scales"), quantise(vectors), strict=True)) if index == "int8" else {
            "vectors": vectors.astype(SCANS[index])}  # fmt: skip
        said = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
        engine = Rows(arrays["vectors"], arrays.get("scales"))
        return cls(corpus, encoder, engine, SETTINGS | {"index": index}, said)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first, ties by id; [] for a query without text."""
        if k < 1:
            raise SeedbenchError(f"k is {k}: ask for 1 hit or more.")
        distinct = list(dict.fromkeys(query for query in queries if query.strip()))
        found: dict[str, list[Passage]] = {}
        if distinct and len(self._corpus):
            vectors = self._encoder.encode(distinct, "query")
            seen = np.flatnonzero(vectors.any(axis=1) & np.isfinite(vectors).all(axis=1))
            hits = self._engine.top(vectors[seen], k) if len(seen) else []
            found = {distinct[i]: self._passages(hit, k) for i, hit in zip(seen, hits, strict=True)}
        return [list(found.get(query, ())) for query in queries]

    def _passages(self, hits: Hits, k: int) -> list[Passage]:
        order = np.lexsort((hits.numbers, -hits.scores))
        scores = hits.scores[order]
        if (scores[1:] == scores[:-1]).any():
            order = np.lexsort((self._by_id()[hits.numbers], -hits.scores))
        return [self._corpus[int(hits.numbers[i])]._replace(score=float(hits.scores[i])) for i in order[:k]]

    def _by_id(self) -> np.ndarray:
        """int32 [passages]: the place of each passage among the ids."""
        if self._ranks is None:
            ranks = np.empty(len(self._corpus), np.int32)
            ranks[self._corpus.order] = np.arange(len(ranks), dtype=np.int32)
            self._ranks = ranks
        return self._ranks

    def digest(self) -> str:
        """Names corpus, encoder, vectors (by their bytes) and the settings that the index depends on."""
        return hashlib.sha256(json.dumps([KIND, self._said], sort_keys=True).encode()).hexdigest()

    def close(self) -> None:
        """Nothing is held but memory and mapped files."""


def bytes_needed(count: int, text_bytes: int, settings: Mapping[str, Any]) -> int:
    """Bytes on disk while it is built: the vectors, and for FAISS its index beside them."""
    settings = checked(settings)
    dim = open_encoder(_encoder_settings(settings)).dim
    if settings["index"] in SCANS:
        return shards.bytes_needed(count, dim, SCANS[settings["index"]])
    return shards.bytes_needed(count, dim, "float32") + ann.bytes_needed(settings, count, dim)


def build(corpus: Corpus, folder: Path, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Encode in blocks that a killed build keeps, then, for FAISS, add them in chunks and drop them."""
    settings = checked(settings)
    if (folder / FACTS).exists():  # killed after the last step, before the manifest
        done: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        _tidy(folder, settings)
        return done
    if settings["index"] in GRAPHS:
        ann.load_faiss()  # missing or broken: said before hours of encoding
    encoder = open_encoder(_encoder_settings(settings))
    dtype = SCANS.get(settings["index"], "float32")
    facts = {"encoder": encoder.config(), "dim": encoder.dim,
             "vectors": shards.encode(corpus, encoder, folder, dtype, report)}  # fmt: skip
    if settings["index"] in GRAPHS:
        vectors, _ = shards.load(folder, (len(corpus), encoder.dim), "float32")
        facts["vectors"] = {"index": ann.build(vectors, settings, folder, report)}
        facts["faiss"] = {"version": ann.load_faiss().__version__,
                          "description": ann.description(settings, len(corpus))}  # fmt: skip
    part = folder / f"{FACTS}.part"
    part.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(part, folder / FACTS)
    _tidy(folder, settings)
    return facts


def _tidy(folder: Path, settings: Mapping[str, Any]) -> None:
    """Drop what only an unfinished build needs."""
    (folder / shards.JOURNAL).unlink(missing_ok=True)
    if settings["index"] in GRAPHS:
        (folder / "vectors.npy").unlink(missing_ok=True)


def open(folder: Path, manifest: Mapping[str, Any], corpus: Corpus) -> Dense:
    """A built index. Raises SeedbenchError where the encoder is missing or another, or files are not those built."""
    settings, facts = checked(manifest["settings"]), manifest["facts"]
    device = os.environ.get(DEVICE) or settings["device"]
    try:
        config, shape, vectors = dict(facts["encoder"]), (len(corpus), int(facts["dim"])), dict(facts["vectors"])
    except (KeyError, TypeError, ValueError) as error:
        raise SeedbenchError(f"The manifest in {folder} says too little of its vectors: build it again.") from error
    if config.get("encoder") == "transformers":
        config |= {"device": device, "folder": os.environ.get(MODEL) or config.get("folder")}
    encoder = from_config(config)
    engine: Engine
    if settings["index"] in SCANS:
        rows, scales = shards.load(folder, shape, SCANS[settings["index"]])
        engine = Rows(rows, scales) if device == "cpu" else TorchRows(rows, scales, device)
    else:
        engine = ann.FaissIndex(folder, str(vectors.get("index")), shape, settings, device)
    return Dense(corpus, encoder, engine, settings, vectors)


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings. Raises SeedbenchError for an unknown index or device, or a number that is none."""
    whole = {**SETTINGS, **{name: value for name, value in settings.items() if name in SETTINGS}}
    if whole["index"] not in (*SCANS, *GRAPHS):
        raise SeedbenchError(f"There is no index {whole['index']!r}: choose one of {', '.join((*SCANS, *GRAPHS))}.")
    if whole["device"] not in ("cpu", "cuda"):
        raise SeedbenchError(f"There is no device {whole['device']!r}: choose cpu or cuda.")
    for name in ("lists", "probes", "links", "ef_construction", "ef_search"):
        least = 0 if name == "lists" else 2 if name == "links" else 1
        if not isinstance(whole[name], int) or not least <= whole[name] <= 1 << 24:
            raise SeedbenchError(f"{name} is {whole[name]!r}: give a whole number from {least} up.")
    return whole


def _encoder_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: settings[name] for name in ENCODER if settings[name] is not None}
    if "model" in own:
        own["folder"] = str(Path(own.pop("model")).absolute())
    if own["encoder"] == "transformers":
        own["device"] = settings["device"]
    return own
