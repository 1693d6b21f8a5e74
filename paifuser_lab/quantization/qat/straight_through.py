"""Roundings that gradients pass: straight through where a value was rounded, to the range or scale
where it was cut off, which is where the nearest step lies outside of the range.

The gradients of a step's size and how they are scaled are those of Esser et al. (2020), "Learned
Step Size Quantization", arXiv:1902.08153. A range has two ends here instead of a size; one that
begins at zero is a size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats import Range, most_steps
from ..conversion import dequantize_values, quantize_values

INPUT_STEPS = 255
# of a scale, which is the most that rounding changes; a little more for the last bits of fp32
HALF = 0.501


class _Rounded(torch.autograd.Function):
    """Values through the 256 quantized values of a range, whose ends are learned as powers of e."""

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
    """By the functions of the live layers."""
    return dequantize_values(quantize_values(x, span), span, torch.float32)


def rounded(x: Tensor, powers: Tensor, span: Range) -> Tensor:
    """Values quantized to a range and dequantized."""
    output: Tensor = _Rounded.apply(x, powers, span)  # type: ignore[no-untyped-call]
    return output


class _RoundedStraight(torch.autograd.Function):
    """To the nearest integer, and for gradients as if not."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.round()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def rounded_weight(weight: Tensor, scales: Tensor, bits: int, *, channel: int) -> Tensor:
    """What `formats.with_scales` makes of a weight, as numbers; gradients flow to the weight and to
    its scales.
    """
    most = most_steps(bits)
    rows = weight.transpose(0, channel)
    whole: Tensor = _RoundedStraight.apply(rows.reshape(*scales.shape, -1) / scales.unsqueeze(-1))  # type: ignore[no-untyped-call]
    return (
        (whole.clamp(-most, most) * scales.unsqueeze(-1)).reshape(rows.shape).transpose(0, channel)
    )


class _Weighted(torch.autograd.Function):
    """A tensor whose gradient counts so many times."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.saved_tensors[0], None


def weighted(values: Tensor, weight: Tensor) -> Tensor:
    """The same values, whose gradient counts so many times."""
    output: Tensor = _Weighted.apply(values, weight)  # type: ignore[no-untyped-call]
    return output


def step_weight(count: int, most: int) -> float:
    """How much the gradient of a step's size counts, so that it learns as quickly as the weights
    do.
    """
    return float((max(count, 1) * most) ** -0.5)


class _Instead(torch.autograd.Function):
    """One value, and the gradient of another."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: list[Tensor]) -> Tensor:
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def instead(surrogate: Tensor, value: Tensor) -> Tensor:
    """A value in place of what float arithmetic gives for it; gradients flow to the latter."""
    held = [value]  # what a function was given itself may not be written into
    output: Tensor = _Instead.apply(surrogate, held)  # type: ignore[no-untyped-call]
    return output
