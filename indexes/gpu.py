"""Exact search on a GPU with torch: rows uploaded as float16 in chunks, the best few of them scored again in float32.

A float32 copy is never on the GPU: of 21 million rows of 768 it would be 65 GB, where the float16 rows are 32 GB.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from seedbench.core import SeedbenchError
from seedbench.indexes.nearest import Hits

CHUNK = 65_536  # rows uploaded at a time
BLOCK = 1 << 20  # rows multiplied at a time
QUERIES = 256
MARGIN = 32  # rows beyond k that are scored again, because float16 orders close ones wrongly


class TorchRows:
    """A matrix to search on `device`. As Rows, but of ties with the k-th only the first few are found."""

    def __init__(self, rows: np.ndarray, scales: np.ndarray | None, device: str):
        try:
            import torch
        except ImportError as error:
            raise SeedbenchError("device is cuda, but torch is missing: pip install -e '.[train]'") from error
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise SeedbenchError("device is cuda, but torch sees no GPU here: set SEEDBENCH_DENSE_DEVICE=cpu.")
        self._torch, self._device, self._lock = torch, device, threading.Lock()
        try:
            self._rows = torch.empty(rows.shape, dtype=torch.float16, device=device)
            for start in range(0, len(rows), CHUNK):
                chunk = rows[start : start + CHUNK].astype(np.float32)
                if scales is not None:
                    chunk *= scales[start : start + CHUNK, None]
                self._rows[start : start + CHUNK] = torch.from_numpy(chunk.astype(np.float16)).to(device)
        except torch.OutOfMemoryError as error:
            raise SeedbenchError(
                f"The {rows.size * 2 / 1e9:.1f} GB of float16 vectors do not fit on the GPU: set "
                "SEEDBENCH_DENSE_DEVICE=cpu, or build with the index ivf_sq8."
            ) from error

    def top(self, queries: np.ndarray, k: int) -> list[Hits]:
        """The k best rows of each query and a few more. `queries` is float32 [n, dim]."""
        found: list[Hits] = []
        with self._lock, self._torch.inference_mode():
            for start in range(0, len(queries), QUERIES):
                found += self._top(queries[start : start + QUERIES], k)
        return found

    def _top(self, queries: np.ndarray, k: int) -> list[Hits]:
        torch = self._torch
        asked = torch.from_numpy(np.ascontiguousarray(queries, np.float32)).to(self._device)
        best: Any = None
        for start in range(0, len(self._rows), BLOCK):
            rows = self._rows[start : start + BLOCK]
            values, at = torch.topk(asked.half() @ rows.T, min(k + MARGIN, len(rows)), dim=1)
            at = at + start
            if best is not None:
                values, at = torch.cat([best[0], values], 1), torch.cat([best[1], at], 1)
                values, kept = torch.topk(values, min(k + MARGIN, values.shape[1]), dim=1)
                at = torch.gather(at, 1, kept)
            best = values, at
        if best is None:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
        numbers = best[1]
        scores = torch.stack([self._rows[row].float() @ query for row, query in zip(numbers, asked, strict=True)])
        return [Hits(n, s) for n, s in zip(numbers.cpu().numpy(), scores.cpu().numpy(), strict=True)]
