"""A linear layer, or a 1×1 convolution, on int8, with its bias, residual and activation in one
pass.

Never in memory: the int32 sums, which take four times as many bytes as the output, and what is
computed from them before rounding. The activation comes last, as in `pointwise`.

Floor for 64 images of 56² from 64 to 256 channels with a residual: 12.8 MB in, 51.4 MB of residual,
51.4 MB out, 26.9 µs on an H200 at 4.3 TB/s, half of what bf16 needs; 6.6 billion operations, 4 µs
where int8 has twice the rate of bf16.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import Budget, Kernel
from .launch import DeclinedError, Launch, aligned, checked_count, grid_of
from .quantized import (
    SCHEMA,
    WIDTH,
    Int8Inputs,
    QuantParams,
    apply_activation,
    channel_arguments,
    check,
    exact_dtype,
    float_residual,
    int8_entry,
    operator_arguments,
    rounded,
    scalar_arguments,
)

_ROWS = 128  # of a block
_THREADS = 256
_STAGES, _PITCH = 3, 80  # of the ring: stages, and bytes from row to row


def project_int8(
    x: Tensor,
    weight: Tensor,
    scales: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    zero: int = 0,
    sums: Tensor | None = None,
    residual_params: QuantParams | None = None,
    into: QuantParams | torch.dtype = torch.bfloat16,
    activation: str = "none",
) -> Tensor:
    """activation((x - zero) · weightᵀ · scales + bias + residual), quantized or float by `into`.

    `x` is (…, in) in uint8 or int8, `weight` (out, in) in int8. `scales` are the scale of x times
    those of the weight, one per column. `sums` of each row of weight save computing them where x
    has a zero point.
    """
    options: dict[str, Any] = {
        "zero": zero,
        "sums": sums,
        "residual_params": residual_params,
        "into": into,
        "activation": activation,
    }
    output: Tensor = torch.ops.paifuser.pointwise_int8(
        *operator_arguments(x, weight, scales, bias, residual, **options)
    )
    return output


def float_output(inputs: Int8Inputs) -> Tensor:
    """The output before rounding, in the dtype of the scales; its integer sums are exact."""
    exact = exact_dtype(inputs.weight.shape[1])
    sums = F.linear(inputs.x.to(exact) - inputs.zero, inputs.weight.to(exact)).to(
        inputs.scales.dtype
    )
    output = sums * inputs.scales + float_residual(inputs)
    return apply_activation(inputs, output if inputs.bias is None else output + inputs.bias)


def compose(*arguments: Any) -> Tensor:
    """The reference, composed of torch operators."""
    inputs = Int8Inputs(*arguments)
    return rounded(inputs, float_output(inputs)).contiguous()


def empty(*arguments: Any) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    inputs = Int8Inputs(*arguments)
    x, weight = inputs.x, inputs.weight
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise KernelError(
            f"pointwise_int8 takes (…, in) and a weight of (out, in), not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}."
        )
    shape = (*x.shape[:-1], weight.shape[0])
    check("pointwise_int8", inputs, weight.shape[0], shape)
    return x.new_empty(shape, dtype=inputs.dtype)


def plan(out: Tensor, *arguments: Any) -> Launch:
    """A block per 128 rows of 64 or 128 columns, a warp per 32 rows of half of them."""
    inputs = Int8Inputs(*arguments)
    columns, depth = inputs.weight.shape
    if columns % WIDTH or depth % WIDTH or not depth:
        raise DeclinedError(
            f"it takes multiples of sixteen columns, not {depth} in and {columns} out"
        )
    rows = checked_count(math.prod(inputs.x.shape[:-1]))
    wide = 64 if columns <= 64 else 128
    return Launch(
        kernel="pointwise_int8",
        entry=int8_entry("pointwise_int8", inputs, wide, is_last=True),
        grid=grid_of(-(-rows // _ROWS) * -(-columns // wide), 1, 1),
        block=(_THREADS, 1, 1),
        shared_bytes=_shared_bytes(wide),
        arguments=(
            aligned(inputs.x.contiguous()),
            aligned(inputs.weight.contiguous()),
            *channel_arguments(inputs),
            None if inputs.residual is None else aligned(inputs.residual.contiguous()),
            out,
            *(np.int32(number) for number in (rows, depth, columns)),
            *scalar_arguments(inputs, is_last=True),
        ),
    )


def _shared_bytes(wide: int) -> int:
    """The size of `PointwiseInt8::Tile` in the source: the ring of x and weight, the tile of the
    output, three numbers per column.
    """
    return _STAGES * (_ROWS + wide) * _PITCH + _ROWS * (wide + 16) + 12 * wide


KERNEL = Kernel(
    name="pointwise_int8",
    schema=f"({SCHEMA}) -> Tensor",
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "pointwise_int8<uint8, uint8, 128, NONE>": Budget(registers=128, instructions=1210),
        "pointwise_int8<int8, int8, 64, SILU>": Budget(registers=96, instructions=970),
        "pointwise_int8<uint8, bfloat16, 64, GELU>": Budget(registers=96, instructions=1200),
        "pointwise_int8<uint8, float, 128, NONE>": Budget(registers=128, instructions=1160),
    },
    is_differentiable=False,
)
