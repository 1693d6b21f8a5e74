"""Depthwise convolution on int8, channels last, with its bias, activation and residual in one pass.

Never in memory: the int32 sums, and what is computed from them before rounding. The residual comes
last, as in `depthwise`.

Floor for 64 images of 96 channels at 56²: 19.3 MB in and as much out, 9 µs on an H200 at 4.3 TB/s,
half of what bf16 needs. Four taps of a line are one instruction, so that a kernel of 3, 5, 7 or 9
issues 4.5, 10, 17.5 or 27 of them per element of the output, in place of 9, 25, 49 or 81
multiply-adds, each of which takes twice as long: 5, 11, 20 and 31 µs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .depthwise import SIDES, STRIDES, channels_last, output_shape
from .kernel import Budget, Cut, Kernel, require_multiples, require_one_of
from .quantized import (
    WIDTH,
    Int8Inputs,
    QuantParams,
    check,
    columns,
    operator_arguments,
    scalars,
    template,
)
from .tiles import Tile

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
    arguments = operator_arguments(
        x, weight, scales, bias, residual, zero, sums, residual_params, into, activation
    )
    border = weight.shape[-1] // 2 if padding is None else padding
    output: Tensor = torch.ops.paifuser.depthwise_int8(*arguments, stride, border)
    return output


@dataclass(frozen=True)
class Inputs(Int8Inputs):
    """The operator's arguments."""

    stride: int
    padding: int


def compute(inputs: Inputs) -> Tensor:
    """The reference, composed of torch operators; its integer sums are exact."""
    groups = inputs.x.shape[1]
    sums = inputs.sum_exactly(
        lambda x, weight: F.conv2d(x, weight, None, inputs.stride, inputs.padding, groups=groups)
    )
    output = sums * inputs.scales[:, None, None]
    output = output if inputs.bias is None else output + inputs.bias[:, None, None]
    output = inputs.activated(output) + inputs.float_residual()
    return inputs.rounded(output).contiguous(memory_format=torch.channels_last)


def allocate(inputs: Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    x = inputs.x
    shape = output_shape("depthwise_int8", x, inputs.weight, inputs.stride, inputs.padding)
    check("depthwise_int8", inputs, shape, channels=shape[1])
    return torch.empty(
        shape, dtype=inputs.dtype, device=x.device, memory_format=torch.channels_last
    )


def cut(out: Tensor, inputs: Inputs, tile: Tile) -> Cut:
    """A block per 8 × 8 pixels of 64 channels, half a warp per row, a lane per four channels."""
    batch, channels, height, width = inputs.x.shape
    down, across = out.shape[2:]
    side, stride, is_last = inputs.weight.shape[-1], inputs.stride, inputs.residual is None
    require_one_of("a side of", side, SIDES)
    require_one_of("a stride of", stride, STRIDES)
    require_multiples("channels", WIDTH, channels)
    return Cut(
        template=template(inputs, side, stride, is_last=is_last),
        grid=(-(-across // _TILE), -(-down // _TILE), batch * -(-channels // _CHANNELS)),
        threads=_CHANNELS // 4 * _TILE,
        shared_bytes=_shared_bytes(side, stride),
        tensors=(
            channels_last(inputs.x),
            inputs.weight,
            *columns(inputs),
            channels_last(inputs.residual),
        ),
        numbers=(
            *(channels, height, width, down, across, inputs.padding),
            *scalars(inputs, is_last=is_last),
        ),
    )


def _shared_bytes(side: int, stride: int) -> int:
    """The size of `DepthwiseInt8::Tile` in the source: pixels and taps, both in whole words."""
    reach = (_TILE - 1) * stride + side
    return (reach * -(-reach // 4) + side * -(-side // 4)) * 4 * _CHANNELS


KERNEL = Kernel(
    name="depthwise_int8",
    inputs=Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    budgets={
        "depthwise_int8<uint8, uint8, 3, 1, NONE>": Budget(registers=64, instructions=1470),
        "depthwise_int8<int8, int8, 5, 2, HARDSWISH>": Budget(registers=72, instructions=2000),
        "depthwise_int8<uint8, bfloat16, 7, 1, NONE>": Budget(registers=64, instructions=1290),
        "depthwise_int8<int8, float, 9, 2, SILU>": Budget(registers=72, instructions=1600),
    },
    is_differentiable=False,
)
