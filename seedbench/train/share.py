"""How large one part of a loss is beside the rest, as gradients: what says whether its weight means anything."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from seedbench.train.ranks import Ranks

if TYPE_CHECKING:
    from torch import Tensor


class Share:
    """The part's gradient over the passes of one optimizer step. It costs a second backward pass for each."""

    def __init__(self, model: Any):
        import torch

        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.gradients: list[Tensor] = [torch.zeros_like(p) for p in self.weights]

    def add(self, part: Tensor) -> None:
        """Differentiate the part of one pass's loss, whose graph stays for the whole loss's backward pass."""
        import torch

        found = torch.autograd.grad(part, self.weights, retain_graph=True, allow_unused=True)
        for total, one in zip(self.gradients, found, strict=True):
            if one is not None:
                total += one

    def of_the_rest(self, ranks: Ranks) -> list[float]:
        """[|part| / |whole - part|], read when every pass has gone backward; empty where the rest has no gradient."""
        import torch

        part = rest = 0.0
        for weight, own in zip(self.weights, self.gradients, strict=True):
            whole = torch.zeros_like(weight) if weight.grad is None else weight.grad
            both = torch.stack([own, whole - own])
            if ranks.world > 1:
                from accelerate.utils import reduce

                both = reduce(both, "sum")
            part += float(both[0].double().square().sum())
            rest += float(both[1].double().square().sum())
        return [math.sqrt(part / rest)] if rest else []
