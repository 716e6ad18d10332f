"""Porter's stemmer with Martin Porter's own later changes, as Lucene's English analyzer applies it.

M.F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980; the changes are those of the author's page
(tartarus.org/martin/PorterStemmer): `bli` for `abli`, `logi` to `log`, and words of one or two letters stay.

Written out because the library that has it (nltk, mode MARTIN_EXTENSIONS) costs 0.75 CPU-s and 91 MB of memory to
import, more than the environments that search. A test compares the two.
"""

from __future__ import annotations

STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
    "logi": "log",
}  # fmt: skip
STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
STEP_4 = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
     "iti", "ous", "ive", "ize"), "",
)  # fmt: skip


def _shape(word: str) -> str:
    """One letter a character: `v` vowel, `c` consonant. A `y` is a vowel after a consonant only."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape[-1:] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Porter's m: how often a run of vowels is followed by a consonant."""
    return _shape(stem).count("vc")


def _double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _short(word: str) -> bool:
    """Porter's *o: ends consonant, vowel, consonant, the last not w, x or y."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _replace(word: str, rules: dict[str, str], over: int) -> str:
    """Apply the rule of the longest suffix that fits, where the measure before it exceeds `over`."""
    for size in range(min(7, len(word)), 1, -1):
        suffix = word[-size:]
        if suffix in rules:
            stem = word[:-size]
            if suffix == "ion" and stem[-1:] not in ("s", "t"):
                return word
            return stem + rules[suffix] if _measure(stem) > over else word
    return word


def _past_and_gerund(word: str) -> str:
    """Step 1b: -eed, -ed, -ing, and what must be mended after the last two."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    stem = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
    if "v" not in _shape(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _double(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _short(stem) else stem


def stem(word: str) -> str:
    """The stem of a lower-case word. Other scripts count as consonants, so that only English endings go."""
    if len(word) <= 2:
        return word
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = _past_and_gerund(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, STEP_2, 0)
    word = _replace(word, STEP_3, 0)
    word = _replace(word, STEP_4, 1)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
