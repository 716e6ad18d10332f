"""Text to index terms, as Lucene's English analyzer makes them (Lucene 8.11, Anserini's default for BM25).

The chain: word breaks of Unicode Annex 29 with emoji sequences as tokens, 's taken off, lower case, 33 stop words out,
Porter stems. The word-break classes come from the `regex` library; pictographs stand here in the form of Unicode 12.1,
because later versions took ★, ☞ and their like out of the class, which would lose their tokens and change the length
of every document that has one.

Confessed: characters that Unicode assigned after Lucene's tables were made count as what they are today; a letter that
is a pictograph too (ⓜ, ℹ) takes no emoji along that a ZWJ joins to it. Lucene 9 and 10 differ from 8.11 in one thing
that these characters' owners may meet: their tables make a skin tone part of the letter before it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate

from seedbench.core import SeedbenchError
from seedbench.indexes.porter import stem

try:
    import regex
except ModuleNotFoundError as problem:
    raise SeedbenchError(
        "Searching needs the package `regex`, which is not installed: run pip install regex."
    ) from problem

ANALYSIS = "lucene-english-1"  # part of every index's digest: change it when any term changes
MAX_TOKEN = 255  # UTF-16 units; Lucene cuts what is longer
STOP_WORDS = frozenset([
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
])  # fmt: skip
PICTOGRAPHS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3"
    "\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705"
    "\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767"
    "\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a"
    "\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f"
    "\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001fffd"
)
SKIN_TONES = "\U0001f3fb-\U0001f3ff"
JOINER = r"[_\u202f\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f]"  # WB=ExtendNumLet
# What changed class after Unicode 12.1: signs that are letters now, and format characters that are letters or numbers.
SIGNS = "\u00b8\u02e5-\u02eb\u055a\u055f\u058a\ua708-\ua716"
FORMATS = "\u0600-\u0605\u06dd\u070f\u08e2\U000110bd\U000110cd"


def _word(letter: str, digit: str, kana: str, hebrew: str, extend: str, mid_letter: str, mid_number: str) -> str:
    """Letters, numbers and Katakana with what may stand between them (WB5 to WB13b). Greedy is longest here."""
    letter, digit, kana, hebrew = (one + extend for one in (letter, digit, kana, hebrew))
    joiner = rf"(?:{JOINER}{extend})"
    # Only a Hebrew letter keeps a quote after it (WB7a to WB7c); in Lucene not one that a mark ties to a letter before.
    tied = rf"(?<!{letter}(?:(?<!{hebrew}){mid_letter}|(?!'){mid_letter}){extend}{hebrew})"
    quoted = rf"(?<={hebrew}){tied}(?:\"{extend}{hebrew}|'{extend})"
    letters = rf"{letter}(?:{joiner}*{letter}|{mid_letter}{extend}{letter})*(?:{quoted})?"
    digits = rf"{digit}(?:{joiner}*{digit}|{mid_number}{extend}{digit})*"
    unit = rf"(?:{kana}(?:{joiner}*{kana})*|(?:{letters}|{digits})+)"
    # More than MAX_TOKEN cannot lead a token; without the bound a text of joiners alone would take quadratic time.
    return rf"{joiner}{{0,{MAX_TOKEN}}}+{unit}(?:{joiner}+{unit})*{joiner}*"


def _emoji(extend: str) -> str:
    """Emoji with selectors and skin tones, joined by ZWJ or tagged; key caps; pairs of regional indicators."""
    picture, tone = rf"[{PICTOGRAPHS}]", rf"[{SKIN_TONES}]"
    mark = rf"[[\p{{WB=Extend}}\p{{WB=Format}}{FORMATS}]--[\ufe0e\ufe0f{SKIN_TONES}]]"
    marks = rf"(?:{mark}|\u200d++(?![{PICTOGRAPHS}{SKIN_TONES}]))*+"  # a ZWJ before another emoji joins the two
    joins = rf"\u200d{{0,{MAX_TOKEN}}}+"
    toned = rf"(?:{joins}\p{{Emoji_Modifier_Base}}{marks}\u200d*)?{tone}{marks}"
    one = rf"(?:{toned}|{joins}{picture}{marks}\ufe0f?)"
    tagged = r"[\U000e0020-\U000e007e]+\U000e007f"
    key = rf"[0-9#*](?:{mark}|\u200d)*\ufe0f?\u20e3{marks}"
    flag = rf"\p{{WB=RI}}{extend}\p{{WB=RI}}{extend}"
    return rf"{one}(?:(?:\u200d{one})+|{tagged})?|{key}|{flag}"


def _compile() -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """A pattern whose successive matches are Lucene's tokens, but for those that are cut at MAX_TOKEN; and one for runs
    of joiners, where no token starts unless it reaches their end."""
    extend = rf"[[\p{{WB=Extend}}\p{{WB=Format}}\p{{WB=ZWJ}}{FORMATS}]--[{SKIN_TONES}]]*+"  # WB4
    word = _word(
        letter=rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--[{SIGNS}{FORMATS}]]",
        digit=rf"[[\p{{WB=Numeric}}\uff10-\uff19]--[{FORMATS}]]",
        kana=r"\p{WB=Katakana}",
        hebrew=r"\p{WB=Hebrew_Letter}",
        extend=extend,
        mid_letter=rf"[[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}']--[{SIGNS}]]",
        mid_number=r"[\p{WB=MidNum}\p{WB=MidNumLet}']",
    )
    one = rf"(?:\p{{LB=SA}}{extend})+|[\p{{Script=Han}}\p{{Script=Hiragana}}]{extend}"  # Thai and the like; CJK
    # Step over a run of joiners without a token at once: much quicker than trying each of them.
    mark = rf"[[\p{{WB=Extend}}\p{{WB=Format}}]--[\p{{LB=SA}}\p{{Script=Han}}{SKIN_TONES}]]"
    run = rf"(?:{JOINER}{mark}*+)++"
    token = regex.compile(rf"{word}|{_emoji(extend)}|{one}|{run}(*SKIP)(*FAIL)", regex.V1)
    return token, regex.compile(run, regex.V1)


TOKEN, RUN = _compile()
# The same for ASCII, several times as fast. A run of joiners is tried from its first character only.
ASCII_TOKEN = re.compile(
    r"(?:(?<!_)_++)?+[A-Za-z0-9]\w*+(?:(?:(?<=[A-Za-z])[:.'](?=[A-Za-z])|(?<=[0-9])[,;.'](?=[0-9]))\w++)*+", re.ASCII
)


def _units(text: str) -> int:
    """Length in UTF-16 units, which Lucene counts in."""
    return len(text) + sum(char > "\uffff" for char in text)


def _cut(text: str) -> list[str]:
    """The tokens of a text with one that is too long: Lucene looks at MAX_TOKEN units from a start and no further."""
    out, start = [], 0
    while start < len(text):
        found = TOKEN.match(text, start, start + MAX_TOKEN)
        if found and _units(found[0]) > MAX_TOKEN:
            sizes = accumulate(1 + (char > "\uffff") for char in found[0])
            found = TOKEN.match(text, start, start + sum(size <= MAX_TOKEN for size in sizes))
        if found:
            out.append(found[0])
            start = found.end()
        else:
            run = RUN.match(text, start)
            start = max(start, run.end() - MAX_TOKEN if run else start) + 1
    return out


def tokens(text: str) -> list[str]:
    """Break `text` into words, numbers, ideographs and emoji, as they stand in it."""
    found: list[str] = (ASCII_TOKEN if text.isascii() else TOKEN).findall(text)
    if found and len(longest := max(found, key=len)) > MAX_TOKEN // 2 and _units(longest) > MAX_TOKEN:
        return _cut(text)
    return found


def term(token: str) -> str | None:
    """The index term of a token, None for a stop word."""
    if token[-1] in "sS" and token[-2:-1] in ("'", "\u2019", "\uff07"):
        token = token[:-2]
    # Java maps characters one by one: no final sigma, and \u0130 to i alone.
    lower = token.lower() if token.isascii() else "".join(char.lower()[0] for char in token)
    if lower in STOP_WORDS:
        return None
    return stem(lower) if _units(lower) > 2 else lower


cached_term = lru_cache(maxsize=1 << 15)(term)


def analyze(text: str) -> list[str]:
    """All index terms of `text` in order, repeats included. Any string is plain text: there is no query syntax."""
    return [found for token in tokens(text) if (found := cached_term(token)) is not None]
