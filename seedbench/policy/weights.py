"""The weight files of a model folder: which ones transformers would load, and that those are safetensors and no others.

What is hashed for run.json is this list, so it has to be exactly what is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.view import visible


def why(error: BaseException) -> str:
    """What an error of foreign code or data says, fit for the middle of a sentence: one line, no control characters."""
    return f"{type(error).__name__}: {shorten(str(error)) or 'no more is said'}"


def shorten(text: str) -> str:
    """At most 200 characters on one line, none of which a terminal would obey."""
    line = " ".join(text.split())
    return visible(line if len(line) <= 200 else line[:200] + "…")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a model folder is loaded from, by name. Raises SeedbenchError if one is unusable.

    As transformers does it: model.safetensors where it is there, else the files that the index names.
    """
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    if not files[0].is_file() and index.is_file():
        files = [folder / name for name in _indexed(index)]
    for file in files:
        if not file.is_file():
            raise SeedbenchError(_no_weights(folder, file.name))
        try:
            with safe_open(file, framework="np"):
                pass
        except (SafetensorError, OSError) as e:
            raise SeedbenchError(f"{file} is damaged or cut short ({why(e)}); copy or download it again.") from e
    return files


def _indexed(index: Path) -> list[str]:
    """The file names in an index of weights. Raises SeedbenchError for any but safetensors files beside it.

    transformers would load another ending as a pickle, and a file of another folder is none of this model's.
    """
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise SeedbenchError(f"{index} is not an index of weights (no weight_map in it); copy it again.")
    for name in names.values():
        if not isinstance(name, str) or not re.fullmatch(r"[^/\\\x00-\x1f]+\.safetensors", name):
            shown = shorten(repr(name))
            raise SeedbenchError(
                f"{index} names the file {shown}, and only *.safetensors files in the same folder are ever loaded; "
                "where you trust the model, load it with transformers and save it again."
            )
    return sorted(set(names.values()))


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises SeedbenchError."""
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise SeedbenchError(f"{file} is not a JSON object ({why(e)}); copy it again.") from e
    if not isinstance(value, dict):
        raise SeedbenchError(f"{file} is not a JSON object (it holds a {type(value).__name__}); copy it again.")
    return value


def _no_weights(folder: Path, expected: str) -> str:
    pickled = sorted(f.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for f in folder.glob(pattern))
    if pickled:
        return (
            f"{folder} has its weights as pickle only ({pickled[0]}), which can run code and is never loaded; where "
            "you trust it, convert it once with AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder), "
            "which writes model.safetensors."
        )
    return f"{folder} has no weights: {expected} is missing; copy it there, or give another folder."


def refuse_adapter(folder: Path) -> None:
    """transformers would apply it without a word, or load the base model that it names instead of this folder."""
    if any((folder / name).exists() for name in ("adapter_config.json", "adapter_model.safetensors")):
        raise SeedbenchError(
            f"{folder} holds an adapter (adapter_config.json or adapter_model.safetensors), and only whole models are "
            "loaded; merge it first with peft (AutoPeftModelForCausalLM.from_pretrained(folder).merge_and_unload()"
            ".save_pretrained(other)) and give the other folder, or move the adapter's files away to play the base."
        )


def sha256_files(files: list[Path]) -> str:
    """sha256 hex of the files' bytes one after another: what `cat FILES | sha256sum` prints."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
