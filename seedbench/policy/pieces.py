"""Token ids of a prompt line by line, with every line's ids kept: most lines of a prompt were in the one before.

Only for tokenizers that are known to cut there anyway, so that the ids are those of the whole text; any other one
encodes the whole text.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

# Pre-tokenizers none of whose words go on past a line's end when the next line begins with a printable character.
_WORDS = [
    r' ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+',  # the tiny policies'
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]  # fmt: skip
_KNOWN = {
    f'Sequence(pretokenizers=[Split(pattern=Regex("{words}"), behavior=Isolated, invert=False), '
    f"ByteLevel(add_prefix_space=False, trim_offsets={trim}, use_regex=False)])"
    for words in _WORDS
    for trim in (True, False)
}
_LINE = re.compile(r"(?<=\n)(?=[!-~])")
_MOST = 1 << 16  # lines kept


class Pieces:
    """`ids(text)`: what `tokenizer(text, add_special_tokens=False)` gives."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.by_line = cuts_at_lines(tokenizer)
        self._kept: dict[str, list[int]] = {}

    def ids(self, text: str) -> tuple[int, ...]:
        """Ids of `text`, in which special tokens count as what they are."""
        if not self.by_line:
            return tuple(self.tokenizer(text, add_special_tokens=False, padding=False, truncation=False)["input_ids"])
        lines = _LINE.split(text)
        if new := [line for line in dict.fromkeys(lines) if line not in self._kept]:
            if len(self._kept) > _MOST:
                self._kept.clear()
                new = list(dict.fromkeys(lines))
            found = self.tokenizer.backend_tokenizer.encode_batch_fast(new, add_special_tokens=False)
            self._kept.update((line, e.ids) for line, e in zip(new, found, strict=True))
        return tuple(chain.from_iterable(map(self._kept.__getitem__, lines)))


def cuts_at_lines(tokenizer: Any) -> bool:
    """Whether the ids of a text are those of its lines one after another, told from what the tokenizer is made of."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or repr(backend.pre_tokenizer) not in _KNOWN:
        return False
    if repr(backend.normalizer) not in ("None", "NFC()") or type(backend.model).__name__ != "BPE":
        return False
    if backend.truncation is not None or backend.padding is not None:
        return False
    added = tokenizer.added_tokens_decoder.values()
    return not any(t.lstrip or t.rstrip or t.single_word or "\n" in t.content for t in added)
