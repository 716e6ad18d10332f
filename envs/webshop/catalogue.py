"""A catalogue: products, their prices and their search, read-only and shared by all environments and threads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from seedbench.core import Retriever, SeedbenchError
from seedbench.envs.webshop.products import Product
from seedbench.prompts import sha256_json

HITS = 50  # the original looks at no more
RECENT_QUERIES = 4096
RECENT_LENGTH = 500  # characters: longer queries are not kept, so that a cache of them stays small
LONGEST_QUERY = 100_000  # characters that are searched; those of all published goals have under 500


class Catalogue(ABC):
    """What pages, rewards and the oracle ask for. Nothing in it changes once it is open."""

    @abstractmethod
    def product(self, asin: str) -> Product:
        """The product of an id. Raises SeedbenchError where there is none."""

    @abstractmethod
    def price(self, asin: str) -> float:
        """What a product costs, in dollars: frozen, for a price range as well."""

    _recent: Callable[[str], tuple[str, ...]]  # _search with a cache

    def search(self, query: str) -> Sequence[str]:
        """Ids of at most 50 products, best first. What follows the 100,000th character is not searched for."""
        query = query[:LONGEST_QUERY]
        return self._recent(query) if len(query) <= RECENT_LENGTH else self._search(query)

    @abstractmethod
    def _search(self, query: str) -> tuple[str, ...]:
        """What `search` gives for a query of bounded length."""

    @abstractmethod
    def ids(self) -> Iterator[str]:
        """All product ids in file order."""

    @abstractmethod
    def digest(self) -> str:
        """Digest of products, prices and index: it changes only when a page or a score may."""

    def __contains__(self, asin: object) -> bool:
        try:
            self.product(str(asin))
        except SeedbenchError:
            return False
        return True


class MemoryCatalogue(Catalogue):
    """A catalogue whose products are held in memory. The search index is built when the first query comes."""

    def __init__(
        self,
        products: Sequence[Product],
        prices: Mapping[str, float],
        make_index: Callable[[Sequence[tuple[str, str]]], Retriever] | None = None,
    ):
        self._products = {p.asin: p for p in products}
        self._prices = prices
        self._make_index = make_index or bm25
        self._lock = threading.Lock()
        self._recent = lru_cache(maxsize=RECENT_QUERIES)(self._search)

    def product(self, asin: str) -> Product:
        try:
            return self._products[asin]
        except KeyError:
            raise SeedbenchError(f"The catalogue has no product {asin!r}; take the products it came with.") from None

    def price(self, asin: str) -> float:
        return self._prices[asin]

    def _search(self, query: str) -> tuple[str, ...]:
        with self._lock:  # one thread builds the index, the others wait for it
            index = self._index
        return tuple(hit.id for hit in index.search([query], HITS)[0] if hit.id in self._products)

    @cached_property
    def _index(self) -> Retriever:
        return self._make_index([(p.asin, p.contents()) for p in self._products.values()])

    def ids(self) -> Iterator[str]:
        return iter(self._products)

    def digest(self) -> str:
        return self._digest

    @cached_property
    def _digest(self) -> str:
        fields = [name for name in Product.__dataclass_fields__ if name != "human"]
        products = [[getattr(p, name) for name in fields] for p in self._products.values()]
        return sha256_json([products, sorted(self._prices.items())])


def bm25(documents: Sequence[tuple[str, str]]) -> Retriever:
    """The index of the original: Lucene's BM25."""
    from seedbench.indexes.bm25 import Bm25

    index: Retriever = Bm25(documents)
    return index
