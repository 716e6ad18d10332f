"""Every way in which a model folder, a name or an option can be wrong gets one sentence. No network."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[train]'")

from seedbench.agents import load_agent  # noqa: E402
from seedbench.agents.local import LocalAgent  # noqa: E402
from seedbench.core import SeedbenchError  # noqa: E402
from seedbench.policy.decoding import Generation  # noqa: E402
from seedbench.policy.hf import HFPolicy  # noqa: E402
from tests.tiny import TEMPLATE, forbid_network, one_sentence, one_torch_thread, tiny_folder, tiny_model, tiny_tokenizer  # noqa: E402


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_network(monkeypatch)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    yield from one_torch_thread()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def cut(file: str, size: int) -> Callable[[Path], object]:
    """Keep the first `size` bytes of a file (negative: all but the last)."""
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:size])


def gone(file: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).unlink()


def config(**change: Any) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change))

    return apply


def one_shard_of_two(folder: Path) -> None:
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors").rename(folder / names["a"])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def adapter_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")


def index_to(name: Any, decoy: str) -> Callable[[Path], object]:
    """Sound weights at `decoy`, and an index that maps every tensor to `name`."""

    def apply(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / decoy)
        (folder / "sub").mkdir()
        shutil.copy(folder / decoy, folder / "sub" / decoy)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"a": name}}))

    return apply


BREAKS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no config": (gone("config.json"), ("config.json is missing",)),
    "config cut": (cut("config.json", 40), ("config.json", "not a JSON object")),
    "config a list": (lambda d: (d / "config.json").write_text("[]"), ("config.json", "not a JSON object")),
    "no weights": (gone("model.safetensors"), ("model.safetensors is missing",)),
    "pickle": (
        lambda d: (d / "model.safetensors").rename(d / "pytorch_model.bin"),
        ("pickle", "pytorch_model.bin", "save_pretrained"),
    ),
    "weights cut": (cut("model.safetensors", -100), ("model.safetensors", "cut short")),
    "weights empty": (cut("model.safetensors", 0), ("model.safetensors", "cut short")),
    "shard gone": (one_shard_of_two, ("model-00002-of-00002.safetensors is missing",)),
    "index broken": (
        lambda d: (gone("model.safetensors")(d), (d / "model.safetensors.index.json").write_text("{}")),
        ("model.safetensors.index.json", "not an index"),
    ),
    "index to a pickle": (
        index_to("sub/x.bin", "x.bin"),
        ("index.json names the file 'sub/x.bin'", "only *.safetensors files in the same folder"),
    ),
    "index to a folder": (index_to("sub/x.safetensors", "x.safetensors"), ("'sub/x.safetensors'", "same folder")),
    "index upwards": (index_to("../x.safetensors", "x.safetensors"), ("'../x.safetensors'", "same folder")),
    "index of numbers": (index_to(5, "x.safetensors"), ("names the file 5",)),
    "index nested": (
        lambda d: (index_to(5, "x")(d), (d / "model.safetensors.index.json").write_text('{"a":' * 100_000)),
        ("index.json is not a JSON object", "RecursionError"),
    ),
    "other weights": (config(transformers_weights="y.safetensors"), ("transformers_weights", "not supported")),
    "adapter": (adapter_only, ("adapter", "merge")),
    "adapter beside": (lambda d: (d / "adapter_config.json").write_text("{}"), ("adapter", "merge_and_unload()")),
    "no tokenizer": (gone("tokenizer.json"), ("no tokenizer", "tokenizer.json is missing")),
    "tokenizer cut": (cut("tokenizer.json", 20), ("tokenizer", "cannot be loaded")),
    "no template": (gone("chat_template.jinja"), ("no chat template", "chat_template.jinja", "--chat-template FILE")),
    "template broken": (cut("chat_template.jinja", 24), ("chat template", "cannot be rendered")),
    "remote code": (
        config(model_type="mine", auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"}),
        ("Python code of its own", "never run"),
    ),
    "unknown type": (config(model_type="from_the_future"), ("from_the_future", "upgrade transformers")),
    "not causal": (config(model_type="clip"), ("causal language model",)),
    "more layers": (config(num_hidden_layers=3, layer_types=["full_attention"] * 3), ("lack", "layers.2")),
    "no positions": (config(max_position_embeddings=None), ("max_position_embeddings", "config.json")),
    "eos of config": (config(eos_token_id=1.5), ("eos_token_id",)),
    "eos of generation": (
        lambda d: (d / "generation_config.json").write_text('{"eos_token_id": 1.5}'),
        ("eos_token_id is 1.5", "generation_config.json"),
    ),
    "size a word": (config(hidden_size="abc"), ("hidden_size",)),
    "no heads": (config(num_attention_heads=0), ("ZeroDivisionError", "check its config.json")),
    "no size": (config(hidden_size=0), ("check its config.json",)),
    "quantized by 5": (config(quantization_config=5), ("check its config.json",)),
    "generation a list": (lambda d: (d / "generation_config.json").write_text("[]"), ("check its config.json",)),
    "mamba": (config(model_type="mamba", layer_types=["full_attention"] * 2), ("check its config.json",)),
    "type a list": (config(model_type=[1]), ("model_type [1]",)),
    "nested": (lambda d: (d / "config.json").write_text('{"a":' * 100_000), ("config.json", "RecursionError")),
    "dtype of config": (config(dtype="nope"), ("nope", "check its config.json")),
    "no window": (config(layer_types=["sliding_attention"] * 2, sliding_window=None), ("loads but cannot run",)),
    "other shape": (config(intermediate_size=64), ("lack", "mlp.")),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_folder_gets_one_sentence(how: str, copy: Path) -> None:
    damage, words = BREAKS[how]
    damage(copy)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(copy, device="cpu")
    one_sentence(e, *words)


def test_the_revision_is_of_the_weights_that_play(copy: Path) -> None:
    """An index beside model.safetensors is not read, by transformers and so by us."""
    shutil.copy(copy / "model.safetensors", copy / "other.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "other.safetensors"}}))
    (copy / "other.safetensors").write_bytes(b"not even weights")
    expected = hashlib.sha256((copy / "model.safetensors").read_bytes()).hexdigest()
    assert HFPolicy.load(copy, device="cpu").describe()["revision"] == expected


TEMPLATES = {
    "{{ 1/0 }}": "ZeroDivisionError",
    "{% for i in range(10**12) %}{% endfor %}": "OverflowError",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "RecursionError",
    "{{ 'a'*10**13 }}": "MemoryError",
    r"{{ raise_exception('no\nway \x1b[2J') }}": r"no way \u001b[2J",
    r"{{ '\ud800' }}": "UnicodeEncodeError",
    TEMPLATE.replace("<|im_end|>", r"{% if m.role == 'assistant' %}{{ '\ud800' }}{% endif %}"): "not valid Unicode",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=TEMPLATES.values())
def test_a_template_that_fails_gets_one_sentence(template: str, copy: Path) -> None:
    (copy / "chat_template.jinja").write_text(template)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(copy, device="cpu")
    one_sentence(e, "chat template", TEMPLATES[template], "--chat-template FILE")


def test_no_progress_bar_leaks_and_the_setting_is_kept(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    logging.enable_progress_bar()
    HFPolicy.load(folder, device="cpu")
    assert "Loading weights" not in capfd.readouterr().err and logging.is_progress_bar_enabled()


@pytest.mark.parametrize("threads", [-1, 1_000_000, 99999999999999])
def test_threads_beyond_reason(threads: int, folder: Path) -> None:
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(folder, device="cpu", threads=threads)
    one_sentence(e, f"--threads is {threads}", "give 1 to ")


@pytest.mark.parametrize("spec", ["x" * 5000, "~nosuch/x", "~nosuch/x:y", "a/" * 3000 + "b:c", "a\0b", "a\nb\x1b[2J"])
def test_names_that_no_system_has(spec: str) -> None:
    with pytest.raises(SeedbenchError) as e:
        load_agent(spec)
    one_sentence(e)
    assert len(str(e.value)) < 600 and "\x1b" not in str(e.value)


def test_links_that_go_in_circles(tmp_path: Path, copy: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (copy / "config.json").unlink()
    (copy / "config.json").symlink_to(copy / "config.json")
    for path in (tmp_path / "loop", copy):
        with pytest.raises(SeedbenchError) as e:
            load_agent(str(path))
        one_sentence(e)


def test_code_in_a_folder_is_never_run(copy: Path) -> None:
    (copy / "modeling_mine.py").write_text("raise SystemExit('code of a model folder was run')")
    config(auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"})(copy)  # the type itself is known to transformers
    assert type(HFPolicy.load(copy, device="cpu").model).__module__.startswith("transformers.")


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(len(tokenizer) - 20).save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(tmp_path, device="cpu")
    one_sentence(e, "tokenizer", str(len(tokenizer)), str(len(tokenizer) - 20))


@pytest.mark.parametrize("offline", [False, True])
def test_a_name_that_is_neither_folder_nor_reachable(offline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if offline:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load("seedbench-tests/no-such-model", device="cpu")
    one_sentence(e, "not a folder", "hub cannot be reached", "HF_HUB_OFFLINE")


def test_a_name_that_the_hub_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import RepositoryNotFoundError

    def unknown(*args: Any, **kwargs: Any) -> None:
        assert kwargs["timeout"] <= 10
        raise RepositoryNotFoundError("404 Client Error.\nRepository Not Found", response=MagicMock())

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unknown)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load("seedbench-tests/no-such-model", device="cpu")
    one_sentence(e, "neither a folder", "404", "check the name")


@pytest.mark.parametrize("offline", [False, True])
def test_a_cached_hub_model_loads_without_network(
    offline: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "models--org--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("a" * 40)
    shutil.copytree(folder, repo / "snapshots" / ("a" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    policy = HFPolicy.load("org/name", device="cpu")
    assert policy.folder == repo / "snapshots" / ("a" * 40)


def test_paths_that_cannot_be_hub_ids(tmp_path: Path, folder: Path) -> None:
    for path, word in ((tmp_path / "nowhere", "no folder"), (folder / "config.json", "is a file")):
        with pytest.raises(SeedbenchError) as e:
            HFPolicy.load(path)
        one_sentence(e, word)


def test_unknown_devices_dtypes_and_templates(folder: Path, tmp_path: Path) -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"device": "gpu9"},
        {"device": "meta"},
        {"dtype": "int3"},
        {"chat_template": str(tmp_path / "no")},
    )
    for wrong in wrongs:
        with pytest.raises(SeedbenchError) as e:
            HFPolicy.load(folder, **wrong)
        one_sentence(e)
    if not torch.cuda.is_available():
        with pytest.raises(SeedbenchError, match="--device cpu"):
            HFPolicy.load(folder, device="cuda:7")
    with pytest.raises(SeedbenchError, match="batch"):
        LocalAgent(str(folder), batch=0)


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_without_the_train_extra(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SeedbenchError) as e:
        HFPolicy.load(folder)
    one_sentence(e, "pip install -e '.[local]'")


def test_bfloat16_where_asked_for(folder: Path) -> None:
    policy = HFPolicy.load(folder, device="cpu", dtype="bfloat16")
    said = policy.generate([(5, 6, 7)], streams=[1], max_new_tokens=4)[0]
    assert policy.describe()["dtype"] == "bfloat16" and isinstance(said, Generation)
