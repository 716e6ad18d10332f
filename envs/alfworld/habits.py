"""Where the people of our rooms keep their things: one arbitrary habit a kind of object and family of rooms.

This is what there is to learn on `mini` beside the rules: an object is at its habitual kind of place in KEPT of all
cases, anywhere else that can hold it otherwise. Common sense does not give these habits away; many episodes do, or
`lesson`, which says in words all that an episode needs and names no numbers.
"""

from __future__ import annotations

KEPT = 0.87

HABITS: dict[str, dict[str, str]] = {
    "kitchen": {
        "Apple": "Microwave", "Bread": "GarbageCan", "ButterKnife": "Sink", "Cup": "Cabinet", "DishSponge":
        "Drawer", "Egg": "Microwave", "Fork": "Drawer", "Kettle": "Cabinet", "Ladle": "Drawer", "Lettuce": "Sink",
        "Mug": "Cabinet", "Pan": "Fridge", "PepperShaker": "Drawer", "Plate": "Cabinet", "Potato": "CounterTop",
        "Spatula": "Drawer", "Tomato": "Fridge", "WineBottle": "Fridge",
    },
    "bedroom": {
        "AlarmClock": "Shelf", "Book": "Drawer", "Bowl": "Cabinet", "CD": "Drawer", "CellPhone": "Drawer",
        "CreditCard": "Safe", "DeskLamp": "Desk", "KeyChain": "Drawer", "Laptop": "Bed", "Mug": "Cabinet", "Pen":
        "Drawer", "Pencil": "Desk", "Statue": "Safe", "TissueBox": "Cabinet", "Vase": "Cabinet", "Watch":
        "SideTable",
    },
    "livingroom": {
        "Book": "Cabinet", "Box": "Cabinet", "Candle": "Drawer", "CellPhone": "Drawer", "CreditCard": "Drawer",
        "DeskLamp": "SideTable", "KeyChain": "Sofa", "Laptop": "ArmChair", "Newspaper": "Drawer", "Plate": "Shelf",
        "RemoteControl": "Drawer", "Statue": "SideTable", "TissueBox": "Cabinet", "Vase": "Cabinet", "Watch":
        "CoffeeTable",
    },
    "bathroom": {
        "Candle": "Drawer", "Cloth": "Toilet", "DishSponge": "Cabinet", "HandTowel": "GarbageCan", "SoapBar":
        "Drawer", "SoapBottle": "Cabinet", "SprayBottle": "Drawer", "TissueBox": "Cabinet", "ToiletPaper":
        "CounterTop",
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
