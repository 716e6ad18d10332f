"""Products as the original preprocesses them, and a sentence where it would crash."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from seedbench.core import SeedbenchError
from seedbench.envs.webshop.data import Folder
from seedbench.envs.webshop.files import import_published
from seedbench.envs.webshop.products import NO_ATTRIBUTES, Product, parse_pricing, preprocess, read_products
from tests.webshop_shop import HUMAN, KNOWN, ODD, PLAIN, record, values, write_folder


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


@pytest.mark.parametrize("pricing", ["free", "$", "$.", "$1.2.3", "12.00", "$" + "9" * 400, "$1 - $" + "9" * 400])
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


FIELDS = [
    ({"name": None}, None, {}, "name"),
    ({"full_description": None}, None, {}, "full_description"),
    ({"small_description": ["a", 5]}, None, {}, "small_description"),
    ({"small_description": None}, None, {}, "small_description"),
    ({"category": 5}, None, {}, "category"),
    ({"product_category": None}, None, {}, "product_category"),
    ({"pricing": 5}, None, {}, "pricing"),
    ({"images": [None]}, None, {}, "images"),
    ({"customization_options": {"a": [{"value": 5}]}}, None, {}, "customization_options"),
    ({}, {"attributes": [5]}, {}, "attributes"),
    ({}, {"attributes": "red"}, {}, "attributes"),
    ({}, {"attributes": [], "instruction": "x", "instruction_attributes": [5]}, {}, "instruction_attributes"),
    ({}, {"attributes": [], "instruction": 5, "instruction_attributes": []}, {}, "instruction"),
    ({}, None, {"instruction": None, "instruction_attributes": [], "instruction_options": []}, "instruction"),
    ({}, None, {"instruction": "x", "instruction_attributes": [], "instruction_options": [5]}, "instruction_options"),
]


@pytest.mark.parametrize(("fields", "known", "said", "field"), FIELDS)
def test_a_field_of_another_type_is_named_alike_in_a_folder_and_by_an_import(
    tmp_path: Path, fields: dict[str, Any], known: dict[str, Any] | None, said: dict[str, Any], field: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in (
        ("items_shuffle", [{**record("B000000001", "Thing"), **fields}]),
        ("items_ins_v2", {} if known is None else {"B000000001": known}),
        ("items_human_ins", {"B000000001": [said]} if said else {}),
    ):
        (source / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(SeedbenchError, match=f"Product B000000001 .*{field}") as raw:
        Folder(source)
    with pytest.raises(SeedbenchError) as imported:
        import_published(source, tmp_path / "made", lambda done, total: None)
    assert str(imported.value) == str(raw.value)


def test_an_empty_id_is_none() -> None:
    with pytest.raises(SeedbenchError, match="no asin"):
        list(preprocess([record("", "x")], {}, {}))


def test_more_goals_than_anyone_can_list_are_refused() -> None:
    known = {"B1": {"attributes": [], "instruction": "x", "instruction_attributes": []}}
    options = {f"option {i}": values(*"abcdefgh") for i in range(9)}
    with pytest.raises(SeedbenchError, match="B1 make 134217728 goals"):
        list(preprocess([record("B1", "x", customization_options=options)], known, {}))
    assert len(list(preprocess([record("B1", "x", customization_options=options)], {}, {}))) == 1, "none is made of it"


@pytest.mark.parametrize("content", ["5", "null", "[5]", "[[5]]", '["ab"]', "[" * 100_000])
def test_nouns_that_are_none(tmp_path: Path, content: str) -> None:
    source = write_folder(tmp_path, 1)
    (source / "title_nouns.json").write_text(content)
    with pytest.raises(SeedbenchError, match="title_nouns"):
        Folder(source)


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
    for content, complaint in (("[" * 100_000, "cannot be read"), ("[]", "no records by asin")):
        known.write_text(content)
        (tmp_path / "items.json").write_text("[]")
        with pytest.raises(SeedbenchError, match=complaint):
            read_products(tmp_path / "items.json", known)


def test_the_published_products(shared_data: Path) -> None:
    folder = shared_data / "webshop"
    found = read_products(folder / "items_shuffle_1000.json.xz", folder / "items_ins_v2_1000.json")
    assert len(found) == 1000
    assert sum(not p.title for p in found) == 1
    assert sum(len(p.prices) == 2 for p in found) == 93
    assert [sum(len(p.options) == n for p in found) for n in range(4)] == [577, 245, 165, 13]
    assert sum(p.instruction is not None for p in found) == 415
    assert sum(p.attributes == () for p in found) == 185
