"""From a folder or a hub id to a model, with every way in which that fails put into one sentence.

Only safetensors are read and no code of a model folder is ever run.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError
from seedbench.policy.weights import read_object, refuse_adapter, shorten, weight_files, why

_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]  # what a hub id brings; no code


def require_train() -> None:
    """Raise SeedbenchError unless torch and transformers can be imported."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as e:
        raise SeedbenchError(
            f"A local model needs torch and transformers ({e}); install them with `pip install -e '.[local]'`."
        ) from e


def find_folder(path_or_hub_id: str) -> Path:
    """The folder itself, or the local snapshot of a hub id (downloaded if the hub can be reached)."""
    # os.path and not Path: a name that is too long or a ~user that is not there is no folder, and raises nothing.
    path = os.path.expanduser(path_or_hub_id)
    if os.path.isdir(path):
        return Path(path)
    shown = shorten(path_or_hub_id)
    if os.path.exists(path):
        raise SeedbenchError(f"{shown} is a file; give the folder that holds config.json and the weights.")
    if not re.fullmatch(r"[\w.-]{1,96}(/[\w.-]{1,96})?", path_or_hub_id):
        raise SeedbenchError(f"There is no folder {shown}; give a model folder, or a hub id such as org/name.")
    return _snapshot(path_or_hub_id)


def _snapshot(hub_id: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        # Asked first, because the download itself knows no time limit for the connection.
        commit = HfApi().model_info(hub_id, timeout=10).sha
        return Path(snapshot_download(hub_id, allow_patterns=_FILES, revision=commit))
    except (HfHubHTTPError, HFValidationError) as e:
        raise SeedbenchError(
            f"{hub_id} is neither a folder here nor a model that the hub gives out ({why(e)}); check the name."
        ) from e
    except Exception as e:  # no connection: the type is that of the HTTP library, another one in each huggingface_hub
        return _cached(hub_id, e)


def _cached(hub_id: str, failure: Exception) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        raise SeedbenchError(
            f"{hub_id} is not a folder here, nor a model in the local cache, and the hub cannot be reached "
            f"({why(failure)}); check the path, or download the model first (and unset HF_HUB_OFFLINE if it is set)."
        ) from failure


def load_model(folder: Path, device: str, dtype: str) -> Any:
    """The causal LM of `folder`, in evaluation mode on `device`. Every tensor must come from the files."""
    import torch
    from transformers import AutoModelForCausalLM

    check_folder(folder, config=False)
    where = pick_device(device)
    kind = pick_dtype(dtype, where)
    auto: Any = AutoModelForCausalLM  # its annotations leave out output_loading_info
    try:
        with _no_progress_bar():
            model, info = auto.from_pretrained(
                str(folder),
                config=_config(folder),
                dtype=kind,
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
    except SeedbenchError:
        raise
    except Exception as e:  # configs are foreign input, and what they make transformers raise is not specified
        raise SeedbenchError(
            f"{folder} cannot be loaded as a causal language model ({why(e)}); check its config.json."
        ) from e


def check_folder(folder: Path, config: bool = True) -> Any:
    """Raise SeedbenchError unless `folder` holds a whole model in safetensors that needs no code of its own; its
    configuration, if that is wanted."""
    refuse_adapter(folder)
    if not (folder / "config.json").is_file() and (folder / "train.json").is_file():
        raise SeedbenchError(
            f"{folder} holds a training run that is not finished: `seedbench train ... --resume {folder}` goes on."
        )
    if not (folder / "config.json").is_file():
        raise SeedbenchError(f"{folder} is no model folder: config.json is missing; give the folder that holds it.")
    weight_files(folder)
    _refuse_remote_code(folder)
    return _config(folder) if config else None


def _config(folder: Path) -> Any:
    """The configuration that transformers makes of the folder. Raises SeedbenchError if it points to other weights."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    if getattr(config, "transformers_weights", None) is not None:
        raise SeedbenchError(
            f"The configuration in {folder} names weights of its own (transformers_weights), which are not supported; "
            "rename that file to model.safetensors and take the entry out."
        )
    return config


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Without the bars of transformers, which would break into ours; afterwards as before."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging

    shown, hub_hidden = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    logging.disable_progress_bar()  # those of the hub, too
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
            if hub_hidden:
                disable_progress_bars()


def _refuse_remote_code(folder: Path) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = read_object(folder / "config.json")
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in CONFIG_MAPPING:
        return
    shown = shorten(repr(kind))
    if "auto_map" in config:
        raise SeedbenchError(
            f"The model in {folder} ({shown}) needs Python code of its own folder, which is never run; use a model "
            "whose architecture is part of transformers."
        )
    raise SeedbenchError(
        f"The installed transformers does not know the model_type {shown} of {folder / 'config.json'}; "
        "upgrade transformers or use another model."
    )


def check_threads(threads: int) -> None:
    """Raise SeedbenchError unless PyTorch can start so many: it ends the process, or worse, where it cannot."""
    most = 4 * (os.cpu_count() or 1)
    if not 0 <= threads <= most:
        raise SeedbenchError(
            f"--threads is {threads}: give 1 to {most} (four for each CPU here), or 0 to let seedbench choose."
        )


def pick_device(device: str) -> Any:
    """auto: cuda where there is one, else cpu. Of a launcher's processes on one machine, each takes the GPU of its
    LOCAL_RANK; where there are fewer GPUs than that, they are shared."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        where = torch.device(device)
    except RuntimeError as e:
        raise SeedbenchError(f"There is no device called {device!r}; use auto, cpu, cuda or cuda:N.") from e
    if where.type not in ("cpu", "cuda"):
        raise SeedbenchError(f"The device {device} is not supported; use auto, cpu, cuda or cuda:N.")
    local = os.environ.get("LOCAL_RANK", "")
    if where.type == "cuda" and where.index is None and local.isdecimal() and torch.cuda.device_count():
        where = torch.device("cuda", int(local) % torch.cuda.device_count())
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
