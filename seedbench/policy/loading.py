"""From a folder or a hub id to a model and its tokenizer, with every way in which that fails put into one sentence.

Only safetensors are read and no code of a model folder is ever run.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from seedbench.core import Message, SeedbenchError

_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]  # what a hub id brings; no code
_TOKENIZERS = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"]


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
    import httpx
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        try:
            # Asked first, because the download itself knows no time limit for the connection.
            commit = HfApi().model_info(hub_id, timeout=10).sha
        except (httpx.TransportError, OfflineModeIsEnabled):
            return Path(snapshot_download(hub_id, allow_patterns=_FILES, local_files_only=True))
        return Path(snapshot_download(hub_id, allow_patterns=_FILES, revision=commit))
    except (LocalEntryNotFoundError, httpx.TransportError) as e:
        raise SeedbenchError(
            f"{hub_id} is not a folder here, nor a model in the local cache, and the hub cannot be reached; check the "
            "path, or download the model first (and unset HF_HUB_OFFLINE if it is set)."
        ) from e
    except (HfHubHTTPError, HFValidationError) as e:
        why = str(e).strip().splitlines()[0]
        raise SeedbenchError(
            f"{hub_id} is neither a folder here nor a model that the hub gives out ({why}); check the name."
        ) from e


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


def load_tokenizer(folder: Path, chat_template: str | None) -> Any:
    """The tokenizer of `folder`, with a chat template: its own, or the jinja file at `chat_template`."""
    from transformers import AutoTokenizer

    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise SeedbenchError(f"{folder} has no tokenizer: {_TOKENIZERS[0]} is missing; copy it from the base model.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as e:  # tokenizers raises bare Exception on a damaged file
        why = " ".join(str(e).split())[:200]
        raise SeedbenchError(f"The tokenizer in {folder} cannot be loaded ({why}); copy its files again.") from e
    if chat_template is not None:
        try:
            tokenizer.chat_template = Path(chat_template).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise SeedbenchError(f"The chat template {chat_template} cannot be read ({e}); give a jinja file.") from e
    if not tokenizer.chat_template:
        raise SeedbenchError(
            f"The tokenizer in {folder} has no chat template; put a chat_template.jinja into the folder or pass "
            "--chat-template FILE."
        )
    return tokenizer


def check_vocabulary(folder: Path, model: Any, tokenizer: Any) -> None:
    """Raise SeedbenchError if the tokenizer can produce an id that the model has no embedding for."""
    rows = model.get_input_embeddings().num_embeddings
    top = max(tokenizer.get_vocab().values(), default=-1) + 1
    if top > rows:
        raise SeedbenchError(
            f"The tokenizer in {folder} has {top} tokens but the model only {rows} embeddings; "
            "they belong to different models, so copy the right tokenizer."
        )


def merges_system(tokenizer: Any) -> bool:
    """Whether the chat template refuses or drops a system message, found by rendering one."""
    from jinja2 import TemplateError

    user = {"role": "user", "content": "b"}
    try:
        text = render(tokenizer, [{"role": "system", "content": "zqsystem"}, user])
        if "zqsystem" in text:
            return False
    except (TemplateError, TypeError, ValueError):
        pass  # a refusal; what else may be wrong with the template shows in the next line
    try:
        render(tokenizer, [user])
    except (TemplateError, TypeError, ValueError) as e:
        raise SeedbenchError(
            f"The chat template cannot be rendered ({e}); mend it or pass --chat-template FILE."
        ) from e
    return True


def render(tokenizer: Any, messages: list[Message], add_generation_prompt: bool = True) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt)


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a reply: eos of generation config, config and tokenizer, and the template's end of turn."""
    found: set[int] = set()
    for value in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        found |= {value} if isinstance(value, int) else set(value or ())
    return frozenset(found | _end_of_turn(tokenizer))


def _end_of_turn(tokenizer: Any) -> set[int]:
    """The special token that the chat template writes right after an assistant's text, if there is one."""
    from jinja2 import TemplateError

    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "zqreply"}]
    try:
        after = render(tokenizer, turns, add_generation_prompt=False).rpartition("zqreply")[2].lstrip()
    except (TemplateError, TypeError, ValueError):  # a template for prompts only; the eos ids are what is left
        return set()
    first = tokenizer.encode(after, add_special_tokens=False)[:1]
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return special.intersection(first)


def sha256_files(files: list[Path]) -> str:
    """sha256 hex of the files' bytes one after another: what `cat FILES | sha256sum` prints."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as f:
            while block := f.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
