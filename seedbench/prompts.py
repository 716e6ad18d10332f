"""From a View to the messages a model reads, and from its text back to an action.

One layout serves all environments: system line, task line, hint slot, past steps, present observation, actions.
An environment owns a `Prompt` (its words) and a `parse` (usually `parse_tagged`). Prompts are named, and their digest
is recorded with each result: a changed word is another exam.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seedbench.core import Message, Mode, Parsed, View

HINT_TITLE = "Lesson:"


@dataclass(frozen=True, slots=True)
class Prompt:
    """An environment's words around a View. `history` is H, the number of past steps shown; -1 shows all."""

    name: str
    system: str
    history: int
    show_actions: bool = True
    reply_format: str = "<action>{action}</action>"
    turns: bool = False  # past steps as turns of a chat, so that a prompt goes on where the one before it ended

    def render(self, view: View, hint: str = "") -> list[Message]:
        """System and user message of one turn. `hint` (or `view.hint`) follows the task line; none leaves no trace."""
        hint = hint or view.hint
        blocks = [f"Task: {view.goal}"]
        if hint:
            blocks.append(f"{HINT_TITLE}\n{hint}")
        if self.turns:
            return self._chat(view, "\n\n".join(blocks))
        if past := self._past(view):
            blocks.append(past)
        blocks.append(f"Now:\n{view.observation}")
        if self.show_actions and view.admissible:
            blocks.append("Actions:\n" + "\n".join(view.admissible))
        return [{"role": "system", "content": self.system}, {"role": "user", "content": "\n\n".join(blocks)}]

    def _chat(self, view: View, opening: str) -> list[Message]:
        """System line, opening and first shown observation, then reply and observation in turn. Actions that can be
        taken are not listed: past ones are not known, and the beginning of a chat must not change."""
        shown = len(view.history) if self.history < 0 else min(self.history, len(view.history))
        past = view.history[len(view.history) - shown :]
        seen = [*(observation for observation, _ in past), view.observation]
        said: list[Message] = [{"role": "system", "content": self.system},
                               {"role": "user", "content": f"{opening}\n\n{seen[0]}"}]  # fmt: skip
        for (_, action), observation in zip(past, seen[1:], strict=True):
            said.append({"role": "assistant", "content": self.reply(action) if action else "(no action could be read)"})
            said.append({"role": "user", "content": observation})
        return said

    def _past(self, view: View) -> str:
        """The last H actions, each above what it led to; the last one led to the present observation."""
        shown = len(view.history) if self.history < 0 else min(self.history, len(view.history))
        if not shown:
            return ""
        first = len(view.history) - shown
        lines = [f"Past steps {first + 1}-{len(view.history)}:"]
        for k in range(first, len(view.history)):
            lines.append(f"> {view.history[k][1] or '(no action could be read)'}")
            if k + 1 < len(view.history):
                lines.append(view.history[k + 1][0])
        return "\n".join(lines)

    def reply(self, action: str) -> str:
        """The text of an agent that says `action` and nothing else."""
        return self.reply_format.format(action=action)

    def digest(self) -> str:
        """Hash of H and of renderings that exercise every block: it changes when the words or the layout do."""
        past = (("o1", "a1"), ("o2", ""), ("o3", "a3"))
        views = [View("goal", "seen", ("x", "y"), past[:n], hint) for n in range(4) for hint in ("", "why")]
        return sha256_json([self.history, self.reply("x"), *(self.render(v) for v in views)])


def sha256_json(value: object) -> str:
    """sha256 hex of the canonical JSON of `value`: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def prompt_sha(messages: Sequence[Message]) -> str:
    """Digest of one rendered prompt, before any chat template."""
    return sha256_json(list(messages))


_ARTICLES = re.compile(r"\b(?:a|an|the) ")


def parse_tagged(text: str, mode: Mode = "strict", tag: str = "action") -> Parsed:
    """Read the one action of a reply such as `<think>why</think><action>open fridge 1</action>`.

    strict: exactly one complete block outside <think>, one line, not empty, nothing but white space after it; words
    before it are allowed, as models without <think> reason there. The action is taken as it stands, ends stripped.
    tolerant: the last block counts, its closing tag and what follows it may be missing or superfluous, and the action
    is normalised: lower case, single spaces, no articles (a, an, the), no full stops or other marks at its end.
    """
    open_tag, close_tag = f"<{tag}>", f"</{tag}>"
    said = without_thoughts(text)
    if "<think>" in said and (mode == "strict" or open_tag not in said.rpartition("<think>")[2]):
        return Parsed("", False, "<think> is never closed")
    if mode == "tolerant":
        return _parse_tolerant(said, open_tag, close_tag)
    if said.count(open_tag) != 1 or said.count(close_tag) != 1:
        reason = "no" if open_tag not in said else "an unclosed" if close_tag not in said else "more than one"
        return Parsed("", False, f"{reason} {open_tag} block")
    before, _, rest = said.partition(open_tag)
    inner, _, after = rest.partition(close_tag)
    if close_tag in before:
        return Parsed("", False, f"{close_tag} before {open_tag}")
    if after.strip():
        return Parsed("", False, f"text after {close_tag}")
    action = inner.strip()
    if not action:
        return Parsed("", False, f"empty {open_tag} block")
    if len(action.splitlines()) > 1:
        return Parsed("", False, "the action has more than one line")
    return Parsed(action, True)


def without_thoughts(text: str) -> str:
    """`text` without its complete <think> blocks; in time linear in its length, whatever it holds."""
    kept, at = [], 0
    while (start := text.find("<think>", at)) >= 0 and (end := text.find("</think>", start)) >= 0:
        kept.append(text[at:start])
        at = end + len("</think>")
    return "".join((*kept, text[at:]))


def _parse_tolerant(said: str, open_tag: str, close_tag: str) -> Parsed:
    if open_tag not in said:
        return Parsed("", False, f"no {open_tag} block")
    inner = said.rpartition(open_tag)[2].partition(close_tag)[0].strip()
    line = " ".join((inner.splitlines() or [""])[0].lower().split())
    action = _ARTICLES.sub("", line).rstrip(" .!,;:")
    return Parsed(action, True) if action else Parsed("", False, f"empty {open_tag} block")
