"""The processes of one run: each plays its own groups, gradients and counts are summed over all of them.

Started by `torchrun` or `accelerate launch`; a single process sums over itself. Without `--shard` there is no wrapper
around the model: gradients are added up once an optimizer step, which is what data parallelism comes to. With it,
FSDP2 adds them up in the backward pass (seedbench.train.shard).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from seedbench.core import SeedbenchError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Ranks:
    """`rank` of `world` processes; `shards`: each holds a part of the model (FSDP2), asked for by `--shard` or by
    accelerate's own configuration."""

    def __init__(self, shard: bool = False) -> None:
        import torch
        from accelerate import PartialState

        self.state = PartialState(cpu=not torch.cuda.is_available())  # it takes several CPU processes only when told
        self.rank: int = self.state.process_index
        self.world: int = self.state.num_processes
        configured = os.environ.get("ACCELERATE_USE_FSDP", "false") == "true"
        if configured and os.environ.get("FSDP_VERSION", "1") != "2":
            raise SeedbenchError("accelerate is configured for FSDP 1: set fsdp_version: 2 under fsdp_config.")
        self.shards: bool = (shard or configured) and self.world > 1

    def sum(self, values: Sequence[float]) -> list[float]:
        """Element by element over all ranks, in float64."""
        if self.world == 1 or not values:
            return [float(v) for v in values]
        import torch
        from accelerate.utils import reduce

        mine = torch.tensor(values, dtype=torch.float64, device=self.state.device)
        return [float(v) for v in reduce(mine, "sum").tolist()]

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all ranks, in order of rank."""
        if self.world == 1:
            return list(items)
        from accelerate.utils import gather_object

        return list(gather_object(list(items)))

    def sum_gradients(self, weights: Iterable[Tensor]) -> None:
        """Add up `grad` over the ranks; a rank without rows of its own has zeros."""
        if self.world == 1:
            return
        import torch
        from accelerate.utils import reduce

        for weight in weights:
            mine = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = reduce(mine, "sum")

    def wait(self) -> None:
        """Until every rank is here."""
        self.state.wait_for_everyone()
