"""Depthwise convolution with its bias, activation and residual, channels last, in one pass over
memory.

Never in memory: the convolution before its bias, its activation and its sum with the residual. A
batch-norm is folded into weight and bias beforehand, exactly, by the step `fold`.

Floor for 64 images of 96 channels at 56² in bf16: 38.5 MB in and as much out, 17.9 µs on an H200 at
4.3 TB/s; its sums, in fp32, take 5, 14, 28 and 47 µs for kernels of 3, 5, 7 and 9: from 7 on it is
bound by arithmetic.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .activation import ACTIVATIONS, check_activation
from .kernel import Budget, Kernel
from .launch import TYPES, DeclinedError, Launch, aligned, grid_of, require_one_of, type_of
from .tile_choice import choose_tile, describe_problem, rounded_size
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


def compose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: int,
    padding: int,
    activation: str,
) -> Tensor:
    """The reference, composed of torch operators."""
    output = ACTIVATIONS[activation](F.conv2d(x, weight, bias, stride, padding, groups=x.shape[1]))
    output = output if residual is None else output + residual
    return output.contiguous(memory_format=torch.channels_last)


def empty(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: int,
    padding: int,
    activation: str,
) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    if x.dim() != 4:
        raise KernelError(
            f"depthwise takes images as (batch, channels, height, width), not {tuple(x.shape)}."
        )
    batch, channels, height, width = x.shape
    side = weight.shape[-1]
    if tuple(weight.shape) != (channels, 1, side, side):
        raise KernelError(
            f"depthwise takes a square weight for each of {channels} channels, not "
            f"{tuple(weight.shape)}."
        )
    check_activation("depthwise", activation)
    if stride < 1 or padding < 0:
        raise KernelError(
            f"depthwise takes a stride from 1 and a padding from 0, not {stride} and {padding}."
        )
    shape = (
        batch,
        channels,
        *((length + 2 * padding - side) // stride + 1 for length in (height, width)),
    )
    if shape[2] < 1 or shape[3] < 1:
        raise KernelError(
            f"depthwise cannot apply a kernel of side {side} to images of {height} × {width}; pad "
            "them."
        )
    if bias is not None and tuple(bias.shape) != (channels,):
        raise KernelError(
            f"depthwise takes a bias for each of {channels} channels, not {tuple(bias.shape)}."
        )
    if residual is not None and tuple(residual.shape) != shape:
        raise KernelError(
            f"depthwise adds a residual of {shape}, the shape of its output, not "
            f"{tuple(residual.shape)}."
        )
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def problem(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: int,
    padding: int,
    activation: str,
) -> str:
    """What decides the tile: the approximate number of images, the sizes, and what is fused."""
    batch, channels, height, width = x.shape
    side = weight.shape[-1]
    return describe_problem(
        TYPES.get(x.dtype),
        f"images={rounded_size(batch)}",
        f"channels={channels}",
        f"size={height}x{width}",
        f"side={side}",
        f"stride={stride}",
        f"padding={padding}",
        activation,
        "residual" if residual is not None else None,
    )


def plan(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: int,
    padding: int,
    activation: str,
    *,
    tile: Tile | None = None,
) -> Launch:
    """A block per rectangle of pixels of some channels, a lane per two channels of some of its
    lines.
    """
    batch, channels, height, width = x.shape
    side = weight.shape[-1]
    kind = type_of(x, weight, bias, residual)
    require_one_of("a side of", side, SIDES)
    require_one_of("a stride of", stride, STRIDES)
    if channels % 8:
        raise DeclinedError(f"it takes multiples of eight channels, not {channels}")
    chosen = choose_tile(
        "depthwise",
        TILES,
        tile,
        problem(x, weight, bias, residual, stride, padding, activation),
        out.device,
    )
    parts = batch * -(-channels // chosen["channels"])
    template = f"{kind}, {side}, {stride}, {activation.upper()}, {TILES.arguments(chosen)}"
    return Launch(
        kernel="depthwise",
        entry=f"depthwise<{template}>",
        grid=grid_of(
            -(-out.shape[3] // chosen["width"]), -(-out.shape[2] // chosen["height"]), parts
        ),
        block=(_threads(chosen), 1, 1),
        shared_bytes=_shared_bytes(chosen, side, stride),
        arguments=(
            aligned(x.contiguous(memory_format=torch.channels_last)),
            weight.contiguous(),
            None if bias is None else aligned(bias.contiguous()),
            None
            if residual is None
            else aligned(residual.contiguous(memory_format=torch.channels_last)),
            out,
            *(
                np.int32(number)
                for number in (channels, height, width, out.shape[2], out.shape[3], padding)
            ),
        ),
    )


def _threads(tile: Tile) -> int:
    return tile["height"] // tile["lines"] * tile["channels"] // 2


def _shared_bytes(tile: Tile, side: int, stride: int) -> int:
    """The size of `Depthwise::Tile` in the source: the pixels that a tile reads, and the weights in
    fp32 with a padded pitch.
    """
    across, down = ((tile[name] - 1) * stride + side for name in ("width", "height"))
    plain = across * down * tile["channels"] * 2 + side**2 * (tile["channels"] + 2) * 4
    return -(-plain // 16) * 16


def _is_valid(tile: Tile) -> bool:
    """Whether a block has whole warps and not too many, sums fit a lane's registers, and the pixels
    of the largest kernel fit shared memory.
    """
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
    schema=(
        "(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int stride, int padding, str "
        "activation) -> Tensor"
    ),
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "depthwise<bfloat16, 3, 1, RELU6, 8, 8, 64, 1>": Budget(registers=40, instructions=780),
        "depthwise<float16, 5, 2, HARDSWISH, 8, 8, 64, 1>": Budget(registers=40, instructions=960),
        "depthwise<bfloat16, 7, 1, NONE, 8, 8, 64, 1>": Budget(registers=40, instructions=780),
        "depthwise<bfloat16, 9, 2, SILU, 8, 8, 64, 1>": Budget(registers=56, instructions=1030),
    },
    tiles=TILES,
    problem=problem,
)
