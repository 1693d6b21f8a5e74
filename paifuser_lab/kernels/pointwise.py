"""A linear layer, or a 1×1 convolution, with its bias, residual and activation, in one pass over
memory.

Never in memory: the product before its bias, its sum with the residual, and that sum before its
activation. Unlike in `convolve_depthwise`, the activation comes last, as at the end of a residual
network's block; without a residual, both orders are the same.

Floor for 64 images of 56² from 64 to 256 channels with a residual, in bf16: 25.7 MB in, 102.8 MB of
residual, 102.8 MB out, 53.8 µs on an H200 at 4.3 TB/s; 6.6 billion operations, 8.3 µs at 790
TFLOP/s. It is meant for such layers: few input channels, bound by memory. From about 500 input
channels on the product itself dominates, and cuBLAS computes it faster than `mma.sync` can.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .activation import ACTIVATIONS, check_activation
from .kernel import Budget, Kernel
from .launch import TYPES, DeclinedError, Launch, aligned, checked_count, grid_of, type_of
from .tile_choice import choose_tile, describe_problem, rounded_size
from .tiles import REGISTERS, RESERVED_BYTES, SHARED_BYTES, Tile, Tiles

_THREADS = 256
_WARPS = _THREADS // 32
_NARROW = 64  # output columns up to which a block has that many by default
_MAX_BLOCKS = 3  # per multiprocessor, that are worth fewer registers
_MAX_PREFETCH = 192  # elements of a row in all stages, since it is for few input channels


def project(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    activation: str = "none",
) -> Tensor:
    """activation(x · weightᵀ + bias + residual): a linear layer and what follows it; `weight` is
    (out, in).
    """
    output: Tensor = torch.ops.paifuser.pointwise(x, weight, bias, residual, activation)
    return output


def convolve_pointwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    activation: str = "none",
) -> Tensor:
    """The same for images: `x` is (batch, channels, height, width), preferably channels last, as
    the output is; `weight` is (out, in, 1, 1).
    """
    if x.dim() != 4 or weight.dim() != 4 or weight.shape[2:] != (1, 1):
        raise KernelError(
            "A 1×1 convolution takes four dimensions of images and of weight, not "
            f"{tuple(x.shape)} and {tuple(weight.shape)}."
        )
    moved = None if residual is None else residual.movedim(1, -1)
    output = project(x.movedim(1, -1), weight.flatten(1), bias, moved, activation=activation)
    return output.movedim(-1, 1)


def compose(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """The reference, composed of torch operators."""
    product = F.linear(x, weight, bias)
    return ACTIVATIONS[activation](product if residual is None else product + residual).contiguous()


def empty(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise KernelError(
            f"pointwise takes (…, in) and a weight of (out, in), not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}."
        )
    columns = weight.shape[0]
    shape = (*x.shape[:-1], columns)
    if bias is not None and tuple(bias.shape) != (columns,):
        raise KernelError(
            f"pointwise takes a bias for each of {columns} output columns, not {tuple(bias.shape)}."
        )
    if residual is not None and tuple(residual.shape) != shape:
        raise KernelError(
            f"pointwise adds a residual of {shape}, the shape of its output, not "
            f"{tuple(residual.shape)}."
        )
    check_activation("pointwise", activation)
    return x.new_empty(shape)


def problem(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> str:
    """What decides the tile: the approximate number of rows, the widths, and what is fused."""
    columns, depth = weight.shape
    rows = f"rows={rounded_size(math.prod(x.shape[:-1]))}"
    return describe_problem(
        TYPES.get(x.dtype),
        rows,
        f"depth={depth}",
        f"columns={columns}",
        activation,
        "residual" if residual is not None else None,
    )


def plan(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
    *,
    tile: Tile | None = None,
) -> Launch:
    """A block per tile of rows and columns, divided among its eight warps."""
    columns, depth = weight.shape
    kind = type_of(x, weight, bias, residual)
    if columns % 8 or depth % 8 or not depth:
        raise DeclinedError(
            f"it takes multiples of eight columns, not {depth} in and {columns} out"
        )
    rows = checked_count(math.prod(x.shape[:-1]))
    default = TILES.default if columns > _NARROW else {**TILES.default, "columns": _NARROW}
    chosen = choose_tile(
        "pointwise",
        TILES,
        tile,
        problem(x, weight, bias, residual, activation),
        out.device,
        default,
    )
    return Launch(
        kernel="pointwise",
        entry=f"pointwise<{kind}, {activation.upper()}, {TILES.arguments(chosen)}>",
        grid=grid_of(-(-rows // chosen["rows"]) * -(-columns // chosen["columns"]), 1, 1),
        block=(_THREADS, 1, 1),
        shared_bytes=_shared_bytes(chosen),
        arguments=(
            aligned(x.contiguous()),
            aligned(weight.contiguous()),
            None if bias is None else aligned(bias.contiguous()),
            None if residual is None else aligned(residual.contiguous()),
            out,
            *(np.int32(number) for number in (rows, depth, columns)),
        ),
    )


def _shared_bytes(tile: Tile) -> int:
    """The size of `Pointwise::Tile` in the source: the ring of x and weight, the tile of the
    output, the bias in fp32.
    """
    rows, columns = tile["rows"], tile["columns"]
    return (
        2 * (tile["stages"] * (rows + columns) * (tile["depth"] + 8) + rows * (columns + 8))
        + 4 * columns
    )


def _is_valid(tile: Tile) -> bool:
    """Whether every warp has whole matrices, and the blocks are as many as registers, half of them
    sums, have room for, or one less.
    """
    is_whole = (
        tile["rows"] % (16 * tile["down"]) == 0
        and tile["columns"] % (16 * (_WARPS // tile["down"])) == 0
    )
    most = min(_MAX_BLOCKS, REGISTERS // 2 // (tile["rows"] * tile["columns"]))
    has_memory = tile["blocks"] * (_shared_bytes(tile) + RESERVED_BYTES) <= SHARED_BYTES
    return (
        is_whole
        and most - 1 <= tile["blocks"] <= most
        and has_memory
        and tile["stages"] * tile["depth"] <= _MAX_PREFETCH
    )


TILES = Tiles(
    choices={
        "rows": (64, 128, 256),
        "columns": (64, 128, 256),
        "depth": (32, 64),  # elements of x and of weight per stage
        "stages": (2, 3, 4),
        "down": (2, 4),  # rows of warps in which the eight are arranged
        "blocks": (1, 2, 3),  # per multiprocessor, by limiting registers
    },
    default={"rows": 128, "columns": 128, "depth": 32, "stages": 3, "down": 4, "blocks": 2},
    is_valid=_is_valid,
)


KERNEL = Kernel(
    name="pointwise",
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str activation) -> Tensor",
    compose=compose,
    empty=empty,
    plan=plan,
    budgets={
        "pointwise<bfloat16, RELU, 128, 128, 32, 3, 4, 2>": Budget(registers=128, instructions=960),
        "pointwise<float16, GELU, 128, 64, 32, 3, 4, 2>": Budget(registers=96, instructions=1060),
        "pointwise<bfloat16, NONE, 128, 64, 32, 3, 4, 2>": Budget(registers=96, instructions=540),
    },
    tiles=TILES,
    problem=problem,
)
