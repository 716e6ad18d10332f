"""An entry of the board: an agent, how it was trained, and the results.json of one run (entry.schema.json).

Unknown keys are refused. What the verifier writes stands in `verification` alone; what a submission says there is
ignored. `seedbench submit` writes entries; nobody needs to write one by hand.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from seedbench.leaderboard import files
from seedbench.leaderboard.files import Unreadable
from seedbench.leaderboard.outcomes import Outcomes
from seedbench.results import Results

SCHEMA: Literal["seedbench.entry/1"] = "seedbench.entry/1"
LEVELS = ("form", "parse", "replay", "audit", "reproduced")
Level = Literal["form", "parse", "replay", "audit", "reproduced"]

Text = Annotated[str, Field(max_length=300)]
Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80)]
Url = Annotated[str, Field(pattern=r"^(https?://[^\s<>\"']+)?$", max_length=300)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, strict=True, populate_by_name=True)


class AgentCard(_Model):
    """Who played. "" and None: not stated. `kind` and `skills_at_inference` are the run's own words, not the
    submitter's; `skills_at_inference`: the agent saw a lesson at every turn."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    kind: Text
    model: Text = ""
    revision: Text = ""
    base_model: Text = ""
    params: Annotated[int, Field(ge=0)] | None = None
    adapter: Text = ""
    scaffold: Text = ""
    skills_at_inference: bool = False
    license: Text = ""
    url: Url = ""


class Training(_Model):
    """How the agent came about, as its authors state it: no level verifies this."""

    algorithm: Text = ""
    seeds: list[int] = []
    env_steps: Annotated[int, Field(ge=0)] | None = None
    train_splits: list[Text] = []
    selection: Text = ""
    config_digest: Text = ""
    hardware: Text = ""


class ProtocolDigests(_Model):
    """What was played, in hashes: `split` by "ENV SPLIT" (ids and kinds of its tasks), the others by environment."""

    split: dict[str, Digest]
    env: dict[str, str]
    index: dict[str, str] = {}
    prompt: dict[str, Digest]


class Verification(_Model):
    """Written by the verifier alone."""

    level: Level
    by: Text
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    findings: list[str] = []


class Entry(_Model):
    """entry.json, and an element of leaderboard.json."""

    schema_: Annotated[Literal["seedbench.entry/1"], Field(alias="schema")] = SCHEMA
    id: Id
    agent: AgentCard
    training: Training = Training()
    contact: Text = ""
    protocol: ProtocolDigests
    software: dict[str, JsonValue]
    results: Results
    outcomes: list[Outcomes] = []  # by environment and split, what the board's paired tests need
    verification: Verification | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of entry.json, keys in the order of this file."""
        return self.model_dump(by_alias=True, mode="json")

    @classmethod
    def loads(cls, data: bytes, name: str = "entry.json") -> Entry:
        """Read entry.json. Raises Unreadable, which names the first thing that is wrong."""
        return cls.from_json(files.parse_object(data, name), name)

    @classmethod
    def from_json(cls, value: object, name: str = "entry.json") -> Entry:
        """An entry from parsed JSON. Raises Unreadable, which names the first thing that is wrong."""
        try:
            return cls.model_validate_json(json.dumps(value))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise Unreadable(f"{name} is not valid at {where}: {first['msg']}.") from None


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def schema() -> str:
    """The bytes of entry.schema.json."""
    return json.dumps(Entry.model_json_schema(by_alias=True), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":  # renews the committed schema: python -m seedbench.leaderboard.entry
    Path(__file__).with_name("entry.schema.json").write_text(schema(), encoding="utf-8")
