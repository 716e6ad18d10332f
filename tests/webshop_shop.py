"""A small shop in the original's file format, with its oddities on purpose, for tests without the real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seedbench.envs.webshop.catalogue import MemoryCatalogue
from seedbench.envs.webshop.goals import Goal, frozen_prices
from seedbench.envs.webshop.products import Product, preprocess


def record(asin: str, name: str, **fields: Any) -> dict[str, Any]:
    """One raw product of items_shuffle.json."""
    return {
        "asin": asin,
        "name": name,
        "full_description": f"About {name}.",
        "small_description": [f"first of {name}", ""],
        "pricing": "$20.00",
        "images": ["http://example.test/x.jpg"],
        "product_category": "Clothing › Men › Shirts",
        "category": "fashion",
        "query": " Men's Shirts ",
        "customization_options": "",
        **fields,
    }


def values(*names: str) -> list[dict[str, str]]:
    return [{"value": name} for name in names]


ODD = record(
    "B00000ODD1",
    "Odd Shirt",
    small_description=["soft <b>cotton</b>", "", "two\nlines"],
    pricing="$8.98 - $11.99",
    customization_options={
        "Color": values("Red", "black/white", 'the "blue"', "search"),
        "Empty": None,
        "Size": values("small", "large [wide]", "description", "buy now", "both", ""),
        "Style": values("both", "plain", "next >"),
    },
)
PLAIN = record("B00000PLA1", "Plain Shirt", category="garden", pricing=None, small_description="one bullet")
RAW = [ODD, PLAIN, *(record(f"B{i:09}", f"Shirt number {i}", pricing=f"${10 + i}.50") for i in range(33))]
KNOWN = {
    "B00000ODD1": {
        "attributes": ["machine wash", "slim fit"],
        "instruction": "Find me machine wash men's shirts",
        "instruction_attributes": ["machine wash"],
    },
    "B00000PLA1": {"attributes": []},
}
HUMAN = {
    "B00000PLA1": [
        {"instruction": "a plain one...", "instruction_attributes": ["plain"], "instruction_options": ["red"]},
        {"instruction": "nothing asked", "instruction_attributes": [], "instruction_options": []},
    ]
}


def products() -> list[Product]:
    return list(preprocess(RAW, KNOWN, HUMAN))


def catalogue() -> MemoryCatalogue:
    found = products()
    return MemoryCatalogue(found, frozen_prices(found))


def goal(**fields: Any) -> Goal:
    """A goal for the odd shirt."""
    given: dict[str, Any] = {
        "asin": "B00000ODD1",
        "category": "fashion",
        "query": "men's shirts",
        "name": "Odd Shirt",
        "product_category": "Clothing › Men › Shirts",
        "instruction_text": "Find me machine wash men's shirts with color: red, and price lower than 30.00 dollars",
        "attributes": ("machine wash",),
        "price_upper": 30.0,
        "goal_options": {"color": "red"},
    }
    return Goal(**{**given, **fields})


def write_folder(folder: Path, n: int = 120) -> Path:
    """A folder of the original's files: `n` products in three categories, each with one synthetic goal and options."""
    kinds = ("beauty", "garden", "fashion")
    raw = [
        record(
            f"B{i:09}",
            f"{('cream', 'lamp', 'shirt')[i % 3]} model{i} {('soft', 'tall', 'red')[i // 3 % 3]}",
            category=kinds[i % 3],
            query=f"query {i % 3}",
            customization_options={"Size": values("small", "large"), "Color": values("red", f"tone{i}")},
        )
        for i in range(n)
    ]
    known = {
        r["asin"]: {
            "attributes": [f"trait{i % 7}", "sturdy"],
            "instruction": f"Find me trait{i % 7} {r['query']} model{i}",
            "instruction_attributes": [f"trait{i % 7}"],
        }
        for i, r in enumerate(raw)
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items_shuffle_1000.json").write_text(json.dumps(raw))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(known))
    return folder
