"""LoRA: low-rank matrices beside the linear layers of a model, which is left as it is (Hu et al. 2021, through peft).

    y = W x + (alpha / rank) B A x,   A (rank, in) random, B (out, rank) zero at first

The reference model of a run is the same model with the adapter switched off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from seedbench.core import SeedbenchError

if TYPE_CHECKING:
    from torch import Tensor

NAME = "default"  # peft's name for an adapter, which is part of its tensors' names


def add_adapter(model: Any, rank: int, alpha: float, seed: int) -> None:
    """Put an adapter into every linear layer but the output's; only its matrices are trained from then on.

    `seed` alone draws them, so that every process of a run has the same. Raises SeedbenchError.
    """
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError as e:
        raise SeedbenchError(f"--lora-rank needs peft ({e}); install it with `pip install -e '.[train]'`.") from e
    import torch

    scale: Any = alpha  # declared int, but any number is divided by the rank
    config = LoraConfig(r=rank, lora_alpha=scale, target_modules="all-linear", bias="none", task_type="CAUSAL_LM")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LoraModel(model, {NAME: config}, NAME)  # in place: the model keeps its class and its forward()
    model.eval()


def has_adapter(model: Any) -> bool:
    return any(True for _ in _layers(model))


@contextlib.contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """The model as it was before `add_adapter`."""
    layers = list(_layers(model))
    for layer in layers:
        layer._disable_adapters = True  # enable_adapters() would also freeze the matrices, and thaw others' too
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a plain model from those of one with an adapter: names and shapes are the base's.

    `state` may be gathered from several processes; the sum is made in fp32 and rounded once.
    """
    scaling = {name: layer.scaling[NAME] for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
    whole: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        layer = name.partition(".base_layer.")[0]
        if plain != name and name.endswith(".base_layer.weight"):
            a, b = (state[f"{layer}.lora_{x}.{NAME}.weight"].float() for x in "AB")
            tensor = (tensor.float() + scaling[layer] * (b @ a)).to(tensor.dtype)
        whole[plain] = tensor
    return whole


def _layers(model: Any) -> Iterator[Any]:
    return (module for module in model.modules() if hasattr(module, "lora_A") and hasattr(module, "scaling"))
