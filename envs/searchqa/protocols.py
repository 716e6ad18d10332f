"""The rules of one exam: how a reply is read, what a search shows, what is scored and what is paid.

`em` is ours. The others do to the letter what Search-R1 (a14dc3a) and verl-agent do with raw text, their leaks
included: an `<answer>` inside a passage is scored there. What they say to a model is in our words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from seedbench.core import Mode, Parsed, Passage
from seedbench.envs.searchqa import scoring, tags
from seedbench.envs.searchqa.tags import Move

LONGEST_TITLE, LONGEST_TEXT = 200, 2000  # characters of a passage that are shown
CUT = " [...]"
HELP = "<search>words</search> searches, <answer>words</answer> answers."
# What Search-R1 scores before the first reply: a prompt that holds one answer of its own, which its rule counts.
PROMPT_R1 = "<|im_start|>user\nFor example, <answer> Beijing </answer>.<|im_end|>\n<|im_start|>assistant\n"
# Two pairs of tags, as in Search-R1's message, since its rewards scan this text too: its answer reads "and".
RETRY_R1 = (
    "\nNo action was found there. A query goes between <search> and </search>, a final answer between <answer> and "
    "</answer>. Another try:\n"
)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One set of rules. A transcript is all that was said and shown, in order, which the published rewards scan."""

    parse: Callable[[str, Mode], Parsed]
    read: Callable[[str], Move]
    show: Callable[[Sequence[Passage]], str]  # what a search adds to the transcript
    refuse: Callable[[str], str]  # what a reply without an action adds, by the reason
    pay: Callable[[str, Sequence[str]], float] | None = None  # for a whole transcript; None: EM of the answer given
    least: int = 0  # answer blocks that a transcript must hold for its last to count; 0: none is looked for
    opening: str = ""  # how a transcript begins
    question_mark: bool = True  # whether a question without a question mark gets one

    def answer(self, move: Move, transcript: str) -> str | None:
        """The answer that is scored at the end of an episode; None where there is none."""
        if self.least:
            return scoring.last_answer(transcript, self.least)
        return move.content if move.kind == "answer" else None

    def reward(self, answer: str | None, transcript: str, golds: Sequence[str]) -> float:
        """What an episode pays when it ends."""
        if self.pay is not None:
            return self.pay(transcript, golds)
        return float(answer is not None and scoring.exact_match(answer, golds))


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest].rstrip() + CUT


def numbered(passages: Sequence[Passage]) -> str:
    """Ours: `[1] Title: text`, one passage a line, without anything that could be read as a tag."""
    if not passages:
        return "No results found."
    lines = []
    for number, passage in enumerate(passages, 1):
        title = _short(tags.escape(passage.title), LONGEST_TITLE)
        text = _short(tags.escape(passage.text), LONGEST_TEXT)
        lines.append(f"[{number}] {title}: {text}" if title else f"[{number}] {text}")
    return "\n".join(lines)


def _bounded(passage: Passage) -> tuple[str, str]:
    return _short(passage.title, LONGEST_TITLE), _short(passage.text, LONGEST_TEXT)


def show_search_r1(passages: Sequence[Passage]) -> str:
    """Search-R1's layout. Its titles are the first line of a record of wiki-18, which stands in quotes."""
    docs = ""
    for number, (title, text) in enumerate(map(_bounded, passages), 1):
        docs += f'Doc {number}(Title: "{title}") {text}\n'
    return f"\n\n<information>{docs.strip()}</information>\n\n"


def show_verl_agent(passages: Sequence[Passage]) -> str:
    """verl-agent's layout: the passages as one JSON string."""
    docs = ""
    for number, (title, text) in enumerate(map(_bounded, passages), 1):
        contents = f'"{title}"\n{text}'
        docs += f"Doc {number}: {contents.strip()}\n"
    return _json_block(docs)


def _json_block(result: str) -> str:
    return f"\n<information>{json.dumps({'result': result})}</information>\n"


_SEARCH_R1 = Protocol(
    parse=tags.parse_search_r1,
    read=tags.read_search_r1,
    show=show_search_r1,
    refuse=lambda _: RETRY_R1,
    pay=scoring.search_r1,
    least=2,
    opening=PROMPT_R1,
)
PROTOCOLS: Mapping[str, Protocol] = {
    "em": Protocol(
        parse=tags.parse_block,
        read=tags.read_block,
        show=numbered,
        refuse=lambda reason: f"That was no action: {reason}.",
        question_mark=False,
    ),
    "search-r1": _SEARCH_R1,
    "search-r1-format": replace(_SEARCH_R1, pay=scoring.search_r1_format),
    "verl-agent": Protocol(
        parse=tags.parse_verl_agent,
        read=tags.read_verl_agent,
        show=show_verl_agent,
        refuse=lambda _: _json_block("There was no query: nothing was searched for."),
        pay=scoring.verl_agent,
        least=1,
    ),
}
