"""Rooms of our own making: what stands where, what can hold what, and what can be done to things.

Furniture and object types are those of the published games, and so are the facts about types: CONTAINS is a part of
the `canContain` facts found there, the sets below it are their `cleanable`, `heatable` ... facts. The layouts are ours.
"""

from __future__ import annotations

from typing import NamedTuple

FAMILIES = ("kitchen", "bedroom", "livingroom", "bathroom")


class Layout(NamedTuple):
    """A room's furniture. Each inner tuple is one spot: pieces that an agent stands at together."""

    name: str
    spots: tuple[tuple[str, ...], ...]


def _layout(name: str, furniture: str) -> Layout:
    return Layout(name, tuple(tuple(spot.split("+")) for spot in furniture.split()))


# About eleven pieces each, half of them closed. Every layout of a family has all places that its habits name.
TRAIN_LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "kitchen": (
        _layout(
            "kitchen-a",
            "Cabinet Cabinet Drawer Drawer CounterTop Fridge Microwave Sink GarbageCan StoveBurner DiningTable",
        ),
        _layout(
            "kitchen-b",
            "Cabinet+CounterTop Cabinet Drawer+Drawer Drawer Fridge Microwave Sink GarbageCan CoffeeMachine",
        ),
        _layout(
            "kitchen-c", "Cabinet Cabinet Cabinet Drawer CounterTop+Microwave Fridge Sink GarbageCan Shelf SideTable"
        ),
        _layout(
            "kitchen-d",
            "Cabinet Cabinet Drawer Drawer CounterTop Fridge Microwave Sink+StoveBurner GarbageCan SideTable",
        ),
    ),
    "bedroom": (
        _layout("bedroom-a", "Bed Cabinet Cabinet Drawer Drawer Safe Desk Shelf SideTable GarbageCan Dresser"),
        _layout("bedroom-b", "Bed Cabinet Cabinet Drawer+SideTable Drawer Drawer Safe Desk Shelf Shelf"),
        _layout("bedroom-c", "Bed Cabinet Drawer+Drawer Drawer Drawer Safe Desk+Shelf SideTable ArmChair GarbageCan"),
        _layout("bedroom-d", "Bed Cabinet Cabinet Drawer Drawer Safe Desk Desk Shelf SideTable ArmChair"),
    ),
    "livingroom": (
        _layout(
            "livingroom-a", "Cabinet Cabinet Drawer Drawer Drawer CoffeeTable ArmChair Sofa Shelf SideTable GarbageCan"
        ),
        _layout(
            "livingroom-b",
            "Cabinet+Drawer Cabinet Drawer Drawer CoffeeTable ArmChair Sofa Shelf SideTable DiningTable Safe",
        ),
        _layout("livingroom-c", "Cabinet Cabinet Drawer Drawer Safe CoffeeTable ArmChair+SideTable Sofa Shelf Dresser"),
        _layout(
            "livingroom-d",
            "Cabinet Cabinet Cabinet Drawer Drawer CoffeeTable ArmChair Sofa Shelf SideTable DiningTable",
        ),
    ),
    "bathroom": (
        _layout("bathroom-a", "Cabinet Cabinet Cabinet Drawer Drawer CounterTop Sink Toilet Bathtub GarbageCan Shelf"),
        _layout(
            "bathroom-b",
            "Cabinet+Sink Cabinet Cabinet Drawer Drawer Drawer CounterTop Toilet Bathtub GarbageCan HandTowelHolder",
        ),
        _layout(
            "bathroom-c",
            "Cabinet Cabinet Drawer+CounterTop Drawer Drawer Sink Toilet Bathtub GarbageCan Shelf SideTable",
        ),
        _layout("bathroom-d", "Cabinet Cabinet Cabinet Drawer Drawer Drawer CounterTop Sink Sink Toilet GarbageCan"),
    ),
}

