"""The activations that a kernel can apply, in torch; kernels/activation.cuh has them by name."""

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


def known(kernel: str, activation: str) -> None:
    """Refuse an activation that is none of them."""
    if activation not in ACTIVATIONS:
        raise KernelError(
            f"{kernel} knows the activations {', '.join(ACTIVATIONS)}, not {activation!r}."
        )
