"""How far an answer is from float64, in parts of what is allowed to a kernel that rounds once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...kernels.kernel import Kernel
from ...kernels.quantized import Int8Inputs

Inputs = tuple[Any, ...]
NEAR_HALF = 0.002  # of a step: what fp32 may add to a number of some hundred steps, and more


def exact(kernel: Kernel, inputs: Inputs) -> Tensor:
    """What a kernel should answer, composed in float64."""
    return kernel.compose(
        *(
            one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in inputs
        )
    )


def error_of(made: Tensor, expected: Tensor, allowed: Tensor | float) -> float:
    """The largest error, in parts of what is allowed there; infinite where the answer is no
    number.
    """
    ratio = ((made.double() - expected).abs() / allowed).max().item() if made.numel() else 0.0
    return ratio if ratio == ratio else float("inf")


def allowed_for_sums(inputs: Inputs, expected: Tensor) -> Tensor:
    """Sums in fp32, rounded once at the end: half a unit of the last place."""
    return 0.51 * torch.finfo(inputs[0].dtype).eps * expected.abs() + 1e-4


def allowed_for_quantized(
    numbers: Callable[[Int8Inputs], Tensor],
) -> Callable[[Inputs, Tensor], Tensor]:
    """Exact sums, rounded once: the same step, or its neighbour where the number lies midway
    between them.
    """

    def allowed(inputs: Inputs, expected: Tensor) -> Tensor:
        wide: list[Any] = [
            one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in inputs
        ]
        given = Int8Inputs(*wide)
        wanted = numbers(given) / given.out_scale
        is_midway = (wanted - wanted.floor() - 0.5).abs() < NEAR_HALF
        return 0.5 + 0.5 * is_midway.double()

    return allowed


def allowed_for_means(values: Callable[[Inputs], Tensor]) -> Callable[[Inputs, Tensor], Tensor]:
    """Weighted means of values, the weights rounded to 16 bits: about a unit of the largest
    value.
    """

    def allowed(inputs: Inputs, expected: Tensor) -> Tensor:
        found = values(inputs)
        return 1.1 * torch.finfo(found.dtype).eps * found.abs().max().double()

    return allowed
