"""JSON files of any size, one record at a time, with the byte at which to go on later.

    for record in JsonStream(path).items(): ...           # [record, record, ...]
    for key, record in JsonStream(path).pairs(): ...      # {key: record, ...}

Accepts what `json.loads` accepts, in UTF-8. A library was tried first: ijson 3.6 (yajl) refuses NaN, which the
original's loader takes, turns half a surrogate pair into "?", and cannot say at which byte it is, to resume there.
"""

from __future__ import annotations

import codecs
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from seedbench.core import SeedbenchError

CHUNK = 1 << 20  # bytes read at once
LARGEST = 64 << 20  # characters: what is no value after so many is broken
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonStream:
    """One pass over a `.json` or `.json.xz` file, from byte `start` (of the unpacked text) after a record on."""

    def __init__(self, path: Path, start: int = 0):
        self._path = path
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._at = "", 0  # a window of the file, and where in it we are
        self._base = self._start = start  # byte offset of the window
        try:
            self._raw: BinaryIO = path.open("rb")
            packed = path.suffix == ".xz"
            self._file = cast(BinaryIO, lzma.LZMAFile(self._raw)) if packed else self._raw  # noqa: SIM115 (see _until)
            self._file.seek(start)
        except (OSError, lzma.LZMAError, EOFError) as error:
            raise self._broken(error) from error

    def items(self) -> Iterator[Any]:
        """The records of a list."""
        if self._start == 0:
            self._skip_mark()
            self._take("[", "a list")
        yield from self._until("]", self._value)

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Keys and records of an object, a key that comes twice both times."""
        self._skip_mark()
        self._take("{", "an object")
        yield from self._until("}", self._pair)

    def _skip_mark(self) -> None:
        """Pass over a byte order mark, which json.loads takes as well."""
        if self._peek() == "\ufeff" and self._base + self._at == 0:
            self._at += 1

    def _until(self, end: str, read: Any) -> Iterator[Any]:
        between = self._start > 0
        try:
            while self._peek() != end:
                if between:
                    self._take(",", "a comma between records")
                yield read()
                between = True
            self._at += 1
            if self._peek():
                raise self._broken("something follows its end")
        finally:
            self._file.close()
            self._raw.close()

    def position(self) -> int:
        """Byte after the last record, where another stream may start."""
        return self._base + len(self._text[: self._at].encode("utf-8"))

    def consumed(self) -> int:
        """Bytes of the file, as it is packed, that were read so far."""
        return self._raw.tell()

    def _pair(self) -> tuple[str, Any]:
        if self._peek() != '"':
            raise self._broken("a key is missing")
        key = self._scan()
        self._take(":", "a colon after a key")
        return key, self._value()

    def _value(self) -> Any:
        if self._peek() not in ("{", "["):  # of a number one could not tell the end
            raise self._broken("a record is neither an object nor a list")
        return self._scan()

    def _scan(self) -> Any:
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
                return value
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or len(self._text) - self._at > LARGEST or not self._more():
                    raise self._broken(error) from error

    def _take(self, char: str, what: str) -> None:
        if self._peek() != char:
            raise self._broken(f"it lacks {what}")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is no white space, "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Move the window on; False at the end of the file."""
        self._base = self.position()
        self._text, self._at = self._text[self._at :], 0
        try:
            data = self._file.read(max(CHUNK, len(self._text)))
            self._text += self._decode(data, not data)
        except (OSError, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise self._broken(error) from error
        return bool(data)

    def _broken(self, why: object) -> SeedbenchError:
        return SeedbenchError(f"{self._path} is not whole JSON of the expected shape ({why}); fetch the file again.")
