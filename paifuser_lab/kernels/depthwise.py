"""Depthwise convolution with its bias, activation and residual, channels last, in one pass over
memory.

Never in memory: the convolution before its bias, its activation and its sum with the residual. A
batch-norm is folded into weight and bias beforehand, exactly, by the step `fold`.

Floor for 64 images of 96 channels at 56² in bf16: 38.5 MB in and as much out, 17.9 µs on an H200 at
4.3 TB/s; its sums, in fp32, take 5, 14, 28 and 47 µs for kernels of 3, 5, 7 and 9: from 7 on it is
bound by arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .activation import ACTIVATIONS, check_activation
from .kernel import (
    TYPES,
    Budget,
    Cut,
    Kernel,
    require_multiples,
    require_one_of,
    require_shape,
    rounded_size,
    type_of,
)
from .tiles import RESERVED_BYTES, SHARED_BYTES, Tile, Tiles

SIDES = (3, 5, 7, 9)
STRIDES = (1, 2)
_MIN_THREADS, _MAX_THREADS = 64, 512  # of a block
_MAX_PIXELS = 32  # of a lane: it holds two sums for each


def convolve_depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    stride: int = 1,
    padding: int | None = None,
    activation: str = "none",
) -> Tensor:
    """activation(convolution + bias) + residual, per channel; the default `padding` is half the
    kernel's side.

    `x` is (batch, channels, height, width), preferably channels last, as the output is; `weight` is
    (channels, 1, side, side).
    """
    border = weight.shape[-1] // 2 if padding is None else padding
    output: Tensor = torch.ops.paifuser.depthwise(
        x, weight, bias, residual, stride, border, activation
    )
    return output


@dataclass(frozen=True)
class Inputs:
    """The operator's arguments."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    residual: Tensor | None
    stride: int
    padding: int
    activation: str


def compute(inputs: Inputs) -> Tensor:
    """The reference, composed of torch operators."""
    x, weight, bias = inputs.x, inputs.weight, inputs.bias
    sums = F.conv2d(x, weight, bias, inputs.stride, inputs.padding, groups=x.shape[1])
    output = ACTIVATIONS[inputs.activation](sums)
    output = output if inputs.residual is None else output + inputs.residual
    return output.contiguous(memory_format=torch.channels_last)


def allocate(inputs: Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    x = inputs.x
    shape = output_shape("depthwise", x, inputs.weight, inputs.stride, inputs.padding)
    require_shape("depthwise", "a bias", inputs.bias, shape[1:2])
    require_shape("depthwise", "a residual", inputs.residual, shape)
    check_activation("depthwise", inputs.activation)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def output_shape(
    kernel: str, x: Tensor, weight: Tensor, stride: int, padding: int
) -> tuple[int, int, int, int]:
    """The shape of a depthwise convolution's output; raises if its inputs do not fit together."""
    if x.dim() != 4:
        raise KernelError(
            f"{kernel} takes images as (batch, channels, height, width), not {tuple(x.shape)}."
        )
    batch, channels, height, width = x.shape
    side = weight.shape[-1]
    require_shape(kernel, "a square weight", weight, (channels, 1, side, side))
    if stride < 1 or padding < 0:
        raise KernelError(
            f"{kernel} takes a stride from 1 and a padding from 0, not {stride} and {padding}."
        )
    down, across = ((length + 2 * padding - side) // stride + 1 for length in (height, width))
    if down < 1 or across < 1:
        raise KernelError(
            f"{kernel} cannot apply a kernel of side {side} to images of {height} × {width}; pad "
            "them."
        )
    return batch, channels, down, across


def words(inputs: Inputs) -> Iterable[str]:
    """What decides the tile: the approximate number of images, the sizes, and what is fused."""
    batch, channels, height, width = inputs.x.shape
    return (
        TYPES.get(inputs.x.dtype, ""),
        f"images={rounded_size(batch)}",
        f"channels={channels}",
        f"size={height}x{width}",
        f"side={inputs.weight.shape[-1]}",
        f"stride={inputs.stride}",
        f"padding={inputs.padding}",
        inputs.activation,
        "" if inputs.residual is None else "residual",
    )


def cut(out: Tensor, inputs: Inputs, tile: Tile) -> Cut:
    """A block per rectangle of pixels of some channels, a lane per two channels of its lines."""
    batch, channels, height, width = inputs.x.shape
    down, across = out.shape[2:]
    side, stride = inputs.weight.shape[-1], inputs.stride
    kind = type_of(inputs.x, inputs.weight, inputs.bias, inputs.residual)
    require_one_of("a side of", side, SIDES)
    require_one_of("a stride of", stride, STRIDES)
    require_multiples("channels", 8, channels)
    parts = batch * -(-channels // tile["channels"])
    return Cut(
        template=(kind, side, stride, inputs.activation.upper()),
        grid=(-(-across // tile["width"]), -(-down // tile["height"]), parts),
        threads=_threads(tile),
        shared_bytes=_shared_bytes(tile, side, stride),
        tensors=(
            channels_last(inputs.x),
            inputs.weight,
            inputs.bias,
            channels_last(inputs.residual),
        ),
        numbers=(channels, height, width, down, across, inputs.padding),
    )


def channels_last(images: Tensor | None) -> Tensor | None:
    """Images as (batch, height, width, channels)."""
    return None if images is None else images.permute(0, 2, 3, 1)


def _threads(tile: Tile) -> int:
    return tile["height"] // tile["lines"] * tile["channels"] // 2


def _shared_bytes(tile: Tile, side: int, stride: int) -> int:
    """The size of `Depthwise::Tile` in the source: its pixels, and weights in fp32."""
    across, down = ((tile[name] - 1) * stride + side for name in ("width", "height"))
    plain = across * down * tile["channels"] * 2 + side**2 * (tile["channels"] + 2) * 4
    return -(-plain // 16) * 16


def _is_valid(tile: Tile) -> bool:
    """Whether a block has whole warps, sums fit its registers, and pixels its shared memory."""
    has_threads = (
        tile["height"] % tile["lines"] == 0 and _MIN_THREADS <= _threads(tile) <= _MAX_THREADS
    )
    has_registers = tile["lines"] * tile["width"] <= _MAX_PIXELS
    return (
        has_threads
        and has_registers
        and _shared_bytes(tile, max(SIDES), max(STRIDES)) + RESERVED_BYTES <= SHARED_BYTES
    )


TILES = Tiles(
    choices={
        "width": (4, 8, 16),  # pixels of the output
        "height": (4, 8, 16),
        "channels": (32, 64),
        "lines": (1, 2),  # of the output, per lane
    },
    default={"width": 8, "height": 8, "channels": 64, "lines": 1},
    is_valid=_is_valid,
)


KERNEL = Kernel(
    name="depthwise",
    inputs=Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    words=words,
    budgets={
        "depthwise<bfloat16, 3, 1, RELU6, 8, 8, 64, 1>": Budget(registers=40, instructions=780),
        "depthwise<float16, 5, 2, HARDSWISH, 8, 8, 64, 1>": Budget(registers=40, instructions=960),
        "depthwise<bfloat16, 7, 1, NONE, 8, 8, 64, 1>": Budget(registers=40, instructions=780),
        "depthwise<bfloat16, 9, 2, SILU, 8, 8, 64, 1>": Budget(registers=56, instructions=1030),
    },
    tiles=TILES,
)
