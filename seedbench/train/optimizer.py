"""AdamW over fp32 weights, whatever the model computes in.

At a learning rate of 1e-6 a step is smaller than the rounding of a bf16 weight (2^-9 of it), and would be lost. So
where the model is bf16 the optimizer keeps fp32 copies ("masters"), adds every pass's gradient to theirs, steps them,
and rounds the result into the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Optimizer:
    """AdamW over the trainable parameters of a model, by name."""

    def __init__(self, model: Module, lr: float, weight_decay: float):
        import torch

        self.named: dict[str, Parameter] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.masters: dict[str, Tensor] = {
            n: p.detach().float() if p.dtype != torch.float32 else p for n, p in self.named.items()
        }
        self.adamw = torch.optim.AdamW(list(self.masters.values()), lr=lr, weight_decay=weight_decay)

    @property
    def copied(self) -> dict[str, Tensor]:
        """The masters that are not the model's own weights."""
        return {n: m for n, m in self.masters.items() if m is not self.named[n]}

    def absorb(self) -> None:
        """After each backward pass: add what it left in a bf16 weight's grad to the fp32 sum."""
        for name, master in self.copied.items():
            grad, self.named[name].grad = self.named[name].grad, None
            if grad is not None:
                master.grad = grad.float() if master.grad is None else master.grad.add_(grad.float())

    def forget(self) -> None:
        """Drop all gradients since the last step, half-done ones too."""
        for weight in (*self.named.values(), *self.masters.values()):
            weight.grad = None

    def step(self, rate: float) -> None:
        """One step at learning rate `rate`; the gradients are gone afterwards."""
        import torch

        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, master in self.copied.items():
                self.named[name].copy_(master)

    def state(self) -> dict[str, Tensor]:
        """Moments and masters, as `NAME.exp_avg`, `NAME.master` and so on."""
        found = {f"{n}.{k}": v for n, m in self.masters.items() for k, v in self.adamw.state.get(m, {}).items()}
        return found | {f"{n}.master": m.detach() for n, m in self.copied.items()}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave. Raises KeyError or ValueError where it is another model's."""
        import torch

        known = {f"{n}.{k}" for n in self.masters for k in (*MOMENTS, "master")}
        if strange := sorted(set(state) - known):
            raise ValueError(f"{strange[0]} is of no weight that is trained")
        for name, master in self.masters.items():
            own = {k: state[f"{name}.{k}"] for k in MOMENTS if f"{name}.{k}" in state}
            if own:
                self.adamw.state[master] = own
        with torch.no_grad():
            for name, master in self.copied.items():
                master.copy_(state[f"{name}.master"])
