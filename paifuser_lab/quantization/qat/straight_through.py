"""Roundings with straight-through gradients: to the value where it was rounded, to the range or
scale where it was clipped, which is where the nearest step lies outside the range.

The gradients of a step size and their scaling are those of Esser et al. (2020), "Learned Step Size
Quantization", arXiv:1902.08153. A range has two ends here instead of a size; one that begins at
zero is a size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...model.formats import Range, most_steps, scales_of
from ..conversion import dequantize_values, quantize_values

INPUT_STEPS = 255
# of a scale: the largest change of rounding, with a margin for fp32 errors
HALF = 0.501


class _Rounded(torch.autograd.Function):
    """Quantizes values to the 256 steps of a range, whose ends are learned as powers of e."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, powers: Tensor, span: Range) -> Tensor:
        ctx.save_for_backward(x)
        ctx.span = span
        return _through(x, span)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        gradient, span = gradients[0], ctx.span
        error = _through(x, span) - x
        passed = torch.where(error.abs() <= HALF * span.scale, gradient, 0.0)
        if not ctx.needs_input_grad[1]:
            return passed.to(x.dtype), None, None
        cut_off = gradient - passed
        both, difference = cut_off.sum(), (cut_off * x.sign()).sum()
        inner = (passed * error).sum() / (span.scale * INPUT_STEPS)
        below, above = (both - difference) / 2 - inner, (both + difference) / 2 + inner
        ends = torch.stack([below * min(span.low, 0.0), above * max(span.high, 0.0)])
        return (
            passed.to(x.dtype),
            ends * step_weight(x[:1].numel(), INPUT_STEPS) / span.scale**2,
            None,
        )


def _through(x: Tensor, span: Range) -> Tensor:
    """Quantize and dequantize with the functions of the quantized layers."""
    return dequantize_values(quantize_values(x, span), span, torch.float32)


def rounded(x: Tensor, powers: Tensor, span: Range) -> Tensor:
    """Values quantized to a range and dequantized."""
    output: Tensor = _Rounded.apply(x, powers, span)  # type: ignore[no-untyped-call]
    return output


def rounded_weight(weight: Tensor, scales: Tensor, bits: int, *, channel: int) -> Tensor:
    """The weight as `formats.with_scales` rounds it; gradients flow to it and to its scales."""
    limit = most_steps(bits)
    rows = weight.transpose(0, channel)
    steps = rows.reshape(*scales.shape, -1) / scales.unsqueeze(-1)
    integers = instead(steps, steps.detach().round())
    return (
        (integers.clamp(-limit, limit) * scales.unsqueeze(-1))
        .reshape(rows.shape)
        .transpose(0, channel)
    )


def weighted(values: Tensor, weight: Tensor) -> Tensor:
    """The same values, with their gradient multiplied by a weight."""
    output = values.view_as(values)
    if output.requires_grad:
        output.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
    return output


def step_weight(count: int, most: int) -> float:
    """The factor on the gradient of a step size, so that it learns as fast as the weights do."""
    return float((max(count, 1) * most) ** -0.5)


class _Instead(torch.autograd.Function):
    """The value of one tensor, and the gradient of another."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: list[Tensor]) -> Tensor:
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def instead(surrogate: Tensor, value: Tensor) -> Tensor:
    """A value in place of the surrogate's; gradients flow to the surrogate."""
    held = [value]  # in a list: autograd forbids in-place writes into a returned input
    output: Tensor = _Instead.apply(surrogate, held)  # type: ignore[no-untyped-call]
    return output


class LearnedRange(nn.Module):
    """A range whose ends are their starts times learned powers of e, so that signs are kept."""

    def __init__(self, start: Range, *, learns: bool, device: torch.device | None = None) -> None:
        super().__init__()
        self.start = start
        self.powers = nn.Parameter(torch.zeros(2, device=device), requires_grad=learns)

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
    """A weight's scales, learned as powers of e; unlearned, those of its largest values."""

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
