"""Products: the original's files read and preprocessed as it does, with a sentence where it would crash.

    products = read_products("DIR/items_shuffle_1000.json.xz", "DIR/items_ins_v2_1000.json", "DIR/items_human_ins.json")

A whole file is held in memory: fine for the 1000-product set. Source: princeton-nlp/WebShop @64fa2a5.
"""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from seedbench.core import SeedbenchError

COMBINATIONS = 1_000_000  # of option values, each a synthetic goal; of the published 1,000 products none has over 558
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
_TEXTS = ("asin", "title", "description", "category", "query", "product_category", "price_text", "image")
_ABSENT: Any = object()


def to_line(product: Product, price: float) -> str:
    """A product and its price as one line of JSON, all but what people said of it."""
    values = [getattr(product, name) for name in _STORED]
    return json.dumps([*values, price], ensure_ascii=False, separators=(",", ":"))


def from_line(line: str, human: Iterable[Iterable[Any]] = ()) -> tuple[Product, float]:
    """What `to_line` wrote. Raises ValueError, TypeError or LookupError for anything else."""
    *values, price = json.loads(line)
    known = dict(zip(_STORED, values, strict=True))
    for name in _TEXTS:
        _text(known[name], name)
    for name in ("bullets", "attributes", "instruction_attributes"):
        _texts(known[name], name)
    if known["instruction"] is not None:
        _text(known["instruction"], "instruction")
    known |= {name: tuple(known[name]) for name in ("bullets", "prices", "attributes", "instruction_attributes")}
    known["options"] = {name: _texts(found, "options") for name, found in dict(known["options"]).items()}
    said = tuple(
        Instruction(_text(text, "human"), _texts(wishes, "human"), _texts(options, "human"))
        for text, wishes, options in human
    )
    if not all(isinstance(number, float) for number in (*known["prices"], price)):
        raise TypeError("prices is not of numbers")
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
    for path, found in ((attributes, known), (human, spoken)):
        if not isinstance(found, dict):
            raise SeedbenchError(f"{path} holds no records by asin; give the original's file of that name.")
    return list(preprocess(records[:limit], known, spoken))


def read_json(path: Path) -> Any:
    """JSON of a plain or .xz file. Raises SeedbenchError where it cannot be read."""
    try:
        data = path.read_bytes()
        return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except (OSError, lzma.LZMAError, EOFError, ValueError, RecursionError) as error:
        raise SeedbenchError(f"{path} cannot be read as JSON ({error}); fetch the file again.") from error


def preprocess(
    records: Iterable[Mapping[str, Any]],
    attributes: Mapping[str, Any],
    human: Mapping[str, Any],
    seen: set[str] | None = None,
) -> Iterator[Product]:
    """Products in file order; ids that are "nan", longer than ten characters or `seen` before are left out.

    Raises SeedbenchError for a record without an id, and for one whose fields are not of the types the original needs
    somewhere on the way to a score: every text must be text, though all but the id may be empty.
    """
    seen = set() if seen is None else seen
    for record in records:
        asin = record.get("asin") if isinstance(record, Mapping) else None
        if not isinstance(asin, str) or not asin:
            raise SeedbenchError(f"A product record has no asin ({str(record)[:80]}); repair or remove the record.")
        if asin == "nan" or len(asin) > 10 or asin in seen:
            continue
        seen.add(asin)
        try:
            product = _product(asin, record, attributes.get(asin, _ABSENT), human.get(asin, ()))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise SeedbenchError(
                f"Product {asin} lacks a field or holds one of another type ({type(error).__name__}: {error}); "
                "repair or remove the record."
            ) from error
        goals = math.prod(map(len, product.options.values())) if product.instruction is not None else 0
        if goals > COMBINATIONS:
            raise SeedbenchError(
                f"The options of product {asin} make {goals} goals, more than {COMBINATIONS}: "
                "remove some of its customization_options."
            )
        yield product


def _product(asin: str, record: Mapping[str, Any], known: Any, spoken: Any) -> Product:
    """Raises TypeError or LookupError for a record on which the original crashes: now, or when it is bought."""
    bullets = record["small_description"]
    prices, price_text = parse_pricing(record["pricing"], asin)
    instruction = None
    attributes: tuple[str, ...] = NO_ATTRIBUTES
    wishes: tuple[str, ...] = ()
    if known is not _ABSENT:
        attributes = _texts(_table(known, "attributes")["attributes"], "attributes")
        instruction = known.get("instruction")
    if instruction is not None:
        _text(instruction, "instruction")
        wishes = _texts(known["instruction_attributes"], "instruction_attributes")
    return Product(
        asin=asin,
        title=_text(record["name"], "name"),
        description=_text(record["full_description"], "full_description"),
        bullets=_texts(bullets if isinstance(bullets, list) else [bullets], "small_description"),
        category=_text(record["category"], "category"),
        query=_text(record["query"], "query").lower().strip(),
        product_category=_text(record["product_category"], "product_category"),
        prices=prices,
        price_text=price_text,
        options=_options(record["customization_options"]),
        attributes=attributes,
        image=_text(record["images"][0], "images"),
        instruction=instruction,
        instruction_attributes=wishes,
        human=tuple(_instruction(_table(said, "instruction")) for said in spoken),
    )


def _instruction(said: Mapping[str, Any]) -> Instruction:
    return Instruction(
        _text(said["instruction"], "instruction"),
        _texts(said["instruction_attributes"], "instruction_attributes"),
        _texts(said["instruction_options"], "instruction_options"),
    )


def _text(found: Any, field: str) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{field} is not text but {str(found)[:40]}")
    return found


def _texts(found: Any, field: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise TypeError(f"{field} is not a list of texts but {str(found)[:40]}")
    return tuple(found)


def _table(found: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise TypeError(f"what should hold {field} is {str(found)[:40]}")
    return found


def parse_pricing(pricing: str | None, asin: str = "?") -> tuple[tuple[float, ...], str]:
    """Prices in dollars (at most two) and the text that pages show. Raises SeedbenchError for a text without any.

    >>> parse_pricing("$8.98 - $1,299.00")
    ((8.98, 1299.0), '$8.98 to $1299.0')
    """
    if not pricing:
        return (NO_PRICE,), f"${NO_PRICE}"
    _text(pricing, "pricing")
    try:
        found = [float(Decimal(re.sub(r"[^\d.]", "", piece))) for piece in pricing.split("$")[1:]]
    except InvalidOperation:
        found = []
    if not found or not all(map(math.isfinite, found[:2])):
        raise SeedbenchError(f"Product {asin} has the price {pricing[:40]!r}; write it as $8.98 or $8.98 - $11.99.")
    if len(found) == 1:
        return (found[0],), f"${found[0]}"
    return (found[0], found[1]), f"${found[0]} to ${found[1]}"


def _options(found: Any) -> dict[str, tuple[str, ...]]:
    """Option values by lower-cased name; the original spells a slash in a value as ` | `."""
    if not found:
        return {}
    return {
        name.lower(): tuple(
            _text(_table(v, "value")["value"], "value of customization_options").strip().replace("/", " | ").lower()
            for v in values
        )
        for name, values in _table(found, "customization_options").items()
        if values is not None
    }
