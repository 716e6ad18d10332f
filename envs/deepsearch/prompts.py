"""The words of deep search: for tags and for native tool calls, each with the oldest observations left out, or as one
growing chat."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seedbench.core import View
from seedbench.prompts import Prompt, sha256_json

LEFT_OUT = "(left out)"


@dataclass(frozen=True, slots=True)
class LongPrompt(Prompt):
    """A prompt with all past actions. Of what they showed, the newest stays that fits into `room` characters."""

    room: int = 0

    def _past(self, view: View) -> str:
        shown = len(view.history) if self.history < 0 else min(self.history, len(view.history))
        if not shown:
            return ""
        first, left = len(view.history) - shown, self.room
        lines: list[str] = []
        for k in range(len(view.history) - 1, first - 1, -1):  # newest first: they go before older ones
            if k + 1 < len(view.history):
                seen = view.history[k + 1][0]
                left = left - len(seen) if len(seen) <= left else -1
                lines.append(seen if left >= 0 else LEFT_OUT)
            lines.append(f"> {view.history[k][1] or '(no action could be read)'}")
        return "\n".join([f"Past steps {first + 1}-{len(view.history)}:", *reversed(lines)])

    def digest(self) -> str:
        """Also of what is left out."""
        past = tuple((str(n) * (self.room // 4 + 1), f"a{n}") for n in range(8))
        return sha256_json([Prompt.digest(self), self.room, self.render(View("goal", "seen", (), past))])


TAGS = LongPrompt(
    name="deepsearch-v1",
    system=(
        "You answer a question by searching and reading pages. Each turn, end with one block: <search>words</search> "
        "lists pages, <visit>number</visit> reads a listed page (<visit>number | goal</visit> the part of it that "
        "tells of the goal), <answer>words</answer> ends the task. You may think first inside <think>...</think>."
    ),
    history=-1,
    show_actions=False,
    reply_format="{action}",
)
TOOLS = LongPrompt(
    name="deepsearch-tools-v1",
    system=(
        "You answer a question by searching and reading pages. Each turn you may think inside <think>...</think>, and "
        "then end with one tool call or with <answer>words</answer>, which ends the task: the answer alone, as short "
        "as it can be.\n\n<tools>\n"
        '{"type": "function", "function": {"name": "search", "description": "List pages about some words.", '
        '"parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}\n'
        '{"type": "function", "function": {"name": "visit", "description": "Read a listed page: its next part, or the '
        'part that tells of the goal.", "parameters": {"type": "object", "properties": {"id": {"type": "integer", '
        '"description": "its number in the lists"}, "goal": {"type": "string"}}, "required": ["id"]}}}\n'
        "</tools>\n\n"
        'A tool call looks so: <tool_call>{"name": "search", "arguments": {"query": "words"}}</tool_call>'
    ),
    history=-1,
    show_actions=False,
    reply_format="{action}",
)
# SSPO's paper has one growing context: a prompt goes on where the one before ended, so that rows can be packed.
CHAT = replace(TAGS, name="deepsearch-chat-v1", turns=True)
CHAT_TOOLS = replace(TOOLS, name="deepsearch-chat-tools-v1", turns=True)
PROMPTS = {"tags": TAGS, "tools": TOOLS, "chat": CHAT, "chat-tools": CHAT_TOOLS}
