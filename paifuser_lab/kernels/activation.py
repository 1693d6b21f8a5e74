"""The activations that a kernel can apply, in torch; named as in kernels/activation.cuh."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "gelu": F.gelu,
    "hardswish": F.hardswish,
}


def check_activation(kernel: str, activation: str) -> None:
    """Raise for an unknown activation."""
    if activation not in ACTIVATIONS:
        raise KernelError(
            f"{kernel} takes the activations {', '.join(ACTIVATIONS)}, not {activation!r}."
        )
