"""The geometry of convolutions, and the memory format of their outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format


def geometry_of(layer: Any) -> tuple[list[int], list[int], list[int], int]:
    """A convolution's padding, stride, dilation and groups."""
    return list(layer.padding), list(layer.stride), list(layer.dilation), layer.groups


def is_channels_last(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's output of such a convolution is channels-last: where the strides of the
    images or of the weight suggest it.
    """
    return any(suggest_memory_format(tensor) is torch.channels_last for tensor in (x, weight))
