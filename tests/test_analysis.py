"""The analysis chain against cases worked out by hand from Lucene's grammar, and the stemmer against nltk's."""

from __future__ import annotations

import random
import string
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.indexes import analysis
from seedbench.indexes.analysis import STOP_WORDS, analyze, tokens
from seedbench.indexes.porter import stem
from tests.conftest import need

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
WAVE = "\U0001f44b\U0001f3fd"
FRANCE, HALF_FLAG = "\U0001f1eb\U0001f1f7", "\U0001f1eb"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    "text, want",
    [
        ("", []),
        (" \t\n\x00\x07 ... !?", []),
        ("e-mail X-ray", ["e", "mail", "X", "ray"]),
        ("3.5oz 1,000.50 50% $9.99", ["3.5oz", "1,000.50", "50", "9.99"]),
        ("don't rock'n'roll '90s'", ["don't", "rock'n'roll", "90s"]),
        ("U.S.A. a.b 1.b a.1", ["U.S.A", "a.b", "1", "b", "a", "1"]),
        ("a:b 1:2 a,b 1,2 1;2", ["a:b", "1", "2", "a", "b", "1,2", "1;2"]),
        ("snake_case _x_ ___ _'_", ["snake_case", "_x_"]),
        ("field:value AND +must -not (x OR y)~2^3 [a TO b] w*",
         ["field:value", "AND", "must", "not", "x", "OR", "y", "2", "3", "a", "TO", "b", "w"]),
        ("na\u00efve caf\u00e9 cafe\u0301", ["na\u00efve", "caf\u00e9", "cafe\u0301"]),
        ("東京都 ひら カタカナー", ["東", "京", "都", "ひ", "ら", "カタカナー"]),
        ("한국어 문서", ["한국어", "문서"]),
        ("ภาษาไทย ไทย123", ["ภาษาไทย", "ไทย", "123"]),
        ('\u05e6\u05d4"\u05dc \u05d2\' a"b', ['\u05e6\u05d4"\u05dc', "\u05d2'", "a", "b"]),
        ("\uff13\uff0e\uff15 \uff21", ["\uff13\uff0e\uff15", "\uff21"]),
        ("new★arrival ☞ ♥ ™x ©", ["new", "★", "arrival", "☞", "♥", "™", "x", "©"]),
        ("\u2660\ufe0f \u2660\ufe0e", ["\u2660\ufe0f", "\u2660"]),
        (f"{FAMILY}{WAVE}", [FAMILY, WAVE]),
        (f"{FRANCE}{FRANCE}{HALF_FLAG}", [FRANCE, FRANCE]),
        (f"#\ufe0f\u20e3 1\ufe0f\u20e3 # {ENGLAND}", ["#\ufe0f\u20e3", "1\ufe0f\u20e3", ENGLAND]),
        ("x\U0001f3fd", ["x", "\U0001f3fd"]),
        ("\u00b8 a\u02e9b \U0001f810", ["a", "b"]),  # letters and pictographs of other versions of Unicode
        ("\ud800a\udc00", ["a"]),
    ],
)  # fmt: skip
def test_tokens_by_hand(text: str, want: list[str]) -> None:
    assert tokens(text) == want


@pytest.mark.parametrize(
    "text, want",
    [
        ("women's WOMEN’S women＇s womens'", ["women", "women", "women", "women"]),
        ("it's who's", ["who"]),  # without the possessive, `it` is a stop word
        ("The hats, that were not for the rain", ["hat", "were", "rain"]),
        (" ".join(sorted(STOP_WORDS)), []),
        ("don't can't", ["don't", "can't"]),
        ("as is us", ["us"]),  # two letters are not stemmed
        ("İstanbul ΣΑΣ", ["istanbul", "σασ"]),  # Java's lower case, character by character
        ("generations technologies possibly", ["gener", "technolog", "possibl"]),
    ],
)
def test_terms_by_hand(text: str, want: list[str]) -> None:
    assert analyze(text) == want


def test_there_are_33_stop_words() -> None:
    assert len(STOP_WORDS) == 33


@pytest.mark.parametrize(
    "text, sizes",
    [
        ("a" * 255, [255]),
        ("a" * 600, [255, 255, 90]),
        ("a" * 254 + "'b", [254, 1]),  # the 255th unit is the apostrophe: no letter after it is in sight
        ("_" * 300 + "ab", [255, 1]),  # starts where the a is the 255th
        ("\U0001d400" * 200, [127, 73]),  # two UTF-16 units each, never split
    ],
)
def test_long_tokens_are_cut_at_255_units(text: str, sizes: list[int]) -> None:
    assert [len(token) for token in tokens(text)] == sizes


