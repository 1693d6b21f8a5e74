"""A batch-norm on its way into the layer before it.

A scale a channel takes it in without another rounding: the whole numbers are those of the layer's
own weight, and the batch-norm multiplies the scales. So it may normalise by the batch at first, and
nothing is rounded otherwise once it no longer does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...formats import Quantized


class Folding(NamedTuple):
    """What a batch-norm with running statistics does: times a factor a channel, and a shift."""

    factor: Tensor
    shift: Tensor

    @classmethod
    def of(cls, norm: Any) -> Folding:
        """What a batch-norm does as it is now; gradients flow to its weight and bias."""
        factor = torch.rsqrt(norm.running_var + norm.eps)
        factor = factor if norm.weight is None else factor * norm.weight
        shift = -norm.running_mean * factor
        return cls(factor, shift if norm.bias is None else shift + norm.bias)

    def weight(self, weight: Tensor) -> Tensor:
        """The layer's weight with the batch-norm in it."""
        return weight * self.factor.reshape(-1, *[1] * (weight.ndim - 1))

    def bias(self, bias: Tensor | None) -> Tensor:
        """The layer's bias with the batch-norm in it."""
        return self.shift if bias is None else bias * self.factor + self.shift

    def numbers(self, numbers: Quantized) -> Quantized:
        """The layer's whole numbers with the batch-norm in their scales, which stay positive."""
        signs = self.factor.sign().to(torch.int8).reshape(-1, *[1] * (numbers.values.ndim - 1))
        scales = numbers.scales * self.factor.abs().unsqueeze(1)
        return Quantized(
            numbers.values * signs,
            torch.where(scales > 0, scales, torch.ones_like(scales)),
            numbers.channel,
        )
