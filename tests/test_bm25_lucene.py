"""The index against real Lucene (Anserini's jar in pyserini): same terms, same 50 ids in order, same float32 scores.

pyserini 1.6.0 carries Lucene 9.9.1, newer than the 8.11 of the original WebShop. Between the two the arithmetic and the
analyzer's chain are the same; the tokenizer's tables went from Unicode 9.0 to 12.1. What that changes is tested last.
"""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from seedbench.indexes.analysis import analyze
from seedbench.indexes.bm25 import Bm25
from tests import lucene
from tests.conftest import need
from tests.products import contents, products, read


@pytest.fixture(scope="module")
def shop(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[lucene.Lucene, Bm25, list[str]]:
    """Both indexes of the 1,000 products, and 3,500 queries: what people asked for, product queries, titles."""
    need(not lucene.missing(), f"no Lucene here: {lucene.missing()}")
    kept: list[dict[str, Any]] = products(shared_data / "webshop")
    documents = [(product["asin"], contents(product)) for product in kept]
    queries = read(shared_data / "webshop" / "human_goal_texts.json.xz")[:1500]
    queries += [product["query"].lower().strip() for product in kept] + [product["name"].lower() for product in kept]
    return lucene.Lucene(tmp_path_factory.mktemp("lucene"), documents), Bm25(documents), queries


def test_same_hits_in_order_with_the_same_scores(shop: tuple[lucene.Lucene, Bm25, list[str]]) -> None:
    theirs, ours, queries = shop
    assert len(queries) == 3500
    for query in queries:
        assert [(p.id, p.score) for p in ours.search([query], 50)[0]] == theirs.search(query, 50), query


def test_same_terms_of_products_and_queries(shop: tuple[lucene.Lucene, Bm25, list[str]], shared_data: Path) -> None:
    theirs, _, queries = shop
    for text in [*queries, *(contents(product) for product in products(shared_data / "webshop"))]:
        assert analyze(text) == theirs.analyze(text)


def test_same_terms_of_random_text(shop: tuple[lucene.Lucene, Bm25, list[str]]) -> None:
    """Characters that the rules tell apart, in random order; skin tones only where the versions agree."""
    rng = random.Random(0)
    pieces = [*"aZ9_.:,;'\"-# \u00e9\u0301\ufe0f\u200d\u00ad\u05d0\u3042\u30ab\u6f22\ud55c\u0e01\u0e31\uff15\u2019★☞♥©",
              "\U0001f44d", "\U0001f44d\U0001f3fd ", "\U0001f1eb", "\u20e3", "\U0001d400", "running", "'s",
              "x" * 130]  # fmt: skip
    for _ in range(20_000):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        assert analyze(text) == shop[0].analyze(text), ascii(text)


def test_same_terms_of_every_character_of_unicode_3_2(shop: tuple[lucene.Lucene, Bm25, list[str]]) -> None:
    """Old enough for every table involved. Newer characters count as what they are today, whatever Lucene knew."""
    old = [chr(c) for c in range(1, 0x110000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Co", "Cs")]
    for form in ("{}", "ab{}cd", "1{}2", "{}{}", "{}\ufe0fa", "\u05d0{}", "\u0e01{}\u0e02"):
        for at in range(0, len(old), 2000):
            texts = [form.replace("{}", char) for char in old[at : at + 2000]]
            if analyze("\n zq \n".join(texts)) != shop[0].analyze("\n zq \n".join(texts)):
                assert [t for t in texts if analyze(t) != shop[0].analyze(t)] == []


def test_what_newer_lucene_does_otherwise(shop: tuple[lucene.Lucene, Bm25, list[str]]) -> None:
    """Unicode 11 made skin tones Extend: Lucene 9 leaves one with a letter before it, 8.11 (and we) do not."""
    assert shop[0].version.startswith("9.")
    assert shop[0].analyze("x\U0001f3fd") == ["x\U0001f3fd"]
    assert analyze("x\U0001f3fd") == ["x", "\U0001f3fd"]
