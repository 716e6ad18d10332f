"""The way to a chat endpoint: what `openai:MODEL@URL` says, credentials that are never shown, and an HTTP client."""

from __future__ import annotations

import base64
import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from seedbench.agents.answer import clip
from seedbench.core import SeedbenchError

BIGGEST_BODY = 16 * 2**20  # bytes of one answer; a server that sends more never ends, or is no chat endpoint
CURE = "write openai:MODEL@URL, for example openai:my-model@http://localhost:8000/v1"
SPEC = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://\S+)", re.DOTALL)


def read_spec(spec: str) -> tuple[str, str, str, str]:
    """Public spec, model, URL without credentials, and those as HTTP Basic ("" for none). Raises SeedbenchError."""
    match = SPEC.fullmatch(spec)
    shown = _without_secrets(spec)
    if match is None:
        raise SeedbenchError(f"--agent {shown} names no model or no http(s) URL: {CURE}.")
    try:
        parts = urlsplit(match["url"])
        host, port = parts.hostname, parts.port
    except ValueError as error:  # which quotes the URL, and so perhaps a part of the password
        why = "is a / or # or ? of the password not percent-encoded?" if "@" in match["url"] else clip(str(error))
        raise SeedbenchError(f"--agent {shown} has a bad URL ({why}): {CURE}.") from None
    if not host or parts.query or parts.fragment or "@" in parts.path:
        raise SeedbenchError(
            f"--agent {shown} needs a host, no ? or #, and %40 for an @ in a password or path: {CURE}."
        )
    if not (match["model"] + host + parts.path).isprintable():
        raise SeedbenchError(f"--agent {shown} holds characters that cannot be printed: {CURE}.")
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    url = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    given = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"openai:{match['model']}@{url}", match["model"], url, "" if given == ":" else _basic(given)


def _without_secrets(spec: str) -> str:
    """What an error may show of a spec that cannot be read: of a URL with an @ in it, nothing but the scheme."""
    head, mark, rest = spec.partition("://")
    return clip(head + mark + ("…" if "@" in rest else re.split(r"[?#]", rest)[0]))


def _basic(user_and_password: str) -> str:
    return base64.b64encode(user_and_password.encode(errors="surrogateescape")).decode()


def basic_of_environment() -> str:
    given = os.environ.get("OPENAI_BASIC_AUTH", "").strip()
    if given and ":" not in given:
        raise SeedbenchError("OPENAI_BASIC_AUTH has no colon: set it to user:password, or unset it.")
    return _basic(given) if given else ""


class EndlessAnswer(Exception):
    """A body beyond BIGGEST_BODY."""


def http_client(openai: Any, timeout: Any) -> Any:
    """The client's own HTTP client, which reads no more than BIGGEST_BODY of an answer. Raises SeedbenchError."""
    base: Any = openai.DefaultAsyncHttpxClient

    class Bounded(base):
        async def send(self, request: Any, **options: Any) -> Any:
            """The response with its whole body read, decompressed."""
            response = await super().send(request, **{**options, "stream": True})
            body = bytearray()
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > BIGGEST_BODY:
                        raise EndlessAnswer
            finally:
                await response.aclose()
            gone = ("content-encoding", "content-length", "transfer-encoding")  # they are true of the raw body only
            headers = [(k, v) for k, v in response.headers.multi_items() if k not in gone]
            return type(response)(response.status_code, headers=headers, content=bytes(body), request=request)

    try:
        return Bounded(timeout=timeout)
    except Exception as error:  # a bad proxy is a ValueError, an ImportError or the HTTP library's, a bad file OSError
        said = re.sub(r"//\S*@", "//…@", clip(f"{type(error).__name__}: {error}"))
        raise SeedbenchError(
            f"No HTTP client can be set up ({said}): check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and "
            "SSL_CERT_DIR, in capitals and in small letters."
        ) from None
