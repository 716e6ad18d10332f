"""The weights of the re-scoring teacher: the batch's own, or a copy of them that is taken every so many updates.

Only what is trained is copied (a LoRA adapter's matrices, or all weights) and lies in CPU memory; while the teacher
scores, it and the policy's weights change places in the one model, so a GPU needs no more memory. Weights that FSDP2
has cut up are copied part by part where they lie.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from seedbench.train.shard import gathered, like

if TYPE_CHECKING:
    from torch import Tensor

FILE = "teacher.safetensors"


class Teacher:
    """`sync` updates go by between copies; with 1 nothing is ever held. `weights` are the policy's trained ones."""

    def __init__(self, weights: Mapping[str, Tensor], sync: int):
        self.weights, self.sync = dict(weights), sync
        self._held: dict[str, Tensor] = {}

    def refresh(self, update: int) -> None:
        """Take the policy's weights, if they are due before `update` (counted from 0)."""
        if self.sync > 1 and update % self.sync == 0:
            self._held = self._copy()

    @contextlib.contextmanager
    def speaks(self) -> Iterator[None]:
        """The teacher's weights in the model; to the bit the policy's again afterwards. All processes enter it."""
        own = self._copy() if self._held else {}
        _put(self.weights, self._held)
        try:
            yield
        finally:
            _put(self.weights, own)

    def state(self, keep: bool) -> dict[str, Tensor]:
        """Whole tensors for a checkpoint; {} where there is no copy."""
        return gathered(self._held, keep)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the copy of a checkpoint. Raises ValueError if it is of other weights."""
        if set(tensors) != set(self.weights):
            raise ValueError("its teacher is not of these weights")
        self._held = {name: _stored(like(tensor, self.weights[name])) for name, tensor in tensors.items()}

    def _copy(self) -> dict[str, Tensor]:
        return {name: _stored(weight) for name, weight in self.weights.items()}


def _stored(weight: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    own: Any = weight.detach()
    return own.clone() if isinstance(own, DTensor) or own.device.type == "cpu" else own.cpu()


def _put(weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in tensors.items():
            weights[name].copy_(tensor)
