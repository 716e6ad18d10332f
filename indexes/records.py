"""One line of a corpus file to one passage, and what a corpus file must not be.

A record is `{"id", "contents"}`, whose first line is the title (in quotes, as wiki-18 has it), or `{"id", "title",
"text"}`; `_id` and `docid` are read as `id`, and a missing title as none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seedbench.core import Passage, SeedbenchError

IDS = ("id", "_id", "docid")
LONGEST_ID = 512  # UTF-8 bytes
LFS = b"version https://git-lfs.github.com/spec/"


class RecordError(SeedbenchError):
    """A record that is no passage; the message is one clause, without the line's number."""


def passage(line: bytes) -> Passage:
    """The passage that a line holds, with score 0. Raises RecordError."""
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"is not UTF-8 (byte {error.start}): convert the file to UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"is not JSON ({error})") from error
    if not isinstance(record, dict):
        raise RecordError("is not a JSON object with an id and a text")
    found = next((record[name] for name in IDS if name in record), None)
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not found:
        raise RecordError("has no id: give every record its own, a text or a whole number")
    if "\0" in found or len(found.encode("utf-8", "surrogatepass")) > LONGEST_ID:
        raise RecordError(f"has an id with a NUL in it, or one longer than {LONGEST_ID} bytes")
    title, text = _title_and_text(record)
    return Passage(found, title, text, 0.0)


def _title_and_text(record: dict[str, Any]) -> tuple[str, str]:
    if "text" in record:
        title, text = record.get("title") or "", record["text"]
    else:
        contents = record.get("contents")
        if not isinstance(contents, str):
            raise RecordError('has neither "text" nor "contents"')
        title, line_break, text = contents.partition("\n")
        if not line_break:
            title, text = "", contents
        elif len(title) > 1 and title[0] == title[-1] == '"':
            title = title[1:-1]
    if not isinstance(title, str) or not isinstance(text, str):
        raise RecordError("has a title or a text that is no string")
    return title, text


def contents(passage: Passage) -> str:
    """What is indexed of a passage."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def refuse_pointer(path: Path) -> None:
    """Raises SeedbenchError where `path` is a Git LFS pointer instead of the file that it points to."""
    with path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            raise SeedbenchError(
                f"{path} is a Git LFS pointer, not the file itself: run `git lfs pull` where it was cloned, or "
                "download the file."
            )
