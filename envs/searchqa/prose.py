"""Passages: one about each subject of a world, in sentences that each state known facts.

A template's placeholders say what a sentence states: those that are relations (seedbench.envs.searchqa.relations) are
facts, the others are of the language. Every fact stands in the passage of its subject and nowhere else.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from string import Formatter
from typing import NamedTuple

from seedbench.core import stream
from seedbench.envs.searchqa.relations import RELATIONS
from seedbench.envs.searchqa.sentences import FILLERS, SLOTS
from seedbench.envs.searchqa.stock import Entity, Level
from seedbench.envs.searchqa.world import World

WITH_ARTICLE = frozenset(["building", "race"])  # "the Zuvarel Museum", but "Zuvarel Press"
SHORTEST, LONGEST = 30, 70  # words of a passage with its title
LEFT_OUT = 0.6  # how often the easier levels leave out the last facts of a passage that is long enough
_END = re.compile(r"(?<=\.) (?=[A-Z])")


class Article(NamedTuple):
    """A passage, and the sentence that states each fact which it tells of."""

    title: str
    text: str
    stated: Mapping[str, int]


def sentences(text: str) -> list[str]:
    """The sentences of a passage's text, whose places `Evidence.sentence` counts from 0."""
    return _END.split(text)


def a(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def placeholders(template: str) -> list[str]:
    """The names in braces, in order."""
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def relations_in(template: str) -> list[str]:
    """The facts that a sentence of this template states."""
    return [name for name in placeholders(template) if name in RELATIONS and name != "profession"]


def common_words() -> frozenset[str]:
    """Every ordinary word that a passage may have, in lower case: what no name may be."""
    text = " ".join(t for slots in SLOTS.values() for slot in slots for t in slot)
    text += " " + " ".join(t for fillers in FILLERS.values() for t in fillers)
    return frozenset(re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", text).lower()))


def write(world: World, seed: int, level: Level) -> list[Article]:
    """One passage for each subject."""
    return [_article(e, random.Random(stream("searchqa prose", seed, e.name)), level) for e in world.entities.values()]


def _article(entity: Entity, rng: random.Random, level: Level) -> Article:
    said: list[str] = []
    stated: dict[str, int] = {}
    for slot in SLOTS[entity.kind]:
        if not level.fillers and _words(entity, said) >= SHORTEST and rng.random() < LEFT_OUT:
            break
        template = _pick(slot, entity, stated, rng)
        if template is not None:
            stated |= {relation: len(said) for relation in relations_in(template)}
            said.append(_sentence(template, entity, rng))
    fillers = list(FILLERS[entity.kind])
    rng.shuffle(fillers)
    more = level.fillers
    while fillers and (more > 0 or _words(entity, said) < SHORTEST):
        said.append(_sentence(fillers.pop(), entity, rng))
        more -= 1
    return Article(entity.name, " ".join(said), stated)


def _words(entity: Entity, said: list[str]) -> int:
    """Words of a passage with its title."""
    return len(f"{entity.name} {' '.join(said)}".split())


def _pick(slot: tuple[str, ...], entity: Entity, stated: Mapping[str, int], rng: random.Random) -> str | None:
    """A template of which every fact is known and none has been told; mostly one that tells most."""
    able = [
        template for template in slot
        if all(relation in entity.facts and relation not in stated for relation in relations_in(template))
    ]  # fmt: skip
    if not able:
        return None
    most = max(len(relations_in(template)) for template in able)
    if rng.random() < 0.8:
        able = [template for template in able if len(relations_in(template)) == most]
    return rng.choice(able)


def _sentence(template: str, entity: Entity, rng: random.Random) -> str:
    man = entity.extra.get("sex") == "m"
    profession = entity.facts.get("profession", "")
    trade, sort = entity.extra.get("trade", ""), entity.extra.get("sort", "")
    words = {
        "name": entity.name, "he": "he" if man else "she", "his": "his" if man else "her",
        "him": "him" if man else "her", "son": "son" if man else "daughter", "wife": "wife" if man else "husband",
        "few": rng.choice(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")),
        "acts": rng.choice(("two", "three", "four", "five")), "many": str(rng.randint(11, 99)),
        "season": "winter" if sort == "ski race" else rng.choice(("spring", "summer", "autumn")),
        "sort": sort, "trade": trade, "mayor_year": entity.extra.get("mayor_year", ""),
    }  # fmt: skip
    words |= {"a_profession": a(profession) if profession else "", "a_trade": a(trade) if trade else ""}
    words |= {"profession": profession, "He": words["he"].capitalize(), "His": words["his"].capitalize()}
    return template.format(**words, **{k: v for k, v in entity.facts.items() if k != "profession"})
