"""What an OpenAI-compatible server answered, judged: a reply, a fault that may pass, or one that will not."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from seedbench.core import InfrastructureError, Reply, SeedbenchError

SHOWN = 200  # characters of a server's own words in an error
PASSING = {408, 409, 425, 429}  # and 5xx


class PassingFault(Exception):
    """Worth another try, not before `wait` seconds (0 where the server names none)."""

    def __init__(self, message: str, wait: float = 0.0):
        super().__init__(message)
        self.wait = wait


def clip(text: str) -> str:
    """On one line, and not longer than an error message bears."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[:SHOWN] + "…"


def read_answer(body: str) -> Reply:
    """The reply in a chat completion's body. Raises PassingFault, which names what came, for anything else.

    Null content is a reply without text where the server says why: a refusal, or the token limit or content filter
    reached before any text (reasoning models).
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise PassingFault(f"gave an answer that is not JSON ({clip(body) or 'empty'})") from None
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise PassingFault(f"gave an answer without choices ({clip(body)})")
    content, refusal = message.get("content"), message.get("refusal")
    finish, usage = choice.get("finish_reason"), answer.get("usage")
    reason = finish if isinstance(finish, str) else ""
    if content is None and isinstance(refusal, str) and refusal:
        content, reason = "", f"refusal: {clip(refusal)}"
    elif content is None and reason in ("length", "content_filter"):
        content = ""
    if not isinstance(content, str):
        raise PassingFault(f"gave an answer without text ({clip(body)})")
    return Reply(content, finish_reason=reason, usage=_counts(usage))


def _counts(usage: object) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    return {k: usage[k] for k in ("prompt_tokens", "completion_tokens") if type(usage.get(k)) is int}


def judge_status(status: int, body: str, headers: Mapping[str, str], host: str, model: str) -> Exception:
    """What an HTTP error means: PassingFault; InfrastructureError for the whole run; SeedbenchError for one view."""
    ours, said = _error_of(body)
    if status == 429 and "insufficient_quota" in body:
        return InfrastructureError(f"{host} has no quota left for this key ({said}): add some, or use another key.")
    if status in PASSING or status >= 500:
        return PassingFault(f"answers {status} ({said})", retry_after(headers))
    if status in (401, 403):
        return InfrastructureError(f"{host} refuses the key ({status}, {said}): set OPENAI_API_KEY to one it takes.")
    if status == 404 and ours and "model" in body.lower():
        return SeedbenchError(f"{host} has no model {model} ({said}): name one that it serves.")
    if status == 413 or (status in (400, 422) and ours):
        return SeedbenchError(f"{host} refuses the request ({status}, {said}).")
    return InfrastructureError(f"{host} has no chat completions there ({status}, {said}): does the URL end in /v1?")


def _error_of(body: str) -> tuple[bool, str]:
    """Whether a model server wrote this error (a proxy would write HTML), and its words."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False, clip(body) or "no body"
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message") if isinstance(error, dict) else error
    return isinstance(value, dict), clip(message if isinstance(message, str) else body)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to be left alone for, from Retry-After (seconds or a date); 0 if it names none."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value)) if value and value[0].isdigit() else _until(value)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _until(date: str) -> float:
    when = parsedate_to_datetime(date)
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return max(0.0, (when - datetime.datetime.now(datetime.UTC)).total_seconds())
