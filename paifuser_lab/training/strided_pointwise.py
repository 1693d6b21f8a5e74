"""Strided 1×1 convolutions of few channels, trained without writing past the end of their gradient.

Computed channels-last, oneDNN (as in torch 2.13, on processors with AVX2) writes the weight's
gradient in full vectors, past the end of the buffer if there are fewer input channels than a vector
holds: the process aborts with "corrupted size vs. prev_size", or continues with another tensor's
values changed. Computed contiguous it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

VECTOR = 16  # numbers of fp32 in the widest vector


class ContiguousStridedPointwise(TorchFunctionMode):
    """While active, such convolutions are computed contiguous on a CPU; all else is unchanged."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function is functional.conv2d and len(args) >= 2 and _is_affected(*args, **kwargs):
            args = (*(_contiguous(tensor) for tensor in args[:2]), *args[2:])
        return function(*args, **kwargs)


def is_overrun(weight: Tensor, stride: Any) -> bool:
    """Whether the gradient of a convolution's weight is written past its end in channels-last."""
    steps = stride if isinstance(stride, Sequence) else (stride,)
    return (
        weight.device.type == "cpu"
        and weight.shape[2:] == (1, 1)
        and weight.shape[1] < VECTOR
        and any(step != 1 for step in steps)
    )


def _is_affected(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, *_: Any, **__: Any
) -> bool:
    return is_overrun(weight, stride)


def _contiguous(tensor: Tensor) -> Tensor:
    """A tensor with contiguous strides also in dimensions of size 1, which `contiguous` leaves
    unchanged.
    """
    return (
        tensor.reshape(-1).view(tensor.shape)
        if tensor.is_contiguous()
        else tensor.clone(memory_format=torch.contiguous_format)
    )
