"""Questions that their authors publish encrypted, so that no crawler picks them up: decrypted in memory, never on disk.

The published files of BrowseComp and BrowseComp-Plus hold base64 of the text XOR-ed with a key, the SHA-256 of a canary
string over and over. This guards against crawlers, not against people. We keep such questions in the same form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from itertools import cycle
from typing import Any

from seedbench.core import SeedbenchError


def seal(text: str, canary: str) -> str:
    """The text as such files hold it."""
    return base64.b64encode(_xor(text.encode("utf-8", "surrogatepass"), canary)).decode("ascii")


def unseal(sealed: str, canary: str) -> str:
    """The text again. Raises SeedbenchError where the canary is another, or the text none of this kind."""
    try:
        return _xor(base64.b64decode(sealed, validate=True), canary).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise SeedbenchError(
            "an encrypted question cannot be read: its canary is another; fetch the published file again."
        ) from None


def unsealed(value: Any, canary: str) -> Any:
    """A JSON value with every string in it decrypted, but those under a key that names an id."""
    if isinstance(value, str):
        return unseal(value, canary)
    if isinstance(value, list):
        return [unsealed(item, canary) for item in value]
    if isinstance(value, dict):
        return {key: item if key == "query_id" else unsealed(item, canary) for key, item in value.items()}
    return value


def _xor(data: bytes, canary: str) -> bytes:
    key = hashlib.sha256(canary.encode("utf-8")).digest()
    return bytes(a ^ b for a, b in zip(data, cycle(key), strict=False))