# Porter's own examples of 1980, and of his later changes.
PORTER = """
caresses caress ponies poni ties ti caress caress cats cat feed feed agreed agre plastered plaster bled bled motoring
motor sing sing conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss fizzed
fizz failing fail filing file happy happi sky sky relational relat conditional condit rational ration valenci valenc
hesitanci hesit digitizer digit conformabli conform radicalli radic differentli differ vileli vile analogousli analog
vietnamization vietnam predication predic operator oper feudalism feudal decisiveness decis hopefulness hope
callousness callous formaliti formal sensitiviti sensit sensibiliti sensibl triplicate triplic formative form
formalize formal electriciti electr electrical electr hopeful hope goodness good revival reviv allowance allow
inference infer airliner airlin gyroscopic gyroscop adjustable adjust defensible defens irritant irrit replacement
replac adjustment adjust dependent depend adoption adopt homologou homolog communism commun activate activ angulariti
angular homologous homolog effective effect bowdlerize bowdler probate probat rate rate cease ceas controll control
roll roll possibly possibl archaeology archaeolog by by is is yes ye
"""

ENDINGS = """
s ed ing y e ll ion logi bli eed ies sses at iz ou ational tional enci izer alli entli eli ousli ization ation ator
alism iveness fulness aliti biliti icate ative ical ness ement ment able
"""


@pytest.mark.parametrize("word, want", list(zip(PORTER.split()[::2], PORTER.split()[1::2], strict=True)))
def test_porters_examples(word: str, want: str) -> None:
    assert stem(word) == want


def test_stemmer_equals_nltk() -> None:
    try:
        from nltk.stem.porter import PorterStemmer
    except ModuleNotFoundError:
        need(False, "nltk is not installed (it comes with the extra dev)")
    theirs = PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)
    rng = random.Random(0)
    endings = ["", *ENDINGS.split()]
    for _ in range(15_000):
        letters = "".join(rng.choices("aeiouybcdlstzwx", k=rng.randint(0, 6)))
        word = letters + rng.choice(endings) + rng.choice(["", "s", "ed", "ing", "ly", "y", "e"])
        assert stem(word) == theirs.stem(word), word


@given(st.text(alphabet=string.ascii_letters[:4] + string.digits[:3] + "_.:,;'\"-# \n\u200d", max_size=30))
@settings(max_examples=500, deadline=None)
def test_the_pattern_for_ascii_finds_what_the_full_one_finds(text: str) -> None:
    text = text.replace("\u200d", "")
    assert analysis.ASCII_TOKEN.findall(text) == analysis.TOKEN.findall(text)


def test_every_ascii_character_between_others() -> None:
    for form in ("{}", "a{}b", "1{}2", "_{}_", "{}a", "1{}"):
        for text in (form.format(chr(code)) for code in range(128)):
            assert analysis.ASCII_TOKEN.findall(text) == analysis.TOKEN.findall(text), repr(text)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_tokens_that_lie_in_it_in_order(text: str) -> None:
    at = 0
    for token in tokens(text):
        at = text.index(token, at) + len(token)
    assert all(term and term not in STOP_WORDS for term in analyze(text))


@pytest.mark.parametrize(
    "unit",
    ["_", "\u200d", "a", "\u0301", "#", "1,", "_a", "\U0001f44d", "\U0001f44d\u200d", "_\u0301", "#\u0301",
     "\u05d0\"", "\U0001f1eb", "\u0e31"],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "a" * 300 + " ", "\U0001f44d"])
def test_100_kilobytes_of_anything_take_linear_time(unit: str, before: str) -> None:
    start = time.process_time()
    tokens(before + unit * (100_000 // len(unit)))
    assert time.process_time() - start < 10  # about 0.3; quadratic time takes minutes


def test_importing_the_index_loads_no_nltk() -> None:
    code = "import seedbench.indexes.bm25, sys; print([m for m in ('nltk', 'scipy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_regex_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['regex'] = None\nimport seedbench.indexes.bm25"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "SeedbenchError: Searching needs the package `regex`" in done.stderr.splitlines()[-1]
    assert "pip install regex" in done.stderr.splitlines()[-1]
