"""The kinds of things that our own shop sells, in our own words; nothing here was taken from a real shop.

A `Family` is one kind of thing: what the shop calls it, what some shoppers call it, where it stands, what it may be
like and in which variants it comes. What there is to learn on `mini` beside the rules is `ATTRIBUTES`: how shoppers
paraphrase what a page says in one word. `lesson` says it in words. The category `garden`, which no training task
holds, has things of its own but no attributes and variants of its own.

All texts are lower case and short. Brands and product ids are made of SYLLABLES, so that a small tokenizer copes.
Option values and attributes are chosen so that the original's lenient comparison never takes one for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

ATTRIBUTES = {  # as a page says it -> as a shopper may say it, after "that"
    "adjustable": "fits to measure",
    "breathable": "lets air through",
    "compact": "takes little room",
    "crunchy": "is loud to chew",
    "durable": "lasts for years",
    "foldable": "folds up",
    "fragrant": "smells nice",
    "gentle": "is kind to skin",
    "glossy": "shines",
    "handmade": "was not made by machine",
    "hooded": "covers the head",
    "insulated": "stays warm",
    "lightweight": "weighs little",
    "magnetic": "sticks to metal",
    "matte": "does not shine",
    "nonstick": "is easy to wipe clean",
    "organic": "grew without chemicals",
    "padded": "has a soft lining",
    "portable": "is easy to take along",
    "rechargeable": "needs no new batteries",
    "recycled": "was made from waste",
    "roasted": "was in the oven",
    "rustproof": "may stay outdoors",
    "silent": "makes no noise",
    "solar": "lives on daylight",
    "spicy": "burns the tongue",
    "spillproof": "does not leak",
    "stackable": "piles up",
    "stretchy": "gives a bit",
    "sugarless": "has nothing sweet in it",
    "unbreakable": "survives a fall",
    "vegan": "has no animal in it",
    "vintage": "looks old",
    "washable": "may go in the wash",
    "waterproof": "keeps the wet out",
    "wireless": "has no cable",
}

AXES = {  # option name -> its values
    "color": "black white red green navy silver purple beige pink orange yellow brown",
    "size": "petite small medium large tall huge",
    "scent": "vanilla jasmine lemon cedar lavender honey peach mint",
    "flavor": "cherry ginger apple garlic cocoa maple mango pepper",
    "pack": "single double trio dozen bulk",
    "storage": "32gb 64gb 128gb 256gb 512gb",
    "shape": "round square oval flat cone",
    "material": "cotton linen fleece canvas leather",
    "body": "bamboo oak glass plastic copper",
    "plug": "usb jack socket clip",
    "grind": "whole coarse fine powder",
    "strength": "mild bold extreme",
    "length": "short long midi",
}

SYLLABLES = tuple(c + v for c in "bdfghjklmnprstvz" for v in "aeiou")
ENDINGS = ("bex", "dor", "fin", "gus", "kel", "lan", "mir", "nox", "pim", "rus", "tov", "zan")  # of brands alone


class Family(NamedTuple):
    """One kind of thing. `said` is another word for it; `some` marks what one cannot have one of, such as tea."""

    noun: str
    said: str
    category: str
    path: str  # below the category, above the thing
    low: int  # dollars
    high: int
    attributes: tuple[str, ...]
    axes: tuple[str, ...]
    uses: tuple[str, ...]
    some: bool = False

    @property
    def product_category(self) -> str:
        return " › ".join((self.category, *self.path.split(" › "), self.noun))


_TABLE = """
beauty
lip balm | mouth ointment | skin care › lips | 4-29
  vegan organic gentle glossy matte fragrant | scent color pack | winter, travel
face cream | skin lotion | skin care › face | 8-69
  vegan organic gentle fragrant lightweight matte | strength size scent | dry days, the night
hair brush | untangler | hair care › tools | 5-39
  gentle vegan compact foldable durable washable | color shape size | thick curls, daily use
shampoo bar | head soap | hair care › wash | 4-29
  organic vegan gentle fragrant handmade portable | scent size pack | short trips, oily roots
nail polish | finger varnish | makeup › nails | 3-19
  glossy matte vegan durable gentle | color pack size | parties, beginners
makeup bag | cosmetics pouch | makeup › storage | 8-49
  waterproof padded compact washable vintage recycled foldable | color size material | travel, the shelf
hand mirror | looking glass | makeup › tools | 6-49
  magnetic foldable compact unbreakable vintage rechargeable | shape color size | the bath, the desk
electronics
desk lamp | table light | home › lighting | 12-69
  adjustable foldable rechargeable wireless magnetic vintage | color plug shape | reading, late work
phone case | handset cover | phones › covers | 5-39
  waterproof unbreakable magnetic lightweight matte recycled | color size material | work, sport
memory card | data chip | phones › storage | 6-59
  durable waterproof portable compact unbreakable | storage pack color | photos, music
speaker | sound box | audio › players | 14-69
  wireless waterproof portable rechargeable compact vintage | color size plug | the beach, parties
headset | ear set | audio › wearable | 15-69
  wireless foldable padded lightweight adjustable rechargeable | color plug size | calls, gaming
computer mouse | pointer | computers › input | 7-49
  wireless silent rechargeable compact lightweight durable | color size shape | travel, the office
power bank | spare battery | phones › power | 12-69
  portable solar lightweight waterproof compact magnetic | color plug size | camping, long flights
fashion
rain jacket | wet weather coat | clothes › outdoor | 25-69
  waterproof hooded lightweight breathable foldable padded | color size length | hikes, the city
