"""Names for a generated world: a small set of syllables, so that a tiny tokenizer can spell them all.

Every name word is unlike every other one and unlike every ordinary word after stemming, so that a search for a name
finds what bears it and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from seedbench.core import SeedbenchError, stream
from seedbench.indexes.porter import stem

ONSETS, VOWELS, CODAS = "bdfgjklmnprstvz", "aeiou", "lnr"
SYLLABLES = tuple(onset + vowel for onset in ONSETS for vowel in VOWELS)
RARE = frozenset("jkvz")  # a word has one of these: real words of such syllables mostly do without
REAL = frozenset([  # what remains of English words, and of names of real places and people
    "baja", "bake", "baker", "baku", "bavaria", "bazaar", "beguile", "belive", "belize", "bevan", "bezel", "bike",
    "biker", "boko", "bolivar", "bolivia", "bovine", "civil", "dakar", "dakota", "dave", "davison", "daze", "deja",
    "deliver", "derive", "devi", "devil", "devin", "devine", "devise", "devo", "devon", "devote", "dijon", "dike",
    "diva", "divan", "dive", "diver", "divide", "divider", "divine", "dojo", "donovan", "dove", "dover", "dozen",
    "driven", "duke", "duval", "fake", "faker", "fave", "favor", "faze", "fever", "fiji", "five", "forever", "fuji",
    "gave", "gavin", "gaza", "gaze", "geneva", "give", "given", "giver", "givin", "giza", "goku", "gove", "ivan",
    "jade", "jaden", "jake", "jama", "jamaica", "jamal", "jameson", "jamison", "jana", "janata", "jane", "janine",
    "janitor", "japan", "jason", "java", "javel", "javelin", "javi", "jedi", "jeju", "jemima", "jena", "jerome",
    "jeter", "jezebel", "jimi", "jive", "jodi", "jojo", "joke", "joker", "jolie", "joni", "jose", "joseph", "jovan",
    "jovi", "juba", "jubilee", "jude", "judi", "judo", "jugular", "juju", "juke", "june", "juniper", "juno",
    "jupiter", "jura", "juror", "jute", "juve", "kabir", "kabul", "kaduna", "kagan", "kala", "kale", "kali", "kama",
    "kamal", "kamala", "kami", "kana", "kane", "kano", "kara", "karan", "karate", "karen", "kari", "karin",
    "karina", "kata", "katana", "kate", "kato", "kazan", "kenya", "kerala", "keri", "kernel", "kerosene", "keto",
    "kevin", "kiki", "kilo", "kimi", "kimono", "kinase", "kino", "kira", "kiran", "kita", "kite", "kiwi", "kobe",
    "kodak", "kodi", "kofi", "kojima", "koko", "kona", "koran", "korea", "kosovo", "kota", "kudu", "kumar", "lake",
    "lakeland", "laker", "lava", "laval", "lavaland", "lazar", "lenovo", "level", "lever", "levi", "levin",
    "levine", "like", "live", "liver", "livin", "liza", "loki", "lovato", "love", "lover", "lovin", "luka", "luke",
    "major", "make", "maker", "maki", "makin", "mako", "makoto", "marvel", "maven", "maze", "mika", "mike", "mikel",
    "miki", "minivan", "mojave", "mojo", "monika", "moniker", "moravia", "motive", "move", "mover", "movin",
    "native", "navajo", "naval", "navarre", "nave", "navel", "navi", "nazi", "nevada", "neve", "never", "nike",
    "niki", "nikita", "niko", "nikola", "nikon", "nova", "novel", "novena", "novo", "nuke", "pajama", "panzer",
    "pave", "pavel", "pike", "pivot", "pivotal", "poke", "pokemon", "poker", "puja", "puke", "raja", "rajan",
    "raju", "rake", "rave", "ravel", "raven", "ravenna", "ravi", "ravine", "raza", "razer", "razor", "rebuke",
    "relive", "remake", "removal", "remove", "remover", "retake", "revel", "revere", "revise", "revival", "revive",
    "revoke", "reza", "riker", "rival", "riven", "river", "rivera", "rivulet", "rojo", "roku", "rove", "rover",
    "sake", "sakura", "salazar", "saliva", "sasuke", "sativa", "savage", "savanna", "save", "saver", "savile",
    "savor", "seven", "sever", "several", "severe", "sevilla", "siva", "size", "sumo", "taka", "take", "taken",
    "taker", "takin", "tanaka", "tavern", "tibere", "tiki", "tizen", "token", "tokyo", "topeka", "vader", "vagina",
    "vaginal", "vale", "valeria", "valor", "vane", "vanilla", "vape", "vapor", "vase", "veda", "vega", "vegan",
    "vegeta", "venison", "vera", "verizon", "vero", "verona", "veteran", "veto", "vibe", "vida", "vidal", "vide",
    "vigil", "vigor", "vile", "vine", "vinegar", "vino", "viper", "viral", "visa", "visage", "vise", "visitor",
    "visor", "vita", "vital", "vitali", "vitamin", "vito", "viva", "vive", "vivo", "vizier", "vocal", "vogel",
    "volcano", "volume", "vote", "voter", "woken", "zagora", "zane", "zara", "zebra", "zeke", "zero", "zeta",
    "zidane", "zika", "zine", "zola", "zone", "zulu", "zuma",
])  # fmt: skip


class Names:
    """An endless supply of new words of a shape, the same for the same seed."""

    def __init__(self, seed: int, common: frozenset[str]):
        """`common`: stems of ordinary words, none of which a name may have."""
        self._rng = random.Random(stream("searchqa names", seed))
        self._taken = set(common) | {stem(word) for word in REAL}

    def word(self, syllables: int, ending: Callable[[random.Random], str]) -> str:
        """A new capitalised word of so many syllables, the last of which `ending` completes."""
        for _ in range(10000):
            body = "".join(self._rng.choice(SYLLABLES) for _ in range(syllables))
            text = body + ending(self._rng)
            root = stem(text)
            doubled = any(body[i : i + 2] == body[i + 2 : i + 4] for i in range(0, len(body) - 2, 2))
            if not doubled and RARE & set(text) and root not in self._taken and not {text, body} & REAL:
                self._taken.add(root)
                return text.capitalize()
        raise SeedbenchError("There are no more names of this length; generate a smaller world.")

    def man(self) -> str:
        return self.word(1, lambda rng: rng.choice(ONSETS) + rng.choice(("o", "en", "ar", "un", "il", "on")))

    def woman(self) -> str:
        return self.word(1, lambda rng: rng.choice(ONSETS) + rng.choice(("a", "i", "ina", "ela", "ira", "una")))

    def surname(self) -> str:
        return self.word(2, lambda rng: rng.choice(CODAS))

    def town(self) -> str:
        return self.word(2, lambda rng: rng.choice(ONSETS) + rng.choice("aoe"))

    def key(self) -> str:
        """The word that tells a work, a company or a building from others of its sort."""
        return self.word(3, lambda rng: rng.choice(CODAS))

    def river(self) -> str:
        return self.word(2, lambda rng: "")

    def country(self) -> str:
        return self.word(2, lambda rng: rng.choice(("nia", "ria", "dor", "land")))
