"""Products: the original's files read and preprocessed as it does, with a sentence where it would crash.

    products = read_products("DIR/items_shuffle_1000.json.xz", "DIR/items_ins_v2_1000.json", "DIR/items_human_ins.json")

A whole file is held in memory: fine for the 1000-product set. Source: princeton-nlp/WebShop @64fa2a5.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError

NO_PRICE = 100.0  # dollars: what the original charges for a product without a price
NO_ATTRIBUTES = ("DUMMY_ATTR",)  # the original's stand-in where the attribute file lacks a product


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction that a crowd worker wrote for a product; `options` are values without their names."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One product after preprocessing. Compared by identity, so that views of it can be cached."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str  # beauty, electronics, ...
    query: str
    product_category: str  # "A › B › C"
    prices: tuple[float, ...]  # dollars: one, or the two ends of a range
    price_text: str
    options: Mapping[str, tuple[str, ...]]  # lower-cased name -> values, in file order
    attributes: tuple[str, ...]
    image: str = ""
    instruction: str | None = None  # of the synthetic goal; None where there is none
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[Instruction, ...] = ()

    def contents(self) -> str:
        """What the search index holds of the product: of the bullets only the first."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        bullet = self.bullets[0] if self.bullets else ""
        return f"{self.title} {self.description} {bullet} {options}".lower()


_STORED = tuple(name for name in Product.__dataclass_fields__ if name != "human")


def to_line(product: Product, price: float) -> str:
    """A product and its price as one line of JSON, all but what people said of it."""
    values = [getattr(product, name) for name in _STORED]
    return json.dumps([*values, price], ensure_ascii=False, separators=(",", ":"))


def from_line(line: str, human: Iterable[Iterable[Any]] = ()) -> tuple[Product, float]:
    """What `to_line` wrote. Raises ValueError or TypeError for anything else."""
    *values, price = json.loads(line)
    known = dict(zip(_STORED, values, strict=True))
    known |= {name: tuple(known[name]) for name in ("bullets", "prices", "attributes", "instruction_attributes")}
    known["options"] = {name: tuple(found) for name, found in known["options"].items()}
    said = tuple(Instruction(text, tuple(wishes), tuple(options)) for text, wishes, options in human)
    return Product(**known, human=said), price


def read_products(items: Path, attributes: Path, human: Path | None = None, limit: int | None = None) -> list[Product]:
    """The products of the original's files, `.json` or `.json.xz`, the first `limit` records of them.

    Raises SeedbenchError for a file that is missing or broken, and for a record on which the original crashes.
    """
    records = read_json(items)
    if not isinstance(records, list):
        raise SeedbenchError(f"{items} holds no list of products; give the original's items_shuffle file.")
    known = read_json(attributes)
    spoken = read_json(human) if human else {}
    return list(preprocess(records[:limit], known, spoken))


def read_json(path: Path) -> Any:
    """JSON of a plain or .xz file. Raises SeedbenchError where it cannot be read."""
    try:
        data = path.read_bytes()
        return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise SeedbenchError(f"{path} cannot be read as JSON ({error}); fetch the file again.") from error


def preprocess(
    records: Iterable[Mapping[str, Any]],
    attributes: Mapping[str, Any],
    human: Mapping[str, Any],
    seen: set[str] | None = None,
) -> Iterator[Product]:
    """Products in file order; ids that are "nan", longer than ten characters or `seen` before are left out."""
    seen = set() if seen is None else seen
    for record in records:
        asin = record.get("asin") if isinstance(record, Mapping) else None
        if not isinstance(asin, str):
            raise SeedbenchError(f"A product record has no asin ({str(record)[:80]}); repair or remove the record.")
        if asin == "nan" or len(asin) > 10 or asin in seen:
            continue
        seen.add(asin)
        try:
            yield _product(asin, record, attributes.get(asin), human.get(asin, ()))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise SeedbenchError(
                f"Product {asin} lacks a field or holds one of another type ({type(error).__name__}: {error}); "
                "repair or remove the record."
            ) from error


def _product(
    asin: str, record: Mapping[str, Any], known: Mapping[str, Any] | None, spoken: Iterable[Mapping[str, Any]]
) -> Product:
    bullets = record["small_description"]
    prices, price_text = parse_pricing(record["pricing"], asin)
    instruction = known.get("instruction") if known else None
    return Product(
        asin=asin,
        title=record["name"],
        description=record["full_description"],
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        category=record["category"],
        query=record["query"].lower().strip(),
        product_category=record["product_category"],
        prices=prices,
        price_text=price_text,
        options=_options(record["customization_options"]),
        attributes=NO_ATTRIBUTES if known is None else tuple(known["attributes"]),
        image=record["images"][0],
        instruction=instruction,
        instruction_attributes=tuple(known["instruction_attributes"]) if known and instruction is not None else (),
        human=tuple(
            Instruction(s["instruction"], tuple(s["instruction_attributes"]), tuple(s["instruction_options"]))
            for s in spoken
        ),
    )


def parse_pricing(pricing: str | None, asin: str = "?") -> tuple[tuple[float, ...], str]:
    """Prices in dollars (at most two) and the text that pages show. Raises SeedbenchError for a text without any.

    >>> parse_pricing("$8.98 - $1,299.00")
    ((8.98, 1299.0), '$8.98 to $1299.0')
    """
    if not pricing:
        return (NO_PRICE,), f"${NO_PRICE}"
    try:
        found = [float(Decimal(re.sub(r"[^\d.]", "", piece))) for piece in pricing.split("$")[1:]]
    except InvalidOperation:
        found = []
    if not found:
        raise SeedbenchError(f"Product {asin} has the price {pricing!r}; write it as $8.98 or $8.98 - $11.99.")
    if len(found) == 1:
        return (found[0],), f"${found[0]}"
    return (found[0], found[1]), f"${found[0]} to ${found[1]}"


def _options(found: Any) -> dict[str, tuple[str, ...]]:
    """Option values by lower-cased name; the original spells a slash in a value as ` | `."""
    if not found:
        return {}
    return {
        name.lower(): tuple(v["value"].strip().replace("/", " | ").lower() for v in values)
        for name, values in found.items()
        if values is not None
    }
