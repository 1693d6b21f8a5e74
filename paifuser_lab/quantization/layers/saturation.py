"""Processors without VNNI add pairs of int8 products in 16 bits, where they saturate: there each
weight is split into two addends.

A quantized input (up to 255) times a weight (up to 127), twice, exceeds 16 bits, and oneDNN's
output is then wrong by up to a half. Two addends of a weight are at most 64 each, and no pair of
their products saturates. The inputs are multiplied with both addends, which is twice the
arithmetic: int8 is then hardly faster than fp32, and its results equal those of every other
processor.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .layer import packed_zero_points

WIDTH = 64  # of the test product
MAX_INPUT, MAX_WEIGHT = 255, 127


@cache
def saturates() -> bool:
    """Whether this processor's int8 product of the largest inputs and weights is too small."""
    with _disable_current_modes():  # modes that count or record operators must not see this
        weights = torch.full((WIDTH, WIDTH), MAX_WEIGHT, dtype=torch.int8)
        quantized = torch.full((WIDTH, WIDTH), MAX_INPUT, dtype=torch.uint8)
        packed = torch.ops.onednn.qlinear_prepack(weights, [WIDTH, WIDTH])
        scales, zeros = torch.ones(WIDTH), packed_zero_points(WIDTH)
        output = torch.ops.onednn.qlinear_pointwise(
            quantized, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
    return float(output.min()) < MAX_INPUT * MAX_WEIGHT * WIDTH


def addends(values: Tensor) -> Tensor:
    """Two addends of each weight, side by side along a group's inputs."""
    first = values >> 1
    return torch.cat([first, values - first], 1)


def doubled(quantized: Tensor, groups: int = 1) -> Tensor:
    """Quantized inputs repeated for both addends, group by group."""
    if groups == 1:
        return torch.cat([quantized, quantized], 1)
    grouped = quantized.reshape(quantized.shape[0], groups, -1, *quantized.shape[2:])
    return torch.cat([grouped, grouped], 2).flatten(1, 2)


def mark(packed: Any) -> None:
    """Mark packed weights as addends, which do not count as two weights."""
    packed.are_addends = True


def weights_of(packed: Any) -> int:
    """How many packed values represent one weight, as a divisor."""
    return 2 if getattr(packed, "are_addends", False) else 1