# Rooms that no training game, and no game of dev or seen, is set in.
UNSEEN_LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "kitchen": (
        _layout(
            "kitchen-x",
            "Cabinet Cabinet+Drawer Drawer Drawer CounterTop Fridge+SideTable Microwave Sink GarbageCan Shelf",
        ),
        _layout(
            "kitchen-y",
            "Cabinet Cabinet Drawer Drawer CounterTop CounterTop Fridge Microwave+CoffeeMachine Sink GarbageCan "
            "DiningTable",
        ),
    ),
    "bedroom": (
        _layout("bedroom-x", "Bed Bed Cabinet Cabinet Drawer Drawer+Desk Drawer Safe Shelf SideTable Dresser"),
        _layout(
            "bedroom-y", "Bed Cabinet Cabinet Cabinet Drawer Drawer Safe Desk Shelf+SideTable SideTable GarbageCan"
        ),
    ),
    "livingroom": (
        _layout(
            "livingroom-x",
            "Cabinet Cabinet Drawer Drawer+Shelf Drawer CoffeeTable ArmChair Sofa SideTable SideTable Dresser",
        ),
        _layout(
            "livingroom-y",
            "Cabinet Cabinet Cabinet Drawer Drawer Safe CoffeeTable ArmChair Sofa+SideTable Shelf GarbageCan",
        ),
    ),
    "bathroom": (
        _layout(
            "bathroom-x",
            "Cabinet Cabinet Drawer+Sink Drawer Drawer CounterTop Toilet Bathtub GarbageCan+Shelf SideTable",
        ),
        _layout(
            "bathroom-y",
            "Cabinet Drawer Drawer CounterTop+Cabinet Cabinet Sink Toilet Bathtub GarbageCan HandTowelHolder Shelf",
        ),
    ),
}

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
# Furniture whose working part has a type of its own; the engine reads "basin" in the id and says "sinkbasin 1".
BASIN = {"Sink": "SinkBasin", "Bathtub": "BathtubBasin"}


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _table(text: str) -> dict[str, frozenset[str]]:
    """Entries such as `Bed: Book Pillow;`."""
    entries = (entry.partition(":") for entry in text.split(";") if entry.strip())
    return {place.strip(): _set(things) for place, _, things in entries}


CONTAINS = _table(
    """
    ArmChair: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl;
    Bathtub: Cloth DishSponge HandTowel SoapBar;
    Bed: Book CellPhone Laptop Pillow;
    Cabinet: Book Bowl Box CD Candle Cloth Cup DishSponge HandTowel Kettle Ladle Mug Newspaper Pan
        PepperShaker Plate SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Vase WineBottle;
    CoffeeMachine: Mug;
    CoffeeTable: Book Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Plate RemoteControl Statue
        TissueBox Vase Watch;
    CounterTop: Apple Bread ButterKnife Candle Cloth Cup DishSponge Egg Fork HandTowel Kettle Ladle Lettuce
        Mug Pan PepperShaker Plate Potato SoapBar SoapBottle Spatula SprayBottle TissueBox ToiletPaper Tomato
        WineBottle;
    Desk: AlarmClock Book Bowl CD CellPhone CreditCard KeyChain Laptop Mug Pen Pencil Statue Vase Watch;
    DiningTable: Apple Book Box Bread ButterKnife Candle CellPhone CreditCard Cup DishSponge Egg Fork Kettle
        KeyChain Ladle Laptop Lettuce Mug Newspaper Pan PepperShaker Plate Potato RemoteControl Spatula Statue
        TissueBox Tomato Vase Watch WineBottle;
    Drawer: Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Ladle
        Newspaper Pen Pencil PepperShaker RemoteControl SoapBar SoapBottle Spatula SprayBottle TissueBox
        ToiletPaper Watch;
    Dresser: AlarmClock Book Bowl Box CD CellPhone CreditCard KeyChain Laptop Mug Newspaper Pen Pencil Plate
        RemoteControl Statue TissueBox Vase Watch;
    Fridge: Apple Bread Cup Egg Lettuce Mug Pan Plate Potato Tomato WineBottle;
    GarbageCan: Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar
        SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle;
    HandTowelHolder: HandTowel;
    Microwave: Apple Bread Cup Egg Mug Plate Potato Tomato;
    Safe: CD CellPhone CreditCard KeyChain Statue Vase;
    Shelf: AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge HandTowel Kettle
        KeyChain Mug Newspaper Pen Pencil PepperShaker Plate RemoteControl SoapBar SoapBottle SprayBottle
        Statue TissueBox ToiletPaper Vase Watch WineBottle;
    SideTable: AlarmClock Apple Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth CreditCard Cup
        DishSponge Egg Fork HandTowel Kettle KeyChain Laptop Lettuce Mug Newspaper Pan Pen Pencil PepperShaker
        Plate Potato RemoteControl SoapBar SoapBottle Spatula SprayBottle Statue TissueBox ToiletPaper Tomato
        Vase Watch WineBottle;
    Sink: Apple ButterKnife Cloth Cup DishSponge Egg Fork HandTowel Kettle Ladle Lettuce Mug Pan Plate Potato
        SoapBar Spatula Tomato;
    Sofa: Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl;
    StoveBurner: Kettle Pan;
    Toilet: Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox ToiletPaper;
    """
)

CLEANABLE = _set(
    "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Ladle Lettuce Mug Pan Plate Potato SoapBar Spatula "
    "Tomato"
)
HEATABLE = _set("Apple Bread Cup Egg Mug Plate Potato Tomato")
COOLABLE = _set("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Potato Tomato WineBottle")
SLICEABLE = _set("Apple Bread Egg Lettuce Potato Tomato")
TOGGLEABLE = frozenset({"DeskLamp"})
VESSELS = _set("Bowl Box Cup Mug Pan Plate")  # isReceptacleObject


def receptacle_type(furniture: str) -> str:
    """The PDDL type of a piece of furniture, such as SinkBasinType for Sink."""
    return BASIN.get(furniture, furniture) + "Type"
