"""A world of people, places, works and companies whose facts fit together: who was born when decides who may teach,
marry, direct or found what.

The world lies in four lands, one for each split of the exam. No fact joins two lands, so what one split asks about no
other split does. Names come from `names`, relations from `relations`; `prose` writes the passages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from seedbench.core import stream
from seedbench.envs.searchqa.names import Names
from seedbench.envs.searchqa.people import People
from seedbench.envs.searchqa.stock import BUILDINGS, LANDS, LEARNED, RACES, STOCK, TITLES, TRADES, Entity, Level


class World(NamedTuple):
    """Everything by name, in the order in which it was made."""

    entities: dict[str, Entity]

    def of(self, land: str, kind: str) -> list[Entity]:
        return [e for e in self.entities.values() if e.land == land and e.kind == kind]


def build(seed: int, level: Level, scale: Mapping[str, float], common: frozenset[str]) -> World:
    """A world in which each land of `scale` has its share of STOCK times that factor. `common` as for `Names`."""
    names, world = Names(seed, common), World({})
    firsts = {"m": [names.man() for _ in range(150)], "f": [names.woman() for _ in range(150)]}
    keys: list[str] = []
    for land, factor in scale.items():
        rng = random.Random(stream("searchqa land", seed, land))
        counts = {kind: max(2, round(n * LANDS[land] * factor)) for kind, n in STOCK.items()}
        Land(land, level, rng, names, firsts, keys, counts, world.entities).settle()
    _set_aliases(world)
    return world


def _set_aliases(world: World) -> None:
    """A surname, or the first word of a company, where nothing else has that word in its name."""
    bearers: dict[str, int] = {}
    for entity in world.entities.values():
        for word in entity.name.split():
            bearers[word] = bearers.get(word, 0) + 1
    for entity in world.entities.values():
        if entity.kind in ("person", "company"):
            word = entity.name.split()[-1 if entity.kind == "person" else 0]
            entity.aliases = (word,) if bearers[word] == 1 else ()


class Land(People):
    """One land in the making: what others refer to is made first."""

    def settle(self) -> None:
        """Make everything, what others refer to first."""
        for kind in ("country", "city"):
            for _ in range(self.counts[kind]):
                self._add(getattr(self.names, "town" if kind == "city" else "country")(), kind)
        self._people()
        self._places()
        for kind in ("university", "company", "building", "novel", "film", "opera", "painting", "race"):
            for _ in range(self.counts[kind]):
                getattr(self, f"_{kind}")()
        self._careers()

    def _key(self) -> str:
        """The word of a title: at times one that another title has already."""
        if self.keys and self.rng.random() < self.level.namesakes / 2:
            return self.rng.choice(self.keys[-400:])
        self.keys.append(self.names.key())
        return self.keys[-1]

    def _titled(self, frame: Callable[[str], str]) -> str:
        while (name := frame(self._key())) in self.entities:
            pass
        return name

    def _places(self) -> None:
        rivers = [self.names.river() for _ in range(max(2, len(self.own["city"]) // 2))]
        countries = self.own["country"]
        for index, city in enumerate(self.own["city"]):
            mayor, year = self._officer(1840, 1975)
            twins = [c for c in self.own["city"] if c is not city]
            city.facts |= {
                "country": (countries[index] if index < len(countries) else self.rng.choice(countries)).name,
                "settled": str(self.rng.randint(1020, 1780)), "river": self.rng.choice(rivers), "mayor": mayor.name,
                "population": f"{self.rng.randint(41, 1990) * 100:,}",
            }  # fmt: skip
            city.extra["mayor_year"] = str(year)
            if self.rng.random() < 0.6:
                city.facts["twin"] = self.rng.choice(twins).name
        for index, country in enumerate(countries):
            president, year = self._officer(1840, 1975)
            country.facts |= {"capital": self.own["city"][index].name, "president": president.name,
                              "independence": str(year)}  # fmt: skip

    def _university(self) -> None:
        rector, year = self._adult(LEARNED, 1835, 1940, 35)
        university = self._add(f"{self.names.key()} University", "university")
        university.facts |= {"seat": self._city(), "chartered": str(year), "rector": rector.name}

    def _company(self) -> None:
        made = len(self.own["company"])
        suffix, trade = TRADES[made % 2] if made % 3 else self.rng.choice(TRADES)
        founder, year = self._adult(["industrialist"], 1905 if suffix in ("Pictures", "Motors") else 1825, 1970)
        company = self._add(self._titled(lambda key: f"{key} {suffix}"), "company", trade=trade)
        company.facts |= {"founder": founder.name, "established": str(year), "headquarters": self._city()}
        if made > 3 and self.rng.random() < 0.35:
            company.facts["parent"] = self.own["company"][self.rng.randrange(made)].name

    def _building(self) -> None:
        suffix = self.rng.choice(BUILDINGS) if len(self.own["building"]) > 1 else "Museum"
        architect, year = self._adult(["architect"], 1825, 1975)
        building = self._add(self._titled(lambda key: f"{key} {suffix}"), "building", sort=suffix.lower())
        building.facts |= {"architect": architect.name, "site": self._city(), "opened": str(year),
                           "height": str(self.rng.randint(12, 160))}  # fmt: skip

    def _work(self, kind: str, maker: str, profession: str, when: str, first: int, last: int) -> Entity:
        person, year = self._adult([profession], first, last)
        work = self._add(self._titled(self.rng.choice(TITLES[kind]).format), kind)
        work.facts |= {maker: person.name, when: str(year)}
        return work

    def _firm(self, trade: str, year: int) -> str | None:
        """A company of a trade that there was by that year."""
        able = [c for c in self.own["company"] if c.extra["trade"] == trade and c.year("established") <= year]
        return self.rng.choice(able).name if able else None

    def _novel(self) -> None:
        novel = self._work("novel", "author", "novelist", "published", 1826, 1975)
        novel.facts |= {"setting": self._city(), "pages": str(self.rng.randint(112, 890))}
        if house := self._firm("publishing house", novel.year("published")):
            novel.facts["publisher"] = house

    def _film(self) -> None:
        film = self._work("film", "director", "film director", "released", 1910, 1985)
        year = film.year("released")
        self._add_at_work(film, "star", "actor", year)
        self._add_at_work(film, "score", "composer", year)
        if studio := self._firm("film studio", year):
            film.facts["studio"] = studio
        sources = [n for n in self.own["novel"] if n.year("published") < year]
        if sources and self.rng.random() < 0.5:
            film.facts["source"] = self.rng.choice(sources).name

    def _add_at_work(self, work: Entity, relation: str, profession: str, year: int) -> None:
        """Someone of a profession who was at work in that year has a part in the work; nobody where there was none."""
        able = [p for p in self.own["person"] if p.facts["profession"] == profession]
        alive = [p for p in able if p.year("born") + 20 <= year <= p.year("died")]
        if alive:
            work.facts[relation] = self.rng.choice(alive).name

    def _opera(self) -> None:
        opera = self._work("opera", "composer", "composer", "premiere", 1826, 1975)
        opera.facts["stage"] = self._city()
        self._add_at_work(opera, "librettist", "poet", opera.year("premiere"))

    def _painting(self) -> None:
        painting = self._work("painting", "painter", "painter", "painted", 1826, 1975)
        museums = [b for b in self.own["building"] if b.extra["sort"] == "museum"]
        painting.facts["museum"] = self.rng.choice(museums).name

    def _race(self) -> None:
        suffix, sort = self.rng.choice(RACES)
        winner, year = self._adult(["athlete"], 1890 if suffix in ("Tour", "Ski Run") else 1826, 1965, 18, 36)
        race = self._add(self._titled(lambda key: f"{key} {suffix}"), "race", sort=sort)
        race.facts |= {"winner": winner.name, "course": self._city(), "first_held": str(year)}
        firms = [c for c in self.own["company"] if c.year("established") <= year]
        if firms and self.rng.random() < 0.6:
            race.facts["sponsor"] = self.rng.choice(firms).name
