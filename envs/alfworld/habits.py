"""Where the people of our rooms keep their things: one arbitrary habit a kind of object and family of rooms.

This is what there is to learn on `mini` beside the rules: an object is at its habitual kind of place in KEPT of all
cases, anywhere else that can hold it otherwise. Common sense does not give these habits away; many episodes do, or
`lesson`, which says in words all that an episode needs and names no numbers.
"""

from __future__ import annotations

KEPT = 0.87

HABITS: dict[str, dict[str, str]] = {
    "kitchen": {
        "Apple": "GarbageCan", "Bread": "Microwave", "ButterKnife": "Sink", "Cup": "Fridge", "DishSponge": "GarbageCan",
        "Egg": "Microwave", "Fork": "Drawer", "Kettle": "Sink", "Ladle": "CounterTop", "Lettuce": "Sink",
        "Mug": "Microwave", "Pan": "Fridge", "PepperShaker": "Drawer", "Plate": "Fridge", "Potato": "Sink",
        "Spatula": "CounterTop", "Tomato": "GarbageCan", "WineBottle": "Cabinet",
    },
    "bedroom": {
        "AlarmClock": "Shelf", "Book": "Cabinet", "Bowl": "Shelf", "CD": "Safe", "CellPhone": "Bed", "CreditCard": "Shelf",
        "DeskLamp": "Desk", "KeyChain": "Safe", "Laptop": "SideTable", "Mug": "Cabinet", "Pen": "SideTable",
        "Pencil": "Drawer", "Pillow": "Bed", "Statue": "Safe", "Vase": "Desk", "Watch": "Drawer",
    },
    "livingroom": {
        "Book": "Sofa", "Box": "Shelf", "Candle": "Drawer", "CellPhone": "SideTable", "CreditCard": "Sofa",
        "DeskLamp": "SideTable", "KeyChain": "Shelf", "Laptop": "CoffeeTable", "Newspaper": "ArmChair", "Pillow": "Sofa",
        "Plate": "Cabinet", "RemoteControl": "Shelf", "Statue": "SideTable", "TissueBox": "Drawer", "Vase": "Cabinet",
        "Watch": "CoffeeTable",
    },
    "bathroom": {
        "Candle": "Toilet", "Cloth": "GarbageCan", "DishSponge": "Toilet", "HandTowel": "Bathtub", "SoapBar": "Drawer",
        "SoapBottle": "GarbageCan", "SprayBottle": "CounterTop", "TissueBox": "Cabinet", "ToiletPaper": "Toilet",
    },
}  # fmt: skip

_ROOM = {"kitchen": "kitchens", "bedroom": "bedrooms", "livingroom": "living rooms", "bathroom": "bathrooms"}
_WORD = {"Sink": "sinkbasin", "Bathtub": "bathtubbasin"}


def word(name: str) -> str:
    """A type as the games say it: `GarbageCan` is "garbagecan", `Sink` is "sinkbasin"."""
    return _WORD.get(name, name.lower())


def habit(family: str, thing: str) -> str:
    """The kind of furniture where `thing` is usually kept in rooms of `family`."""
    return HABITS[family][thing]


def lesson(family: str) -> str:
    """The habits of one family of rooms in words, grouped by place; no numbers, true of every layout."""
    by_place: dict[str, list[str]] = {}
    for thing, place in sorted(HABITS[family].items()):
        by_place.setdefault(word(place), []).append(word(thing))
    lines = [f"{place}: {', '.join(things)}" for place, things in sorted(by_place.items())]
    return f"In {_ROOM[family]} things are usually kept here, so look here first.\n" + "\n".join(lines)
