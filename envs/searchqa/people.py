"""The people of a land: births, families, schools and trades, each possible for the years in which they lived."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from seedbench.core import SeedbenchError
from seedbench.envs.searchqa.names import Names
from seedbench.envs.searchqa.stock import FIRST, LAST, LEARNED, PROFESSIONS, STOCK, Entity, Level


class People:
    """The people of one land in the making; `world.Land` adds what they make."""

    def __init__(
        self, land: str, level: Level, rng: random.Random, names: Names, firsts: Mapping[str, Sequence[str]],
        keys: list[str], counts: Mapping[str, int], entities: dict[str, Entity],
    ):  # fmt: skip
        self.land, self.level, self.rng, self.names, self.firsts = land, level, rng, names, firsts
        self.keys, self.counts, self.entities = keys, counts, entities
        self.own: dict[str, list[Entity]] = {kind: [] for kind in STOCK}
        self.surnames: list[str] = []
        self.children: dict[str, int] = {}
        self.partner: dict[str, Entity] = {}
        self.officers: set[str] = set()

    def _add(self, name: str, kind: str, **extra: str) -> Entity:
        entity = Entity(name, kind, self.land, extra=extra)
        self.entities[name] = entity
        self.own[kind].append(entity)
        return entity

    def _city(self) -> str:
        return self.rng.choice(self.own["city"]).name

    def _adult(
        self, professions: Collection[str], first: int, last: int, least: int = 24, most: int = 70
    ) -> tuple[Entity, int]:
        """Someone of those professions, and a year of the range in which that person was alive and of working age."""
        able = [span for p in self.own["person"] if p.facts["profession"] in professions
                if (span := _years(p, first, last, least, most))]  # fmt: skip
        return self._one_of(able, min(professions))

    def _officer(self, first: int, last: int) -> tuple[Entity, int]:
        """Someone to hold an office from a year of the range on, who holds no other: a politician if there is one."""
        others = [p for p in self.own["person"] if p.name not in self.officers]
        free = [span for p in others if (span := _years(p, first, last, 32, 60))]
        politicians = [span for span in free if span[0].facts["profession"] == "politician"]
        person, year = self._one_of(politicians or free, "mayor")
        self.officers.add(person.name)
        return person, year

    def _one_of(self, able: Sequence[tuple[Entity, int, int]], what: str) -> tuple[Entity, int]:
        """One of them, and a year between the two that follow."""
        if not able:
            raise SeedbenchError(f"Nobody in the land {self.land} can be a {what}; choose another seed.")
        person, low, high = self.rng.choice(able)
        return person, self.rng.randint(low, high)

    def _people(self) -> None:
        n = self.counts["person"]
        years = sorted(self.rng.randint(FIRST, LAST) for _ in range(n))
        deck = [p for p, weight in PROFESSIONS.items() for _ in range(weight)]
        for born in years:
            sex = self.rng.choice("mf")
            father = self._father(born)
            surname = father.name.split()[1] if father else self._surname()
            person = self._add(self._person_name(sex, surname), "person", sex=sex)
            profession = self.rng.choice([p for p in deck if p != "film director"] if born < 1865 else deck)
            person.facts |= {"birthplace": self._city(), "born": str(born), "profession": profession,
                             "died": str(born + self.rng.randint(52, 90))}  # fmt: skip
            if father:
                person.facts |= {"father": father.name, "mother": self.partner[father.name].name}
                self.children[father.name] = self.children.get(father.name, 0) + 1
        for one in self.own["person"]:
            if one.name not in self.partner and (other := self._match(one, one.year("born"), 10)):
                self._marry(one, other)

    def _surname(self) -> str:
        if self.surnames and self.rng.random() < self.level.namesakes:
            return self.rng.choice(self.surnames)
        self.surnames.append(self.names.surname())
        return self.surnames[-1]

    def _person_name(self, sex: str, surname: str) -> str:
        while (name := f"{self.rng.choice(self.firsts[sex])} {surname}") in self.entities:
            pass
        return name

    def _father(self, born: int) -> Entity | None:
        """A man of an age to have a child in that year, married by then; most people have one in the world."""
        if self.rng.random() < 0.25:
            return None
        able = [p for p in self.own["person"][-400:] if p.extra["sex"] == "m" and 24 <= born - p.year("born") <= 45]
        able = [p for p in able if self.children.get(p.name, 0) < 3]
        self.rng.shuffle(able)
        for man in able[:8]:
            wife = self.partner.get(man.name) or self._match(man, born - 30, 10)
            if wife and 20 <= born - wife.year("born") <= 42:
                if man.name not in self.partner:
                    self._marry(man, wife)
                return man
        return None

    def _match(self, one: Entity, born: int, apart: int) -> Entity | None:
        """Someone free to marry `one`: of the other sex, of another family, born around that year."""
        able = [
            p for p in self.own["person"]
            if p.extra["sex"] != one.extra["sex"] and p.name not in self.partner and abs(p.year("born") - born) <= apart
            and abs(p.year("born") - one.year("born")) <= 14 and p.name.split()[1] != one.name.split()[1]
        ]  # fmt: skip
        return self.rng.choice(able) if able else None

    def _marry(self, one: Entity, other: Entity) -> None:
        """A marriage; one of the two passages will tell of it."""
        self.partner[one.name], self.partner[other.name] = other, one
        teller, told = (one, other) if self.rng.random() < 0.5 else (other, one)
        teller.facts["spouse"] = told.name

    def _careers(self) -> None:
        """Schools, teachers and employers, once there are any."""
        for person in self.own["person"]:
            born, profession = person.year("born"), person.facts["profession"]
            schools = [u for u in self.own["university"] if u.year("chartered") <= born + 18]
            schools = [u for u in schools if u.facts["rector"] != person.name]
            if schools and self.rng.random() < (0.9 if profession in LEARNED else 0.45):
                person.facts["university"] = self.rng.choice(schools).name
            elders = [p for p in self.own["person"] if 14 <= born - p.year("born") <= 40]
            elders = [p for p in elders if p.facts["profession"] == profession and p.name not in person.facts.values()]
            if elders and self.rng.random() < 0.5:
                person.facts["teacher"] = self.rng.choice(elders).name
            firms = [c for c in self.own["company"] if born - 30 <= c.year("established") <= born + 40]
            firms = [c for c in firms if c.facts["founder"] != person.name and profession in _employable(c)]
            if firms and self.rng.random() < 0.8:
                person.facts["employer"] = self.rng.choice(firms).name


def _years(person: Entity, first: int, last: int, least: int, most: int) -> tuple[Entity, int, int] | None:
    """The person with the first and the last year of a range in which he or she was alive and of an age."""
    low = max(first, person.year("born") + least)
    high = min(last, person.year("born") + most, person.year("died"))
    return (person, low, high) if low <= high else None


def _employable(company: Entity) -> tuple[str, ...]:
    """Who finds work at a company of that trade."""
    trade = company.extra["trade"]
    if trade == "film studio":
        return "film director", "actor", "composer", "lawyer"
    if trade == "publishing house":
        return "novelist", "poet", "historian", "lawyer"
    return "engineer", "chemist", "geologist", "lawyer", "athlete", "botanist"
