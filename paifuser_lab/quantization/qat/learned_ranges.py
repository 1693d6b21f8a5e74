"""Learned quantization parameters: the range of a layer's input, and the scales of its weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...formats import Range, most_steps, scales_of
from .straight_through import rounded, rounded_weight, step_weight, weighted


class LearnedRange(nn.Module):
    """A range whose ends are learned as exponents: each end is its start times a power of e, so its
    sign cannot change and zero stays zero.
    """

    def __init__(self, start: Range, *, learns: bool) -> None:
        super().__init__()
        self.start = start
        self.powers = nn.Parameter(torch.zeros(2), requires_grad=learns)

    @property
    def span(self) -> Range:
        """The present range."""
        low, high = self.powers.tolist()
        return Range(self.start.low * math.exp(low), self.start.high * math.exp(high))

    def forward(self, x: Tensor) -> Tensor:
        """Values rounded to the range's 256 quantized values."""
        return rounded(x, self.powers, self.span)

    def extra_repr(self) -> str:
        return f"{self.span.low:.3g} to {self.span.high:.3g}"


class LearnedScales(nn.Module):
    """The scales of a weight, learned as powers of e times their start; or, if not learned, those
    of its largest values.
    """

    start: Tensor

    def __init__(self, weight: Tensor, bits: int, channel: int, *, learns: bool) -> None:
        super().__init__()
        self.bits, self.channel, self.learns = bits, channel, learns
        self.register_buffer("start", scales_of(weight, bits, channel=channel))
        self.powers = nn.Parameter(torch.zeros_like(self.start), requires_grad=learns)

    def scales(self, weight: Tensor) -> Tensor:
        """The present scales."""
        if not self.learns:
            return scales_of(weight, self.bits, channel=self.channel)
        with torch.no_grad():
            share = step_weight(weight.numel() // self.start.numel(), most_steps(self.bits))
            weights = share / (self.start * self.powers.exp()).square()
        return self.start * weighted(self.powers, weights).exp()

    def forward(self, weight: Tensor) -> Tensor:
        """The weight after rounding, as floats."""
        return rounded_weight(weight, self.scales(weight), self.bits, channel=self.channel)
