"""How an answer is scored: SQuAD-style normalisation, exact match, substring match, F1; and published rewards.

The published rewards are functions of the whole text that their code scores, so they can be compared with it line by
line. Sources: Search-R1 (PeterGriffinJin/Search-R1 at a14dc3a, qa_em and qa_em_format), verl-agent's search
environment (SkyRL's reward), FlashRAG for F1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

SEPARATOR = "<|answer_split|>"  # DeepResearcher joins the golds of a question by it
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CLOSED = ("yes", "no", "noanswer")  # an F1 of such an answer is all or nothing
_ASSISTANT = re.compile(r"<\|im_start\|>assistant\s*")
_TAGS = re.compile(r"(</?(?:think|search|information|answer)>)")
STRUCTURE, FINAL, RETRIEVAL = 0.2, 0.1, 0.0  # format scores of Search-R1 v0.3


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, then without articles, with single spaces. The order matters."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def split_golds(golds: str | Iterable[str]) -> tuple[str, ...]:
    """The right answers of a question one by one: a single text counts as one, joined ones are taken apart.

    Each once, in their order; what is empty is left out.
    """
    several = [golds] if isinstance(golds, str) else golds
    parts = (part.strip() for gold in several for part in gold.split(SEPARATOR))
    return tuple(dict.fromkeys(filter(None, parts)))


def exact_match(answer: str, golds: str | Sequence[str]) -> bool:
    """Whether the normalised answer equals a normalised gold. Two that are both empty then are equal."""
    said = normalise(answer)
    return any(normalise(gold) == said for gold in _listed(golds))


def substring_match(answer: str, golds: str | Sequence[str]) -> bool:
    """Whether a normalised gold is part of the normalised answer, letter by letter, not word by word."""
    said = normalise(answer)
    return any(normalise(gold) in said for gold in _listed(golds))


def f1(answer: str, golds: str | Sequence[str]) -> float:
    """The best overlap of words, as a multiset, with any gold: harmonic mean of precision and recall, in [0, 1]."""
    said = normalise(answer)
    return max((_overlap(said, normalise(gold)) for gold in _listed(golds)), default=0.0)


def _overlap(said: str, gold: str) -> float:
    if said != gold and (said in _CLOSED or gold in _CLOSED):
        return 0.0
    words, wanted = said.split(), gold.split()
    common = (Counter(words) & Counter(wanted)).total()
    return 2 * common / (len(words) + len(wanted)) if common else 0.0


def _listed(golds: str | Sequence[str]) -> Sequence[str]:
    return [golds] if isinstance(golds, str) else golds


def blocks(text: str, tag: str) -> list[str]:
    """What stands in each <tag>...</tag>, from left to right, each up to its first closing tag.

    As a non-greedy regular expression finds them, but in time linear in the text, whatever it holds.
    """
    found, at, start, end = [], 0, f"<{tag}>", f"</{tag}>"
    while (opened := text.find(start, at)) >= 0 and (closed := text.find(end, opened)) >= 0:
        found.append(text[opened + len(start) : closed])
        at = closed + len(end)
    return found


def last_answer(text: str, least: int) -> str | None:
    """The last <answer> block of `text`, ends stripped; None where there are fewer than `least` of them."""
    found = blocks(text, "answer")
    return found[-1].strip() if len(found) >= least else None


def search_r1(text: str, golds: Sequence[str]) -> float:
    """Search-R1's outcome reward of prompt and response together: the first of two or more answers is the prompt's."""
    answer = last_answer(text, 2)
    return 1.0 if answer is not None and exact_match(answer, golds) else 0.0


def search_r1_format(
    text: str,
    golds: Sequence[str],
    structure: float = STRUCTURE,
    final: float = FINAL,
    retrieval: float = RETRIEVAL,
) -> float:
    """Search-R1's reward with format scores, of prompt and response with the chat template's marks."""
    answer, valid = last_answer(text, 2), follows_structure(text)
    if answer is not None and exact_match(answer, golds):
        return 1.0 if valid else 1.0 - structure
    if not valid:
        return final if answer is not None else 0.0
    found = any(substring_match(block, golds) for block in blocks(text, "information"))
    return structure + retrieval if found else structure


def verl_agent(text: str, golds: Sequence[str]) -> float:
    """verl-agent's reward of the concatenated history, passages included: one answer is enough."""
    answer = last_answer(text, 1)
    return 1.0 if answer is not None and exact_match(answer, golds) else 0.0


# What may follow what: (state, tag) -> state. Text may stand in the states whose name begins with "in ".
_NEXT = {
    ("start", "<think>"): "in think",
    ("informed", "<think>"): "in think",
    ("in think", "</think>"): "thought",
    ("thought", "<search>"): "in search",
    ("in search", "</search>"): "searched",
    ("searched", "<information>"): "in information",
    ("in information", "</information>"): "informed",
    ("thought", "<answer>"): "in answer",
    ("in answer", "</answer>"): "end",
}


def follows_structure(text: str) -> bool:
    """Whether what follows the first assistant mark is think, {search, information, think}, answer, and no more.

    Only white space may stand between the blocks and after the answer.
    """
    mark = _ASSISTANT.search(text)
    if mark is None:
        return False
    state = "start"
    for part in _TAGS.split(text[mark.end() :]):
        if not part.strip():
            continue
        if _TAGS.fullmatch(part):
            after = _NEXT.get((state, part))
            if after is None:
                return False
            state = after
        elif not state.startswith("in "):
            return False
    return state == "end"
