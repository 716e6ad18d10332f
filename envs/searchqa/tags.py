"""From a reply to an action: our parser, and those of Search-R1 and verl-agent. And text that no parser can mistake.

An action of ours is one block, `<search>words</search>` or `<answer>words</answer>`. Published rewards score raw text,
so under their rules an action is the assistant's text, cut where their code cuts it.
"""

from __future__ import annotations

import re
import string
from typing import Literal, NamedTuple

from seedbench.core import Mode, Parsed
from seedbench.envs.searchqa.scoring import blocks
from seedbench.prompts import parse_tagged, without_thoughts

SEARCH, ANSWER = "search", "answer"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)  # str.lower() would change lengths
_MARKUP = re.compile(r"<(?=/?(?:think|search|answer|information|action)\b|\|)", re.IGNORECASE)


class Move(NamedTuple):
    """What an action does: search for `content`, give it as the answer, or nothing, for a reason."""

    kind: Literal["search", "answer", "nothing"]
    content: str = ""
    reason: str = ""


def block(tag: str, content: str) -> str:
    """The action that searches for `content` or answers with it."""
    return f"<{tag}>{content}</{tag}>"


def escape(text: str) -> str:
    """`text` on one line, and with the first character of what a parser or a chat template reads as a tag spelled out.

    Nothing in a passage or a question can then be taken for an action, an answer or a turn of the dialogue.
    """
    return _MARKUP.sub("&lt;", " ".join(text.split()))


def parse_block(text: str, mode: Mode = "strict") -> Parsed:
    """The one block of a reply, as `parse_tagged` reads it; the action is the block with its tags.

    strict: one <search> or <answer> block outside <think>, on one line, with nothing after it. tolerant: the last one
    that was opened counts.
    """
    said = without_thoughts(text)
    opened = [tag for tag in (SEARCH, ANSWER) if f"<{tag}>" in said]
    closed = [tag for tag in (SEARCH, ANSWER) if f"</{tag}>" in said]
    if mode == "strict" and (len(opened) == 2 or (opened and closed and opened != closed)):
        return Parsed("", False, "a <search> and an <answer> block: one of them a turn")
    if not opened:
        if "<think>" in said:
            return Parsed("", False, "<think> is never closed")
        return Parsed("", False, "no <search> or <answer> block")
    tag = max(opened, key=lambda name: said.rfind(f"<{name}>"))
    content, valid, reason = parse_tagged(text, mode, tag)
    if mode == "tolerant":  # the block may be closed by the wrong tag, and hold one that only lower case made a tag
        for mark in ("</", f"<{SEARCH}>", f"<{ANSWER}>"):
            content = content.partition(mark)[0].strip()
        valid, reason = (valid, reason) if content or not valid else (False, f"empty <{tag}> block")
    return Parsed(block(tag, content), True) if valid else Parsed("", False, reason)


def read_block(action: str) -> Move:
    """What one of our actions does; nothing, for what is not exactly one block with something in it."""
    action = action.strip()
    for tag in (SEARCH, ANSWER):
        start, end = f"<{tag}>", f"</{tag}>"
        if not action.startswith(start) or not action.endswith(end) or len(action) < len(start) + len(end):
            continue
        content = action[len(start) : -len(end)]
        if any(mark in content for name in (SEARCH, ANSWER) for mark in (f"<{name}>", f"</{name}>")):
            return Move("nothing", reason="more than one block")
        if not content.strip():
            return Move("nothing", reason=f"the {'query' if tag == SEARCH else 'answer'} is empty")
        return Move("search" if tag == SEARCH else "answer", " ".join(content.split()))
    return Move("nothing", reason="an action is <search>words</search> or <answer>words</answer>")


def cut(text: str) -> str:
    """`text` up to its first </search> if it has one, else up to its first </answer>, else all of it."""
    for end in ("</search>", "</answer>"):
        before, found, _ = text.partition(end)
        if found:
            return before + end
    return text


def read_search_r1(text: str) -> Move:
    """Search-R1: the first complete block of either kind is done."""
    first = [(text.index(f"<{tag}>"), tag, found[0]) for tag in (SEARCH, ANSWER) if (found := blocks(text, tag))]
    if not first:
        return Move("nothing", reason="no complete <search> or <answer> block")
    _, tag, content = min(first)
    return Move("search" if tag == SEARCH else "answer", content.strip())


def parse_search_r1(text: str, mode: Mode = "strict") -> Parsed:
    """The text as Search-R1 cuts it, thoughts and all; `mode` changes nothing."""
    reason = read_search_r1(cut(text)).reason
    return Parsed(cut(text), not reason, reason)


def parse_verl_agent(text: str, mode: Mode = "strict") -> Parsed:
    """verl-agent's projection: the first <search> block goes before the first <answer> block, in any case.

    Both kinds of tags, or one twice, make the format invalid; the action is taken all the same. `mode` changes nothing.
    """
    trimmed = cut(text)
    lowered = trimmed.translate(_LOWER)
    action = ""
    for tag in (SEARCH, ANSWER):
        opened = lowered.find(f"<{tag}>")
        closed = lowered.find(f"</{tag}>", opened)
        if 0 <= opened < closed:
            action = block(tag, trimmed[opened + len(tag) + 2 : closed].strip())
            break
    searches, answers = (text.translate(_LOWER).count(f"<{tag}>") for tag in (SEARCH, ANSWER))
    reason = ""
    if searches and answers:
        reason = "both <search> and <answer>"
    elif searches > 1 or answers > 1:
        reason = "more than one <search>" if searches > 1 else "more than one <answer>"
    elif not action:
        reason = "no complete <search> or <answer> block"
    return Parsed(action, not reason, reason)


def read_verl_agent(action: str) -> Move:
    """What verl-agent's environment does with a projected action: an answer anywhere in it ends the episode."""
    if "<answer>" in action and "</answer>" in action:
        return Move("answer", (blocks(action, ANSWER) or [""])[-1].strip())
    if found := blocks(action, SEARCH):
        return Move("search", found[0])
    return Move("nothing", reason="no <search> or <answer> block")
