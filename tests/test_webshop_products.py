"""Products as the original preprocesses them, and a sentence where it would crash."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.products import NO_ATTRIBUTES, Product, parse_pricing, preprocess, read_products
from tests.webshop_shop import HUMAN, KNOWN, ODD, PLAIN, record, values


def one(**fields: Any) -> Product:
    (product,) = preprocess([record("B000000001", "Thing", **fields)], {}, {})
    return product


def test_fields_of_a_product() -> None:
    odd, plain = preprocess([ODD, PLAIN], KNOWN, HUMAN)
    assert (odd.title, odd.query, odd.category) == ("Odd Shirt", "men's shirts", "fashion")
    assert odd.bullets == ("soft <b>cotton</b>", "", "two\nlines") and plain.bullets == ("one bullet",)
    assert odd.prices == (8.98, 11.99) and odd.price_text == "$8.98 to $11.99"
    assert plain.prices == (100.0,) and plain.price_text == "$100.0"
    assert odd.options["color"] == ("red", "black | white", 'the "blue"', "search")
    assert list(odd.options) == ["color", "size", "style"]
    assert odd.attributes == ("machine wash", "slim fit") and plain.attributes == ()
    assert odd.instruction == "Find me machine wash men's shirts" and plain.instruction is None
    assert [said.text for said in plain.human] == ["a plain one...", "nothing asked"]


def test_ids_that_are_left_out() -> None:
    raw = [record(a, f"{a} {i}") for i, a in enumerate(["nan", "B0000000012", "B000000001", "B000000001", "short"])]
    assert [(p.asin, p.title) for p in preprocess(raw, {}, {})] == [
        ("B000000001", "B000000001 2"),
        ("short", "short 4"),
    ]


def test_a_product_without_attributes_on_file_gets_the_stand_in() -> None:
    assert one().attributes == NO_ATTRIBUTES


@pytest.mark.parametrize(
    ("pricing", "prices", "text"),
    [
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        ("$27.00", (27.0,), "$27.0"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$8.98 - $11.99", (8.98, 11.99), "$8.98 to $11.99"),
        ("$3 $2 $1", (3.0, 2.0), "$3.0 to $2.0"),
        ("from $5 each", (5.0,), "$5.0"),
    ],
)
def test_pricing(pricing: str | None, prices: tuple[float, ...], text: str) -> None:
    assert parse_pricing(pricing) == (prices, text)


@pytest.mark.parametrize("pricing", ["free", "$", "$.", "$1.2.3", "12.00"])
def test_pricing_on_which_the_original_crashes(pricing: str) -> None:
    with pytest.raises(SeedbenchError, match="B000000001 has the price"):
        one(pricing=pricing)


def test_index_text_holds_the_first_bullet_and_the_options() -> None:
    product = one(customization_options={"Color": values("Red", "Blue"), "Size": values("S/M")})
    assert product.contents() == "thing about thing. first of thing color: red, blue, and size: s | m"
    assert one(small_description=[]).contents() == "thing about thing.  "


@pytest.mark.parametrize(
    "broken",
    [{"images": []}, {"query": None}, {"customization_options": "red"}, {"customization_options": {"a": 1}}],
)
def test_broken_records_are_named(broken: dict[str, Any]) -> None:
    with pytest.raises(SeedbenchError, match="Product B000000001"):
        one(**broken)
    with pytest.raises(SeedbenchError, match="no asin"):
        list(preprocess([{"name": "x"}], {}, {}))


def test_an_instruction_without_attributes_is_refused() -> None:
    with pytest.raises(SeedbenchError, match="instruction_attributes"):
        list(preprocess([record("B1", "x")], {"B1": {"attributes": [], "instruction": "x"}}, {}))


def test_files_plain_and_packed(tmp_path: Path) -> None:
    items, known = tmp_path / "items.json.xz", tmp_path / "known.json"
    items.write_bytes(lzma.compress(json.dumps([ODD, PLAIN]).encode()))
    known.write_text(json.dumps(KNOWN))
    assert [p.asin for p in read_products(items, known)] == ["B00000ODD1", "B00000PLA1"]
    assert [p.asin for p in read_products(items, known, limit=1)] == ["B00000ODD1"]
    with pytest.raises(SeedbenchError, match="no list"):
        read_products(known, known)
    items.write_bytes(b"not packed")
    with pytest.raises(SeedbenchError, match="cannot be read"):
        read_products(items, known)
    with pytest.raises(SeedbenchError, match="cannot be read"):
        read_products(tmp_path / "absent.json", known)


def test_the_published_products(shared_data: Path) -> None:
    folder = shared_data / "webshop"
    found = read_products(folder / "items_shuffle_1000.json.xz", folder / "items_ins_v2_1000.json")
    assert len(found) == 1000
    assert sum(not p.title for p in found) == 1
    assert sum(len(p.prices) == 2 for p in found) == 93
    assert [sum(len(p.options) == n for p in found) for n in range(4)] == [577, 245, 165, 13]
    assert sum(p.instruction is not None for p in found) == 415
    assert sum(p.attributes == () for p in found) == 185