backpack | rucksack | bags › carried | 18-69
  waterproof padded lightweight foldable recycled durable | color size material | school, weekends
t-shirt | tee | clothes › tops | 6-39
  organic breathable stretchy washable vintage lightweight | color size length | summer, the gym
scarf | neck wrap | clothes › warm | 8-49
  organic washable handmade insulated fragrant vintage | color material length | cold wind, evenings
belt | waist strap | bags › worn | 9-49
  adjustable vegan handmade durable stretchy vintage | color size material | jeans, work
running shoe | jogger | shoes › sport | 28-69
  breathable lightweight waterproof padded washable recycled | color size shape | trails, the track
sun hat | shade cap | clothes › heads | 8-49
  foldable adjustable breathable washable lightweight handmade | color size material | the pool, the boat
grocery
tea | leaf brew | drinks › hot | 4-39 | some
  organic fragrant sugarless gentle vegan | flavor pack strength | mornings, guests
coffee | java | drinks › beans | 6-49 | some
  organic roasted fragrant handmade vegan | grind pack strength | early risers, the office
snack bar | energy bite | snacks › bars | 3-29
  vegan organic crunchy sugarless roasted portable | flavor pack size | hikes, school
nut mix | kernel blend | snacks › nuts | 5-39 | some
  roasted spicy crunchy organic vegan | flavor pack size | movies, guests
hot sauce | chili dressing | pantry › sauces | 3-29 | some
  spicy organic vegan sugarless roasted | flavor strength pack | tacos, eggs
rice cracker | crisp wafer | snacks › crackers | 3-19
  crunchy spicy organic vegan roasted | flavor pack shape | dips, lunch
jam | fruit spread | pantry › spreads | 4-29 | some
  organic handmade sugarless vegan fragrant | flavor size pack | toast, baking
kitchen
frying pan | skillet | cooking › pans | 14-69
  nonstick lightweight durable stackable rustproof | size color shape | eggs, big families
water bottle | drink flask | drinkware › carried | 8-49
  spillproof insulated lightweight unbreakable recycled foldable | color size body | the gym, school
mug | coffee cup | drinkware › table | 5-39
  handmade stackable insulated unbreakable glossy matte | color size body | soup, gifts
lunch box | meal tin | storage › carried | 7-49
  spillproof stackable insulated foldable recycled portable | color size shape | the office, school
cutting board | chopping slab | cooking › tools | 8-59
  organic durable foldable nonstick washable recycled | body size shape | bread, fish
kitchen scale | food balance | cooking › measuring | 9-59
  compact rechargeable waterproof foldable magnetic | color shape plug | baking, diets
storage jar | keeping pot | storage › shelf | 4-39
  stackable spillproof unbreakable vintage recycled | size body shape | flour, beans
garden
plant pot | flower tub | growing › pots | 6-59
  recycled lightweight handmade stackable glossy waterproof | color size shape | herbs, balconies
garden hose | water tube | watering › hoses | 14-69
  stretchy lightweight durable foldable portable | color size length | lawns, cars
bird feeder | seed house | wildlife › birds | 9-59
  waterproof recycled handmade vintage magnetic | color shape body | finches, small yards
pruning saw | branch cutter | tools › cutting | 12-59
  foldable rustproof lightweight rechargeable silent | size length color | hedges, fruit trees
watering can | sprinkle jug | watering › cans | 8-49
  lightweight rustproof vintage compact spillproof | color size body | seedlings, roses
path light | ground lantern | outdoor › lighting | 9-59
  solar waterproof wireless adjustable rechargeable | color shape pack | steps, ponds
lawn chair | yard seat | outdoor › seats | 19-69
  foldable padded lightweight waterproof adjustable | color size material | picnics, the porch
seed tray | sprout case | growing › trays | 4-29
  stackable recycled compact durable spillproof | size pack shape | salads, windows
plant food | soil booster | growing › feeding | 5-39 | some
  organic vegan fragrant gentle recycled | strength pack size | tomatoes, lawns
work glove | hand guard | tools › hands | 4-29
  waterproof breathable padded washable stretchy durable | color size material | thorns, digging
"""


def _read(table: str) -> Iterator[Family]:
    """Families of a table: a line with the category alone, then two lines each."""
    category = ""
    lines = iter(table.strip().splitlines())
    for line in lines:
        if "|" not in line:
            category = line
            continue
        noun, said, path, price, *some = line.split(" | ")
        attributes, axes, uses = next(lines).strip().split(" | ")
        low, high = map(int, price.split("-"))
        yield Family(
            noun,
            said,
            category,
            path,
            low,
            high,
            tuple(attributes.split()),
            tuple(axes.split()),
            tuple(uses.split(", ")),
            bool(some),
        )


FAMILIES = tuple(_read(_TABLE))
CATEGORIES = tuple(dict.fromkeys(family.category for family in FAMILIES))


def families(category: str) -> tuple[Family, ...]:
    """The families of one category, in order."""
    return tuple(family for family in FAMILIES if family.category == category)


def lesson(category: str) -> str:
    """What shoppers mean, in words, for the things of one category; true of every product and goal there."""
    used = sorted({attribute for family in families(category) for attribute in family.attributes})
    lines = [f"{ATTRIBUTES[attribute]}: {attribute}" for attribute in used]
    return (
        "Shoppers say on the left what a title or the features page says on the right. Open the product where all that "
        "is asked for is true and the price is low enough, click each option, then buy.\n" + "\n".join(lines)
    )
