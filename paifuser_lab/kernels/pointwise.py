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
    require_shape,
    rounded_size,
    type_of,
)
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
    """activation(x · weightᵀ + bias + residual): a linear layer; `weight` is (out, in)."""
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


@dataclass(frozen=True)
class Inputs:
    """The operator's arguments."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    residual: Tensor | None
    activation: str


def compute(inputs: Inputs) -> Tensor:
    """The reference, composed of torch operators."""
    output = F.linear(inputs.x, inputs.weight, inputs.bias)
    output = output if inputs.residual is None else output + inputs.residual
    return ACTIVATIONS[inputs.activation](output).contiguous()


def allocate(inputs: Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    shape = output_shape("pointwise", inputs.x, inputs.weight)
    require_shape("pointwise", "a bias", inputs.bias, shape[-1:])
    require_shape("pointwise", "a residual", inputs.residual, shape)
    check_activation("pointwise", inputs.activation)
    return inputs.x.new_empty(shape)


def output_shape(kernel: str, x: Tensor, weight: Tensor) -> tuple[int, ...]:
    """The shape of a linear layer's output; raises if its inputs do not fit together."""
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise KernelError(
            f"{kernel} takes (…, in) and a weight of (out, in), not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}."
        )
    return (*x.shape[:-1], weight.shape[0])


def words(inputs: Inputs) -> Iterable[str]:
    """What decides the tile: the approximate number of rows, the widths, and what is fused."""
    columns, depth = inputs.weight.shape
    return (
        TYPES.get(inputs.x.dtype, ""),
        f"rows={rounded_size(math.prod(inputs.x.shape[:-1]))}",
        f"depth={depth}",
        f"columns={columns}",
        inputs.activation,
        "" if inputs.residual is None else "residual",
    )


def cut(out: Tensor, inputs: Inputs, tile: Tile) -> Cut:
    """A block per tile of rows and columns, divided among its eight warps."""
    columns, depth = inputs.weight.shape
    tensors = (inputs.x, inputs.weight, inputs.bias, inputs.residual)
    kind = type_of(*tensors)
    require_multiples("columns", 8, depth, columns)
    rows = math.prod(inputs.x.shape[:-1])
    return Cut(
        template=(kind, inputs.activation.upper()),
        grid=(-(-rows // tile["rows"]) * -(-columns // tile["columns"]), 1, 1),
        threads=_THREADS,
        shared_bytes=_shared_bytes(tile),
        tensors=tensors,
        numbers=(rows, depth, columns),
    )


def default_tile(inputs: Inputs) -> Tile:
    """Blocks as narrow as a narrow output."""
    is_narrow = inputs.weight.shape[0] <= _NARROW
    return {**TILES.default, "columns": _NARROW} if is_narrow else TILES.default


def _shared_bytes(tile: Tile) -> int:
    """The size of `Pointwise::Tile` in the source: x and weight, the output, the bias."""
    rows, columns = tile["rows"], tile["columns"]
    return (
        2 * (tile["stages"] * (rows + columns) * (tile["depth"] + 8) + rows * (columns + 8))
        + 4 * columns
    )


def _is_valid(tile: Tile) -> bool:
    """Whether warps have whole matrices, and blocks are as many as fit, or one less."""
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
    inputs=Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    words=words,
    default_tile=default_tile,
    budgets={
        "pointwise<bfloat16, RELU, 128, 128, 32, 3, 4, 2>": Budget(registers=128, instructions=960),
        "pointwise<float16, GELU, 128, 64, 32, 3, 4, 2>": Budget(registers=96, instructions=1060),
        "pointwise<bfloat16, NONE, 128, 64, 32, 3, 4, 2>": Budget(registers=96, instructions=540),
    },
    tiles=TILES,
)
