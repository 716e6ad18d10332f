"""The weights of the re-scoring teacher: the batch's own, or a copy of them that is taken every so many updates.

Only what is trained is copied (a LoRA adapter's matrices, or all weights) and lies in CPU memory, of weights that FSDP2
has cut up each process its part. While the teacher scores, copy and weights have changed places, tensor by tensor, so
that neither a GPU nor the CPU ever holds more than one tensor twice.
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
            self._held = {name: _stored(weight) for name, weight in self.weights.items()}

    @contextlib.contextmanager
    def speaks(self) -> Iterator[None]:
        """The teacher's weights in the model; to the bit the policy's again afterwards. All processes enter it."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state(self, keep: bool) -> dict[str, Tensor]:
        """Whole tensors for a checkpoint, on the CPU; {} where there is no copy. All processes call it."""
        if not self._held:
            return {}
        with self.speaks():
            return {name: tensor.to("cpu", copy=True) for name, tensor in gathered(self.weights, keep).items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the copy of a checkpoint. Raises ValueError if it is of other weights."""
        if {n: t.shape for n, t in tensors.items()} != {n: w.shape for n, w in self.weights.items()}:
            raise ValueError("its teacher is not of these weights")
        self._held = {name: _stored(like(tensor, self.weights[name])) for name, tensor in tensors.items()}

    def _exchange(self) -> None:
        import torch

        with torch.no_grad():
            for name, held in self._held.items():
                weight = _part(self.weights[name])
                kept = weight.clone()
                weight.copy_(held)
                held.copy_(kept)


def _part(weight: Tensor) -> Tensor:
    """What this process holds of a weight; the weight's own memory."""
    from torch.distributed.tensor import DTensor

    own: Any = weight.detach()
    return own.to_local() if isinstance(own, DTensor) else own


def _stored(weight: Tensor) -> Tensor:
    own = _part(weight)
    return own.clone() if own.device.type == "cpu" else own.cpu()
