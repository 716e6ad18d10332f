"""What the original WebShop indexes of the 1,000 published products (not shipped), for tests of search order."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file] if path.name.endswith(".jsonl.xz") else json.load(file)


def products(webshop: Path) -> list[dict[str, Any]]:
    """The products of the 1,000-product file that the original keeps: the first of each asin."""
    found: dict[str, dict[str, Any]] = {}
    for product in read(webshop / "items_shuffle_1000.json.xz"):
        if product["asin"] != "nan" and len(product["asin"]) <= 10:
            found.setdefault(product["asin"], product)
    return list(found.values())


def contents(product: dict[str, Any]) -> str:
    """The one field of the original's index: title, description, first bullet and options, in lower case."""
    bullets = product["small_description"]
    options = {
        name.lower(): [value["value"].strip().replace("/", " | ").lower() for value in values]
        for name, values in (product.get("customization_options") or {}).items()
        if values is not None
    }
    parts = [
        product["name"],
        product["full_description"],
        bullets[0] if isinstance(bullets, list) else bullets,
        ", and ".join(f"{name}: {', '.join(values)}" for name, values in options.items()),
    ]
    return " ".join(parts).lower()
