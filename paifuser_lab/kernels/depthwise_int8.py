"""Depthwise convolution on int8, channels last, with its bias, activation and residual in one pass.

Never in memory: the int32 sums, and what is computed from them before rounding. The residual comes
last, as in `depthwise`.

Floor for 64 images of 96 channels at 56²: 19.3 MB in and as much out, 9 µs on an H200 at 4.3 TB/s,
half of what bf16 needs. Four taps of a line are one instruction, so that a kernel of 3, 5, 7 or 9
issues 4.5, 10, 17.5 or 27 of them per element of the output, in place of 9, 25, 49 or 81
multiply-adds, each of which takes twice as long: 5, 11, 20 and 31 µs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .kernel import Budget, Kernel
from .launch import DeclinedError, Launch, aligned, grid_of, require_one_of
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

SIDES = (3, 5, 7, 9)
STRIDES = (1, 2)
_TILE = 8  # pixels of the output along each side of a block's tile
_CHANNELS = 64  # of a block


def convolve_depthwise_int8(
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
    stride: int = 1,
    padding: int | None = None,
    activation: str = "none",
) -> Tensor:
    """activation(convolution · scales + bias) + residual, per channel, quantized or float by
    `into`.

    `x` is (batch, channels, height, width) in uint8 or int8, preferably channels last, as the
    output is; `weight` is (channels, 1, side, side) in int8. `scales` are the scale of x times
    those of the weight, one per channel. `sums` of each channel's weights save computing them where
    x has a zero point. The default `padding` is half the kernel's side.
    """
    options: dict[str, Any] = {
        "zero": zero,
        "sums": sums,
        "residual_params": residual_params,
        "into": into,
        "activation": activation,
    }
    border = weight.shape[-1] // 2 if padding is None else padding
    output: Tensor = torch.ops.paifuser.depthwise_int8(
        *operator_arguments(x, weight, scales, bias, residual, **options), stride, border
    )
    return output


def float_output(inputs: Int8Inputs) -> Tensor:
    """The output before rounding, in the dtype of the scales; its integer sums are exact."""
    exact = exact_dtype(inputs.weight[0].numel())
    x, weight = inputs.x.to(exact) - inputs.zero, inputs.weight.to(exact)
    sums = F.conv2d(x, weight, None, inputs.stride, inputs.padding, groups=x.shape[1]).to(
        inputs.scales.dtype
    )
    output = sums * inputs.scales[:, None, None]
    return apply_activation(
        inputs, output if inputs.bias is None else output + inputs.bias[:, None, None]
    ) + float_residual(inputs)


def compose(*arguments: Any) -> Tensor:
    """The reference, composed of torch operators."""
    inputs = Int8Inputs(*arguments)
    return rounded(inputs, float_output(inputs)).contiguous(memory_format=torch.channels_last)


def empty(*arguments: Any) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    inputs = Int8Inputs(*arguments)
    x, side = inputs.x, inputs.weight.shape[-1]
    if x.dim() != 4:
        raise KernelError(
            "depthwise_int8 takes images as (batch, channels, height, width), not "
            f"{tuple(x.shape)}."
        )
    batch, channels, height, width = x.shape
    if tuple(inputs.weight.shape) != (channels, 1, side, side):
        raise KernelError(
            f"depthwise_int8 takes a square weight for each of {channels} channels, not "
            f"{tuple(inputs.weight.shape)}."
        )
    if inputs.stride < 1 or inputs.padding < 0:
        raise KernelError(
            f"depthwise_int8 takes a stride from 1 and a padding from 0, not {inputs.stride} and "
            f"{inputs.padding}."
        )
    shape = (
        batch,
        channels,
        *((length + 2 * inputs.padding - side) // inputs.stride + 1 for length in (height, width)),
    )
    if shape[2] < 1 or shape[3] < 1:
        raise KernelError(
            f"depthwise_int8 cannot apply a kernel of side {side} to images of {height} × "
            f"{width}; pad them."
        )
    check("depthwise_int8", inputs, channels, shape)
    return torch.empty(
        shape, dtype=inputs.dtype, device=x.device, memory_format=torch.channels_last
    )


def plan(out: Tensor, *arguments: Any) -> Launch:
    """A block per 8 × 8 pixels of 64 channels, half a warp per row of them, a lane per four
    channels.
    """
    inputs = Int8Inputs(*arguments)
    batch, channels, height, width = inputs.x.shape
    side, is_last = inputs.weight.shape[-1], inputs.residual is None
    require_one_of("a side of", side, SIDES)
    require_one_of("a stride of", inputs.stride, STRIDES)
    if channels % WIDTH:
        raise DeclinedError(f"it takes multiples of sixteen channels, not {channels}")
    residual = (
        None
        if inputs.residual is None
        else inputs.residual.contiguous(memory_format=torch.channels_last)
    )
    return Launch(
        kernel="depthwise_int8",
        entry=int8_entry("depthwise_int8", inputs, side, inputs.stride, is_last=is_last),
        grid=grid_of(
            -(-out.shape[3] // _TILE), -(-out.shape[2] // _TILE), batch * -(-channels // _CHANNELS)
        ),
        block=(_CHANNELS // 4 * _TILE, 1, 1),
        shared_bytes=_shared_bytes(side, inputs.stride),
        arguments=(
            aligned(inputs.x.contiguous(memory_format=torch.channels_last)),
            inputs.weight.contiguous(),
            *channel_arguments(inputs),
            None if residual is None else aligned(residual),
            out,
            *(
                np.int32(number)
                for number in (channels, height, width, out.shape[2], out.shape[3], inputs.padding)
            ),
            *scalar_arguments(inputs, is_last=is_last),
        ),
    )


def _shared_bytes(side: int, stride: int) -> int:
    """The size of `DepthwiseInt8::Tile` in the source: the pixels that a tile reads and the taps of
    a line, both in whole words.
    """
    reach = (_TILE - 1) * stride + side
    return (reach * -(-reach // 4) + side * -(-side // 4)) * 4 * _CHANNELS


KERNEL = Kernel(
    name="depthwise_int8",
    schema=f"({SCHEMA}, int stride, int padding) -> Tensor",
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "depthwise_int8<uint8, uint8, 3, 1, NONE>": Budget(registers=64, instructions=1470),
        "depthwise_int8<int8, int8, 5, 2, HARDSWISH>": Budget(registers=72, instructions=2000),
        "depthwise_int8<uint8, bfloat16, 7, 1, NONE>": Budget(registers=64, instructions=1290),
        "depthwise_int8<int8, float, 9, 2, SILU>": Budget(registers=72, instructions=1600),
    },
    is_differentiable=False,
)
