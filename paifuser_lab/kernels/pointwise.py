"""A linear layer, or a 1×1 convolution, with its bias, residual and activation, in one pass over
memory.

Never in memory: the product before its bias, its sum with the residual, and that sum before its
activation. Unlike `convolve_depthwise`, the activation comes last, as at the end of a residual
network's block; without one, both orders are one.

Floor for 64 images of 56² from 64 to 256 channels with a residual, in bf16: 25.7 MB in, 102.8 MB of
residual, 102.8 MB out,
53.8 µs on an H200 at 4.3 TB/s; 6.6 billion operations, 8.3 µs at 790 TFLOP/s. It is for that: few
numbers deep, bound by
memory. From about 500 deep on the product itself is what counts, and cuBLAS makes it better than
`mma.sync` can.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import KernelError
from .activation import ACTIVATIONS, known
from .kernel import Budget, Kernel
from .launch import TYPES, DeclinedError, Launch, aligned, countable, grid_of, type_of
from .tile_choice import choose_tile, describe_problem, rounded_size
from .tiles import REGISTERS, RESERVED_BYTES, SHARED_BYTES, Tile, Tiles

_THREADS = 256
_WARPS = _THREADS // 32
_NARROW = 64  # columns, up to which a block has no more by default
_MOST_BLOCKS = 3  # of a multiprocessor, that are worth fewer registers
_MOST_AHEAD = 192  # numbers of a row in all stages: it is for few numbers deep


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
    """The same for images: `x` is (batch, channels, height, width), best channels last, as the
    output is; `weight` (out, in, 1, 1).
    """
    if x.dim() != 4 or weight.dim() != 4 or weight.shape[2:] != (1, 1):
        raise KernelError(
            "A 1×1 convolution takes four dimensions of images and of weight, not "
            f"{tuple(x.shape)} and {tuple(weight.shape)}."
        )
    more = None if residual is None else residual.movedim(1, -1)
    return project(x.movedim(1, -1), weight.flatten(1), bias, more, activation=activation).movedim(
        -1, 1
    )


def compose(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """The same, composed of torch operators."""
    product = F.linear(x, weight, bias)
    return ACTIVATIONS[activation](product if residual is None else product + residual).contiguous()


def empty(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> Tensor:
    """The output's allocation, after a check that the inputs fit together."""
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise KernelError(
            f"pointwise takes (…, in) and a weight of (out, in), not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}."
        )
    columns = weight.shape[0]
    shape = (*x.shape[:-1], columns)
    if bias is not None and tuple(bias.shape) != (columns,):
        raise KernelError(
            f"pointwise takes a bias for each of {columns} columns, not {tuple(bias.shape)}."
        )
    if residual is not None and tuple(residual.shape) != shape:
        raise KernelError(
            f"pointwise adds a residual of {shape}, the shape of its output, not "
            f"{tuple(residual.shape)}."
        )
    known("pointwise", activation)
    return x.new_empty(shape)


def problem(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str
) -> str:
    """What decides the tile: about how many rows, how deep and how wide, and what follows."""
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
    """A block for some rows of some columns, eight warps of it for as many parts of them."""
    columns, depth = weight.shape
    kind = type_of(x, weight, bias, residual)
    if columns % 8 or depth % 8 or not depth:
        raise DeclinedError(f"it takes columns in eights, not {depth} in and {columns} out")
    rows = countable(math.prod(x.shape[:-1]))
    default = TILES.default if columns > _NARROW else {**TILES.default, "columns": _NARROW}
    cut = choose_tile(
        "pointwise",
        TILES,
        tile,
        problem(x, weight, bias, residual, activation),
        out.device,
        default,
    )
    return Launch(
        kernel="pointwise",
        entry=f"pointwise<{kind}, {activation.upper()}, {TILES.arguments(cut)}>",
        grid=grid_of(-(-rows // cut["rows"]) * -(-columns // cut["columns"]), 1, 1),
        block=(_THREADS, 1, 1),
        shared_bytes=_shared_bytes(cut),
        arguments=(
            aligned(x.contiguous()),
            aligned(weight.contiguous()),
            None if bias is None else aligned(bias.contiguous()),
            None if residual is None else aligned(residual.contiguous()),
            out,
            *(np.int32(one) for one in (rows, depth, columns)),
        ),
    )


def _shared_bytes(tile: Tile) -> int:
    """Of `Pointwise::Tile` in the source: the ring of x and weight, the tile of the output, the
    bias in fp32.
    """
    rows, columns = tile["rows"], tile["columns"]
    return (
        2 * (tile["stages"] * (rows + columns) * (tile["depth"] + 8) + rows * (columns + 8))
        + 4 * columns
    )


def _is_sound(tile: Tile) -> bool:
    """Whole matrices for every warp, and as many blocks as registers, half of them sums, have room
    for, or one less.
    """
    is_whole = (
        tile["rows"] % (16 * tile["down"]) == 0
        and tile["columns"] % (16 * (_WARPS // tile["down"])) == 0
    )
    most = min(_MOST_BLOCKS, REGISTERS // 2 // (tile["rows"] * tile["columns"]))
    has_memory = tile["blocks"] * (_shared_bytes(tile) + RESERVED_BYTES) <= SHARED_BYTES
    return (
        is_whole
        and most - 1 <= tile["blocks"] <= most
        and has_memory
        and tile["stages"] * tile["depth"] <= _MOST_AHEAD
    )


TILES = Tiles(
    choices={
        "rows": (64, 128, 256),
        "columns": (64, 128, 256),
        "depth": (32, 64),  # numbers of x and of weight that come at once
        "stages": (2, 3, 4),
        "down": (2, 4),  # warps of eight that stand one below the other
        "blocks": (1, 2, 3),  # that a multiprocessor keeps registers for
    },
    default={"rows": 128, "columns": 128, "depth": 32, "stages": 3, "down": 4, "blocks": 2},
    is_sound=_is_sound,
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
