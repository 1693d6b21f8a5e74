"""Checks and inputs of the int8 kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paifuser_lab.kernels.kernel import Kernel
from paifuser_lab.kernels.quantized import Int8Inputs

KINDS = {"uint8": torch.uint8, "int8": torch.int8}
OUTS = KINDS | {"bfloat16": torch.bfloat16, "float16": torch.float16, "float": torch.float32}
POWERS = [2.0**power for power in range(-9, -4)]


def steps(kind: str, *shape: int) -> Tensor:
    """Random quantized values of a type's whole range."""
    ends = torch.iinfo(KINDS[kind])
    return torch.randint(ends.min, ends.max + 1, shape, dtype=KINDS[kind])


def zero_of(kind: str) -> int:
    """An arbitrary zero point."""
    return {"uint8": 131, "int8": -5}[kind]


def columns(channels: int, worth: float, *, is_power: bool = False) -> tuple[Tensor, Tensor]:
    """Scales of this magnitude, or powers of two, and a bias of similar magnitude."""
    scales = (
        torch.tensor(POWERS)[torch.randint(len(POWERS), (channels,))]
        if is_power
        else torch.rand(channels) * worth + worth / 9
    )
    bias = torch.randint(-64, 65, (channels,)) / 32 if is_power else torch.randn(channels)
    return scales, bias


def assert_rounded_once(
    output: Tensor, inputs: tuple[Any, ...], numbers: Callable[[Int8Inputs], Tensor]
) -> None:
    """Assert that the output is the exact one, rounded: integer sums are exact, and the error of
    fp32 is far below a step.

    A quantized value may be half a step and a thousandth from the exact number, so that ties may
    round either way; a float half a unit in the last place, or two units in fp32.
    """
    exact_inputs = Int8Inputs(
        *(
            value.double() if torch.is_tensor(value) and value.is_floating_point() else value
            for value in inputs
        )
    )
    exact = numbers(exact_inputs)
    if exact_inputs.is_quantized:
        ends = torch.iinfo(exact_inputs.dtype)
        expected = (exact / exact_inputs.out_scale + exact_inputs.out_zero).clamp(
            ends.min, ends.max
        )
        torch.testing.assert_close(output.double(), expected, rtol=0, atol=0.501)
    else:
        units = 2 if exact_inputs.dtype == torch.float32 else 0.51
        torch.testing.assert_close(
            output.double(), exact, rtol=units * torch.finfo(exact_inputs.dtype).eps, atol=1e-4
        )


def assert_equal(output: Tensor, inputs: tuple[Any, ...], kernel: Kernel) -> None:
    """Assert equality with torch, ties and extremes included: with scales of powers of two fp32 is
    exact.
    """
    expected = kernel.compose(*inputs)
    assert output.equal(expected), f"{(output != expected).sum()} of {output.numel()} values differ"
