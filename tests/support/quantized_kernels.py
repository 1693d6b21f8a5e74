"""What the int8 kernels are held to, and inputs for them."""

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
    """QuantParams from end to end of a type."""
    ends = torch.iinfo(KINDS[kind])
    return torch.randint(ends.min, ends.max + 1, shape, dtype=KINDS[kind])


def zero_of(kind: str) -> int:
    """A zero point that is nothing special."""
    return {"uint8": 131, "int8": -5}[kind]


def columns(channels: int, worth: float, *, is_power: bool = False) -> tuple[Tensor, Tensor]:
    """Scales about so large, powers of two if wanted, and a bias in reach."""
    scales = (
        torch.tensor(POWERS)[torch.randint(len(POWERS), (channels,))]
        if is_power
        else torch.rand(channels) * worth + worth / 9
    )
    bias = torch.randint(-64, 65, (channels,)) / 32 if is_power else torch.randn(channels)
    return scales, bias


def assert_rounded_once(
    made: Tensor, inputs: tuple[Any, ...], numbers: Callable[[Int8Inputs], Tensor]
) -> None:
    """The answer is the exact one, rounded: integer sums are exact, and what fp32 then adds is far
    below a step.

    A step may be half a step from the exact number and a thousandth more, which lets two neighbours
    that are equally near be either; a number half a unit of its last place, or two where it is fp32
    itself.
    """
    given = Int8Inputs(
        *(
            one.double() if torch.is_tensor(one) and one.is_floating_point() else one
            for one in inputs
        )
    )
    exact = numbers(given)
    if given.is_quantized:
        ends = torch.iinfo(given.dtype)
        wanted = (exact / given.out_scale + given.out_zero).clamp(ends.min, ends.max)
        torch.testing.assert_close(made.double(), wanted, rtol=0, atol=0.501)
    else:
        units = 2 if given.dtype == torch.float32 else 0.51
        torch.testing.assert_close(
            made.double(), exact, rtol=units * torch.finfo(given.dtype).eps, atol=1e-4
        )


def assert_equal(made: Tensor, inputs: tuple[Any, ...], kernel: Kernel) -> None:
    """Where scales are powers of two fp32 rounds nothing: every step is that of torch, halves and
    ends too.
    """
    expected = kernel.compose(*inputs)
    assert made.equal(expected), f"{(made != expected).sum()} of {made.numel()} steps are others"
