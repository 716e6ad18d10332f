"""From a reply to an action and back, in two formats: tags of our own, and a model's native tool calls.

An action is the reply itself with its thoughts, since deep search keeps them in the history: `<think>why</think>
<search>words</search>`. What it does is a Move.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seedbench.core import Mode, Parsed
from seedbench.prompts import parse_tagged, without_thoughts

SEARCH, VISIT, ANSWER, CALL = "search", "visit", "answer", "tool_call"
BLOCKS = (SEARCH, VISIT, ANSWER)
GOAL = "|"  # between the number of a visit and its goal
_MARKUP = re.compile(r"<(?=/?(?:think|search|visit|answer|tool_call|tool_response|information|action)\b|\|)", re.I)
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.S)
_NUMBER = re.compile(r"\[?([0-9]{1,6})\]?")


class Move(NamedTuple):
    """What an action does: search for `content`, visit result `number`, answer `content`; or nothing, for a reason."""

    kind: Literal["search", "visit", "answer", "nothing"]
    content: str = ""  # query, goal of a visit, or answer
    number: int = 0
    reason: str = ""


def block(tag: str, content: str) -> str:
    """One block of our format."""
    return f"<{tag}>{content}</{tag}>"


def escape(text: str) -> str:
    """`text` on one line, and with the first character of what a parser or a chat template reads as a tag spelled out.

    Nothing in a page or a question can then be taken for an action, an answer or a turn of the dialogue.
    """
    return _MARKUP.sub("&lt;", " ".join(text.split()))


def _of_block(tag: str, content: str) -> Move:
    content = " ".join(content.split())
    if tag == VISIT:
        number, _, goal = content.partition(GOAL)
        found = _NUMBER.fullmatch(number.strip())
        if not found:
            return Move("nothing", reason="a visit names a result by its number")
        return Move("visit", goal.strip(), int(found[1]))
    if not content:
        return Move("nothing", reason=f"the {'query' if tag == SEARCH else 'answer'} is empty")
    return Move("search" if tag == SEARCH else "answer", content)


# --- our tags


def write_tags(move: Move) -> str:
    """The action of a move."""
    if move.kind == "visit":
        return block(VISIT, f"{move.number} {GOAL} {move.content}" if move.content else str(move.number))
    return block(move.kind, move.content)


def parse_tags(text: str, mode: Mode = "strict") -> Parsed:
    """The one block of a reply, as `parse_tagged` reads it, and what was thought before it.

    strict: one block outside <think>, on one line, with nothing after it; what stands before it is kept. tolerant: the
    last block that was opened counts, closed or not, and of the rest the complete thoughts are kept.
    """
    return _parse(text, mode, BLOCKS)


def _parse(text: str, mode: Mode, tags: tuple[str, ...]) -> Parsed:
    said = without_thoughts(text)
    opened = [tag for tag in tags if f"<{tag}>" in said]
    closed = [tag for tag in tags if f"</{tag}>" in said]
    if not opened:
        unclosed = "<think> is never closed" if "<think>" in said else f"no {_listed(tags)} block"
        return Parsed("", False, unclosed)
    if mode == "strict" and (len(opened) > 1 or (closed and opened != closed)):
        return Parsed("", False, f"more than one of {_listed(tags)}: one block a turn")
    tag = max(opened, key=lambda name: said.rfind(f"<{name}>"))
    if tag == CALL:
        return _parse_call(text, said, mode)
    content, valid, reason = parse_tagged(text, mode, tag)
    if not valid:
        return Parsed("", False, reason)
    if mode == "strict":
        return Parsed(text.strip(), True)
    for mark in ("</", *(f"<{name}>" for name in (*tags, "think"))):
        content = content.partition(mark)[0].strip()
    return Parsed(_thoughts(text) + block(tag, content), True) if content else Parsed("", False, f"empty <{tag}> block")


def _thoughts(text: str) -> str:
    return "".join(_THOUGHT.findall(text)) if "</think>" in text else ""


def _listed(tags: tuple[str, ...]) -> str:
    return ", ".join(f"<{tag}>" for tag in tags[:-1]) + f" or <{tags[-1]}>"


def read_tags(action: str) -> Move:
    """What an action does; nothing, for what does not end with exactly one block with something in it."""
    return _read(action, BLOCKS)


def _read(action: str, tags: tuple[str, ...]) -> Move:
    said = without_thoughts(action).strip()
    marks = [(tag, mark) for tag in tags for mark in (f"<{tag}>", f"</{tag}>") if mark in said]
    if not marks:
        return Move("nothing", reason=f"an action is a {_listed(tags)} block")
    tag = marks[0][0]
    whole = [m for _, m in marks] == [f"<{tag}>", f"</{tag}>"] and all(said.count(m) == 1 for _, m in marks)
    content = said.partition(f"<{tag}>")[2].removesuffix(f"</{tag}>")
    if not whole or not said.endswith(f"</{tag}>") or said.index(f"</{tag}>") < said.index(f"<{tag}>"):
        return Move("nothing", reason="an action ends with one whole block")
    return _of_call(content) if tag == CALL else _of_block(tag, content)


# --- native tool calls: <tool_call>{"name": "search", "arguments": {"query": "words"}}</tool_call>


def write_calls(move: Move) -> str:
    """The action of a move; the answer has no tool."""
    if move.kind == "answer":
        return block(ANSWER, move.content)
    arguments: dict[str, str | int] = {"query": move.content} if move.kind == "search" else {"id": move.number}
    if move.kind == "visit" and move.content:
        arguments["goal"] = move.content
    call = {"name": move.kind, "arguments": arguments}
    return f"<{CALL}>\n{json.dumps(call, ensure_ascii=False)}\n</{CALL}>"


def parse_calls(text: str, mode: Mode = "strict") -> Parsed:
    """As `parse_tags`, of one <tool_call> with a JSON object, over several lines if need be, or one <answer> block."""
    return _parse(text, mode, (CALL, ANSWER))


def _parse_call(text: str, said: str, mode: Mode) -> Parsed:
    start, end = f"<{CALL}>", f"</{CALL}>"
    before, _, rest = said.rpartition(start)
    inner, closed, after = rest.partition(end)
    if mode == "strict" and (start in before or end in before or not closed or after.strip()):
        return Parsed("", False, "one whole <tool_call> block a turn, and nothing after it")
    move = _of_call(inner)
    if move.kind == "nothing":
        return Parsed("", False, move.reason)
    return Parsed(text.strip() if mode == "strict" else _thoughts(text) + write_calls(move), True)


def _of_call(text: str) -> Move:
    try:
        call = json.loads(text)
        name, told = call["name"], call["arguments"]
        if name == SEARCH and isinstance(told["query"], str):
            return _of_block(SEARCH, told["query"])
        if name == VISIT and isinstance(told["id"], int | str) and isinstance(told.get("goal", ""), str):
            return _of_block(VISIT, f"{told['id']} {GOAL} {told.get('goal', '')}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Move("nothing", reason="the tool call is no JSON object with a name and arguments")
    return Move("nothing", reason="the tools are search(query) and visit(id, goal)")


def read_calls(action: str) -> Move:
    """What an action does; nothing, for what does not end with one call or answer."""
    return _read(action, (CALL, ANSWER))


@dataclass(frozen=True, slots=True)
class Format:
    """How actions are said: write(move) is an action, parse(reply) finds it, read(action) is the move again."""

    write: Callable[[Move], str]
    parse: Callable[[str, Mode], Parsed]
    read: Callable[[str], Move]


_TAGS, _CALLS = Format(write_tags, parse_tags, read_tags), Format(write_calls, parse_calls, read_calls)
FORMATS = {"tags": _TAGS, "tools": _CALLS, "chat": _TAGS, "chat-tools": _CALLS}  # by the prompt's name
