"""The error of an output against float64, relative to what a kernel that rounds once may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...kernels.kernel import Kernel
from ...kernels.quantized import Int8Inputs

Inputs = tuple[Any, ...]
NEAR_HALF = 0.002  # of a quantization step: more than fp32 adds to a value of some hundred steps


def exact(kernel: Kernel, inputs: Inputs) -> Tensor:
    """A kernel's expected output, composed in float64."""
    return kernel.compose(*(_as_double(value) for value in inputs))


def _as_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def error_of(output: Tensor, expected: Tensor, allowed: Tensor | float) -> float:
    """The largest error relative to the allowed one there; infinite if the output has a NaN."""
    ratio = ((output.double() - expected).abs() / allowed).max().item() if output.numel() else 0.0
    return ratio if ratio == ratio else float("inf")


def allowed_for_sums(inputs: Inputs, expected: Tensor) -> Tensor:
    """Allow for sums in fp32, rounded once at the end: half a unit in the last place."""
    return 0.51 * torch.finfo(inputs[0].dtype).eps * expected.abs() + 1e-4


def allowed_for_quantized(
    float_output: Callable[[Int8Inputs], Tensor],
) -> Callable[[Inputs, Tensor], Tensor]:
    """Allow for exact sums, rounded once: the same quantized value, or its neighbour where the
    float value lies midway between them.
    """

    def allowed(inputs: Inputs, expected: Tensor) -> Tensor:
        quantized = Int8Inputs(*map(_as_double, inputs))
        steps = float_output(quantized) / quantized.out_scale
        is_midway = (steps - steps.floor() - 0.5).abs() < NEAR_HALF
        return 0.5 + 0.5 * is_midway.double()

    return allowed


def allowed_for_means(values: Callable[[Inputs], Tensor]) -> Callable[[Inputs, Tensor], Tensor]:
    """Allow for weighted means of values, the weights rounded to 16 bits: about a unit of the
    largest value.
    """

    def allowed(inputs: Inputs, expected: Tensor) -> Tensor:
        averaged = values(inputs)
        return 1.1 * torch.finfo(averaged.dtype).eps * averaged.abs().max().double()

    return allowed
