"""FSDP2: every process holds one part of each weight, gradient and moment of a model too large for one GPU.

Whole weights exist layer by layer during an update, and all at once while episodes are played or rows scored
(`whole`): processes then take different numbers of forward passes, which sharded layers could not, as they gather in
step. So a rank must hold all weights once, but gradients, masters and moments only in part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def shard(model: Any) -> None:
    """Cut the model's weights over the processes, layer by layer; gradients are summed, as the loss is a share."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for part in _parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo knows no other reduction with a factor


def layers(model: Any) -> list[Any]:
    """The decoder layers: what is gathered, and recomputed, as a whole."""
    names = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


@contextlib.contextmanager
def whole(model: Any) -> Iterator[None]:
    """All weights on every process, for any number of forward passes without gradients. Every process enters it."""
    parts = _parts(model)
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


def gathered(state: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Whole tensors on the CPU from parts, one after another; where `keep` is False they are dropped at once.

    Every process takes part, in the same order of names.
    """
    from torch.distributed.tensor import DTensor

    found = {}
    for name, tensor in state.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name] = full.detach().cpu() if isinstance(tensor, DTensor) else full.detach()
    return found


def like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """This process's part of a whole tensor, cut as `pattern` is; the tensor itself where that is not cut."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if tensor.dim() == 0:  # AdamW's count of steps, which stays on the CPU
        return tensor
    if not isinstance(pattern, DTensor):
        return tensor.to(pattern.device)
    return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements, src_data_rank=None)


def recompute(model: Any) -> None:
    """Activation checkpointing: keep each layer's input alone, and compute the rest again in the backward pass."""
    import functools

    import torch
    from torch.utils.checkpoint import checkpoint

    for layer in layers(model):
        forward = layer.forward

        @functools.wraps(forward)
        def cheap(*args: Any, _forward: Any = forward, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return _forward(*args, **kwargs)
            return checkpoint(_forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

        layer.forward = cheap


def _parts(model: Any) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]
