"""From a folder or a hub id to a model, with every way in which that fails put into one sentence.

Only safetensors are read and no code of a model folder is ever run.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError

_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]  # what a hub id brings; no code


def require_train() -> None:
    """Raise SeedbenchError unless torch and transformers can be imported."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as e:
        raise SeedbenchError(
            f"A local model needs torch and transformers ({e}); install them with `pip install seedbench[train]`."
        ) from e


def find_folder(path_or_hub_id: str) -> Path:
    """The folder itself, or the local snapshot of a hub id (downloaded if the hub can be reached)."""
    folder = Path(path_or_hub_id).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise SeedbenchError(f"{folder} is a file; give the folder that holds config.json and the weights.")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path_or_hub_id):
        raise SeedbenchError(f"There is no folder {path_or_hub_id}; give a model folder, or a hub id such as org/name.")
    return _snapshot(path_or_hub_id)


def _snapshot(hub_id: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        # Asked first, because the download itself knows no time limit for the connection.
        commit = HfApi().model_info(hub_id, timeout=10).sha
        return Path(snapshot_download(hub_id, allow_patterns=_FILES, revision=commit))
    except (HfHubHTTPError, HFValidationError) as e:
        why = str(e).strip().splitlines()[0]
        raise SeedbenchError(
            f"{hub_id} is neither a folder here nor a model that the hub gives out ({why}); check the name."
        ) from e
    except Exception as e:  # no connection: the type is that of the HTTP library, another one in each huggingface_hub
        return _cached(hub_id, e)


def _cached(hub_id: str, failure: Exception) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        why = " ".join(str(failure).split())[:100]
        raise SeedbenchError(
            f"{hub_id} is not a folder here, nor a model in the local cache, and the hub cannot be reached ({why}); "
            "check the path, or download the model first (and unset HF_HUB_OFFLINE if it is set)."
        ) from failure


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, by name. Raises SeedbenchError if one is absent or cut short."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise SeedbenchError(f"{index} is not an index of weights ({e!r}); copy it again.") from e
        files = [folder / Path(name).name for name in sorted(names)]
    else:
        files = [folder / "model.safetensors"]
    for file in files:
        if not file.is_file():
            raise SeedbenchError(_no_weights(folder, file.name))
        try:
            with safe_open(file, framework="np"):
                pass
        except (SafetensorError, OSError) as e:
            raise SeedbenchError(f"{file} is damaged or cut short ({e}); copy or download it again.") from e
    return files


def _no_weights(folder: Path, expected: str) -> str:
    pickled = sorted(f.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for f in folder.glob(pattern))
    if pickled:
        return (
            f"{folder} has its weights as pickle only ({pickled[0]}), which can run code and is never loaded; where "
            "you trust it, convert it once with AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder), "
            "which writes model.safetensors."
        )
    if (folder / "adapter_config.json").is_file():
        return f"{folder} holds an adapter, not a model; merge it into its base model (merge_and_unload) and save that."
    return f"{folder} has no weights: {expected} is missing; copy it there, or give another folder."


def load_model(folder: Path, device: str, dtype: str) -> Any:
    """The causal LM of `folder`, in evaluation mode on `device`. Every tensor must come from the files."""
    import torch
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise SeedbenchError(f"{folder} is no model folder: config.json is missing; give the folder that holds it.")
    weight_files(folder)
    _refuse_remote_code(folder)
    where = pick_device(device)
    auto: Any = AutoModelForCausalLM  # its annotations leave out output_loading_info
    try:
        model, info = auto.from_pretrained(
            str(folder),
            dtype=pick_dtype(dtype, where),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported in `info` instead of raised, and refused below
        )
        missing = sorted({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])})
        if missing:
            raise SeedbenchError(
                f"The weights in {folder} lack {len(missing)} tensors of the shape that its config.json asks for, "
                f"{missing[0]} first; copy the matching config.json and safetensors files."
            )
        return model.to(where).eval()
    except torch.OutOfMemoryError as e:
        raise SeedbenchError(
            f"{folder} does not fit into the memory of {where}; use --device cpu or a smaller model."
        ) from e
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as e:
        why = " ".join(str(e).split())[:200]
        raise SeedbenchError(
            f"{folder} cannot be loaded as a causal language model ({why}); check its config.json."
        ) from e


def _refuse_remote_code(folder: Path) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        kind, mapped = config.get("model_type"), "auto_map" in config
    except (ValueError, AttributeError) as e:
        raise SeedbenchError(f"{folder / 'config.json'} is not a JSON object ({e}); copy it again.") from e
    if kind in CONFIG_MAPPING:
        return
    if mapped:
        raise SeedbenchError(
            f"The model in {folder} ({kind}) needs Python code of its own folder, which is never run; use a model "
            "whose architecture is part of transformers."
        )
    raise SeedbenchError(
        f"The installed transformers does not know the model_type {kind!r} of {folder / 'config.json'}; "
        "upgrade transformers or use another model."
    )


def pick_device(device: str) -> Any:
    """auto: cuda where there is one, else cpu."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        where = torch.device(device)
    except RuntimeError as e:
        raise SeedbenchError(f"There is no device called {device!r}; use auto, cpu, cuda or cuda:N.") from e
    if where.type not in ("cpu", "cuda"):
        raise SeedbenchError(f"The device {device} is not supported; use auto, cpu, cuda or cuda:N.")
    if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
        raise SeedbenchError(
            f"The device {device} is not here (CUDA devices: {torch.cuda.device_count()}); use --device cpu."
        )
    return where


def pick_dtype(dtype: str, device: Any) -> Any:
    """auto: float32 on a CPU (exact and comparable), bfloat16 on a GPU."""
    import torch

    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    known["auto"] = torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in known:
        raise SeedbenchError(f"There is no dtype {dtype!r}; use auto, float32, bfloat16 or float16.")
    return known[dtype]


def sha256_files(files: list[Path]) -> str:
    """sha256 hex of the files' bytes one after another: what `cat FILES | sha256sum` prints."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
