"""Depthwise convolution on whole numbers of eight bits, channels last, with its bias, activation
and residual in one pass.

Never in memory: the whole sums, and all that happens to them until they are rounded. The residual
comes last, as in `depthwise`.

Floor for 64 images of 96 channels at 56²: 19.3 MB in and as much out, 9 µs on an H200 at 4.3 TB/s,
half of what bf16 needs. Four taps of a line are one instruction, so that a kernel of 3, 5, 7 or 9
issues 4.5, 10, 17.5 or 27 of them for each number of the answer, in place of 9, 25, 49 or 81
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
from .launch import DeclinedError, Launch, aligned, grid_of, one_of
from .steps import (
    SCHEMA,
    WIDTH,
    Given,
    Steps,
    activated,
    check,
    columns_of,
    entry_of,
    exact_in,
    given_by,
    numbers_of,
    residual_of,
    rounded,
)

SIDES = (3, 5, 7, 9)
STRIDES = (1, 2)
_TILE = 8  # pixels of the answer along each side of a block's tile
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
    of_residual: Steps | None = None,
    into: Steps | torch.dtype = torch.bfloat16,
    stride: int = 1,
    padding: int | None = None,
    activation: str = "none",
) -> Tensor:
    """activation(convolution · scales + bias) + residual, each channel by itself, as steps or as
    numbers: `into` says which.

    `x` is (batch, channels, height, width) in uint8 or int8, best channels last, as the answer is;
    `weight` is (channels, 1, side, side) in int8. `scales` are what a product is worth in each
    channel: the scale of x times those of the weight. `sums` of each channel's weights spare adding
    them up where x has a zero point. Images keep their middle unless `padding` says otherwise.
    """
    rest: dict[str, Any] = {
        "zero": zero,
        "sums": sums,
        "of_residual": of_residual,
        "into": into,
        "activation": activation,
    }
    middle = weight.shape[-1] // 2 if padding is None else padding
    made: Tensor = torch.ops.paifuser.depthwise_int8(
        *given_by(x, weight, scales, bias, residual, **rest), stride, middle
    )
    return made


def numbers(given: Given) -> Tensor:
    """The answer before it is rounded, in the type of the scales; the sums in it are exact."""
    exact = exact_in(given.weight[0].numel())
    x, weight = given.x.to(exact) - given.zero, given.weight.to(exact)
    whole = F.conv2d(x, weight, None, given.stride, given.padding, groups=x.shape[1]).to(
        given.scales.dtype
    )
    made = whole * given.scales[:, None, None]
    return activated(
        given, made if given.bias is None else made + given.bias[:, None, None]
    ) + residual_of(given)


def compose(*inputs: Any) -> Tensor:
    """The same, composed in torch."""
    given = Given(*inputs)
    return rounded(given, numbers(given)).contiguous(memory_format=torch.channels_last)


def empty(*inputs: Any) -> Tensor:
    """Room for the answer, once the inputs are found to fit together."""
    given = Given(*inputs)
    x, side = given.x, given.weight.shape[-1]
    if x.dim() != 4:
        raise KernelError(
            "depthwise_int8 takes images as (batch, channels, height, width), not "
            f"{tuple(x.shape)}."
        )
    batch, channels, height, width = x.shape
    if tuple(given.weight.shape) != (channels, 1, side, side):
        raise KernelError(
            f"depthwise_int8 takes a square weight for each of {channels} channels, not "
            f"{tuple(given.weight.shape)}."
        )
    if given.stride < 1 or given.padding < 0:
        raise KernelError(
            f"depthwise_int8 takes a stride from 1 and a padding from 0, not {given.stride} and "
            f"{given.padding}."
        )
    shape = (
        batch,
        channels,
        *((length + 2 * given.padding - side) // given.stride + 1 for length in (height, width)),
    )
    if shape[2] < 1 or shape[3] < 1:
        raise KernelError(
            f"depthwise_int8 finds no place for a kernel of {side} in images of {height} × "
            f"{width}; pad them."
        )
    check("depthwise_int8", given, channels, shape)
    return torch.empty(shape, dtype=given.dtype, device=x.device, memory_format=torch.channels_last)


def plan(out: Tensor, *inputs: Any) -> Launch:
    """A block for 8 × 8 pixels of 64 channels, half a warp for a row of them, a lane for four
    channels.
    """
    given = Given(*inputs)
    batch, channels, height, width = given.x.shape
    side, is_last = given.weight.shape[-1], given.residual is None
    one_of("a side of", side, SIDES)
    one_of("a stride of", given.stride, STRIDES)
    if channels % WIDTH:
        raise DeclinedError(f"it takes channels in sixteens, not {channels}")
    residual = (
        None
        if given.residual is None
        else given.residual.contiguous(memory_format=torch.channels_last)
    )
    return Launch(
        kernel="depthwise_int8",
        entry=entry_of("depthwise_int8", given, side, given.stride, is_last=is_last),
        grid=grid_of(
            -(-out.shape[3] // _TILE), -(-out.shape[2] // _TILE), batch * -(-channels // _CHANNELS)
        ),
        block=(_CHANNELS // 4 * _TILE, 1, 1),
        shared_bytes=_shared_bytes(side, given.stride),
        arguments=(
            aligned(given.x.contiguous(memory_format=torch.channels_last)),
            given.weight.contiguous(),
            *columns_of(given),
            None if residual is None else aligned(residual),
            out,
            *(
                np.int32(one)
                for one in (channels, height, width, out.shape[2], out.shape[3], given.padding)
            ),
            *numbers_of(given, is_last=is_last),
        ),
    )


def _shared_bytes(side: int, stride: int) -> int:
    """Of `DepthwiseInt8::Tile` in the source: the pixels that a tile looks at and the taps of a
    line, both in whole words.
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
