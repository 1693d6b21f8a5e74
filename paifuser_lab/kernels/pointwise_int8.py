"""A linear layer, or a 1×1 convolution, on whole numbers of eight bits, with its bias, residual and
activation in one pass.

Never in memory: the whole sums, which are four times as many bytes as the answer, and all that
happens to them until they are rounded. The activation comes last, as in `pointwise`.

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
from .launch import DeclinedError, Launch, aligned, countable, grid_of
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
    of_residual: Steps | None = None,
    into: Steps | torch.dtype = torch.bfloat16,
    activation: str = "none",
) -> Tensor:
    """activation((x - zero) · weightᵀ · scales + bias + residual), as steps or as numbers: `into`
    says which.

    `x` is (…, in) in uint8 or int8, `weight` (out, in) in int8. `scales` are what a product is
    worth in each column: the scale of x times those of the weight. `sums` of each row of weight
    spare adding them up where x has a zero point.
    """
    rest: dict[str, Any] = {
        "zero": zero,
        "sums": sums,
        "of_residual": of_residual,
        "into": into,
        "activation": activation,
    }
    made: Tensor = torch.ops.paifuser.pointwise_int8(
        *given_by(x, weight, scales, bias, residual, **rest)
    )
    return made


def numbers(given: Given) -> Tensor:
    """The answer before it is rounded, in the type of the scales; the sums in it are exact."""
    exact = exact_in(given.weight.shape[1])
    whole = F.linear(given.x.to(exact) - given.zero, given.weight.to(exact)).to(given.scales.dtype)
    made = whole * given.scales + residual_of(given)
    return activated(given, made if given.bias is None else made + given.bias)


def compose(*inputs: Any) -> Tensor:
    """The same, composed in torch."""
    given = Given(*inputs)
    return rounded(given, numbers(given)).contiguous()


def empty(*inputs: Any) -> Tensor:
    """Room for the answer, once the inputs are found to fit together."""
    given = Given(*inputs)
    x, weight = given.x, given.weight
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise KernelError(
            f"pointwise_int8 takes (…, in) and a weight of (out, in), not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}."
        )
    shape = (*x.shape[:-1], weight.shape[0])
    check("pointwise_int8", given, weight.shape[0], shape)
    return x.new_empty(shape, dtype=given.dtype)


def plan(out: Tensor, *inputs: Any) -> Launch:
    """A block for 128 rows of 64 or 128 columns, a warp for 32 rows of half of them."""
    given = Given(*inputs)
    columns, depth = given.weight.shape
    if columns % WIDTH or depth % WIDTH or not depth:
        raise DeclinedError(f"it takes columns in sixteens, not {depth} in and {columns} out")
    rows = countable(math.prod(given.x.shape[:-1]))
    wide = 64 if columns <= 64 else 128
    return Launch(
        kernel="pointwise_int8",
        entry=entry_of("pointwise_int8", given, wide, is_last=True),
        grid=grid_of(-(-rows // _ROWS) * -(-columns // wide), 1, 1),
        block=(_THREADS, 1, 1),
        shared_bytes=_shared_bytes(wide),
        arguments=(
            aligned(given.x.contiguous()),
            aligned(given.weight.contiguous()),
            *columns_of(given),
            None if given.residual is None else aligned(given.residual.contiguous()),
            out,
            *(np.int32(one) for one in (rows, depth, columns)),
            *numbers_of(given, is_last=True),
        ),
    )


def _shared_bytes(wide: int) -> int:
    """Of `PointwiseInt8::Tile` in the source: the ring of x and weight, the tile of the answer,
    three numbers a column.
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
