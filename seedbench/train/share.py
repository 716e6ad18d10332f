"""How large one part of a loss is beside the rest, as gradients: what says whether its weight means anything."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from seedbench.core import SeedbenchError
from seedbench.train.optimizer import Optimizer
from seedbench.train.ranks import Ranks

if TYPE_CHECKING:
    from torch import Tensor


class Share:
    """The part's gradient over the passes of one optimizer step. It costs a second backward pass for each."""

    def __init__(self, optimizer: Optimizer, ranks: Ranks):
        import torch

        if ranks.shards:
            raise SeedbenchError("--share-every needs whole gradients in each process: leave out --shard or it.")
        self.optimizer, self.ranks = optimizer, ranks
        self.weights = list(optimizer.named.values())
        self.gradients: list[Tensor] = [torch.zeros_like(m) for m in optimizer.masters.values()]

    def add(self, part: Tensor) -> None:
        """Differentiate the part of one pass's loss, whose graph stays for the whole loss's backward pass."""
        import torch

        found = torch.autograd.grad(part, self.weights, retain_graph=True, allow_unused=True)
        for total, one in zip(self.gradients, found, strict=True):
            if one is not None:
                total += one

    def of_the_rest(self) -> list[float]:
        """[|part| / |whole - part|], read when every pass has gone backward; empty where the rest has no gradient."""
        import torch

        part = rest = 0.0
        for master, own in zip(self.optimizer.masters.values(), self.gradients, strict=True):
            whole = torch.zeros_like(master) if master.grad is None else master.grad
            both = torch.stack([own, whole - own])
            if self.ranks.world > 1:
                from accelerate.utils import reduce

                both = reduce(both, "sum")
            part += float(both[0].double().square().sum())
            rest += float(both[1].double().square().sum())
        return [math.sqrt(part / rest)] if rest else []
