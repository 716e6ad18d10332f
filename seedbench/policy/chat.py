"""The tokenizer of a model folder and what its chat template knows: system role, end of turn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from seedbench.core import Message, SeedbenchError
from seedbench.policy.weights import read_object, shorten, why

_NO_THOUGHTS = "{%- set enable_thinking = false %}"
_TOKENIZERS = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"]


def load_tokenizer(folder: Path, chat_template: str | None) -> Any:
    """The tokenizer of `folder`, with a chat template: its own, or the jinja file at `chat_template`."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise SeedbenchError(f"{folder} has no tokenizer: {_TOKENIZERS[0]} is missing; copy it from the base model.")
    # AutoTokenizer goes by the model's type and would cut words as Qwen2 does, whatever tokenizer.json says.
    kind: Any = PreTrainedTokenizerFast if _own_rules(folder) else AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as e:  # tokenizers raises bare Exception on a damaged file
        raise SeedbenchError(f"The tokenizer in {folder} cannot be loaded ({why(e)}); copy its files again.") from e
    if chat_template is not None:
        try:
            tokenizer.chat_template = Path(chat_template).read_text("utf-8")
        except (OSError, ValueError) as e:  # ValueError: not UTF-8, or no path at all
            raise SeedbenchError(
                f"The chat template {shorten(chat_template)} cannot be read ({why(e)}); give a jinja file."
            ) from e
    if not tokenizer.chat_template:
        raise SeedbenchError(
            f"The tokenizer in {folder} has no chat template; put a chat_template.jinja into the folder or pass "
            "--chat-template FILE."
        )
    return tokenizer


def without_thinking(tokenizer: Any) -> None:
    """Let the chat template, for good, begin replies after the model's own thoughts: Qwen3's enable_thinking off.

    A model folder that is saved with this tokenizer needs no option to be played so. Raises SeedbenchError for a
    template that knows no such switch.
    """
    if "enable_thinking" not in tokenizer.chat_template:
        raise SeedbenchError(
            "--no-thinking: the model's chat template has no switch enable_thinking (Qwen3's has); leave it out."
        )
    if not tokenizer.chat_template.startswith(_NO_THOUGHTS):
        tokenizer.chat_template = _NO_THOUGHTS + tokenizer.chat_template


def _own_rules(folder: Path) -> bool:
    """Whether the tokenizer is one of no model's class: then tokenizer.json alone says how text is cut."""
    file = folder / "tokenizer_config.json"
    if not file.is_file() or not (folder / "tokenizer.json").is_file():
        return False
    return read_object(file).get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")


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
    """Whether the chat template refuses or drops a system message, found by rendering one. Raises SeedbenchError."""
    user = {"role": "user", "content": "b"}
    try:
        text = render(tokenizer, [{"role": "system", "content": "zqsystem"}, user])
        if "zqsystem" in text:
            return False
    except Exception:  # a refusal; what else may be wrong with the template shows in the next line
        pass
    try:
        render(tokenizer, [user])
    except Exception as e:  # a template is a program of its own and may fail as any can: 1/0, recursion, memory
        raise SeedbenchError(
            f"The chat template cannot be rendered ({why(e)}); mend it or pass --chat-template FILE."
        ) from e
    return True


def render(tokenizer: Any, messages: list[Message], add_generation_prompt: bool = True) -> str:
    """The text of `messages`. Raises whatever the template does, and ValueError for text that is not valid Unicode."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt)
    text.encode()  # tokenizers would only say TypeError
    return text


def marks(tokenizer: Any) -> re.Pattern[str]:
    """Finds the special tokens of a tokenizer in a text: turns begin and end with them."""
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    longest_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def apart(text: str, marks: re.Pattern[str]) -> str:
    """`text` with each special token taken apart (<|im_end|> is then read as < |im_end|>), so that no page, product,
    lesson or reply can end its turn and speak in another's name."""
    return marks.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a reply: eos of generation config, config and tokenizer, and the template's end of turn.

    Raises SeedbenchError for an eos_token_id that is none.
    """
    found: set[int] = set()
    for value in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        ids = [] if value is None else value if isinstance(value, list | tuple) else [value]
        if any(type(i) is not int for i in ids):
            raise SeedbenchError(
                f"The model's eos_token_id is {shorten(repr(value))}, which is neither an id nor a list of ids; "
                "mend its config.json or generation_config.json."
            )
        found.update(ids)
    return frozenset(found | _end_of_turn(tokenizer))


def _end_of_turn(tokenizer: Any) -> set[int]:
    """The special token that the chat template writes right after an assistant's text, if there is one."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "zqreply"}]
    try:
        after = render(tokenizer, turns, add_generation_prompt=False).rpartition("zqreply")[2].lstrip()
    except UnicodeEncodeError as e:
        raise SeedbenchError(
            f"The chat template writes text that is not valid Unicode ({why(e)}); mend it or pass --chat-template FILE."
        ) from e
    except Exception:  # a template for prompts only, however it says so; the eos ids are what is left
        return set()
    first = tokenizer.encode(after, add_special_tokens=False)[:1]
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return special.intersection(first)
