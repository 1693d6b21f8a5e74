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

import torch
from torch import Tensor
from torch.nn import functional as F

from .kernel import Budget, Cut, Kernel, require_multiples
from .pointwise import output_shape
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
    output: Tensor = torch.ops.paifuser.pointwise_int8(
        *operator_arguments(
            x, weight, scales, bias, residual, zero, sums, residual_params, into, activation
        )
    )
    return output


def compute(inputs: Int8Inputs) -> Tensor:
    """The reference, composed of torch operators; its integer sums are exact."""
    output = inputs.sum_exactly(F.linear) * inputs.scales + inputs.float_residual()
    output = output if inputs.bias is None else output + inputs.bias
    return inputs.rounded(inputs.activated(output)).contiguous()


def allocate(inputs: Int8Inputs) -> Tensor:
    """Check that the inputs fit together, and allocate the output."""
    shape = output_shape("pointwise_int8", inputs.x, inputs.weight)
    check("pointwise_int8", inputs, shape, channels=shape[-1])
    return inputs.x.new_empty(shape, dtype=inputs.dtype)


def cut(out: Tensor, inputs: Int8Inputs, tile: Tile) -> Cut:
    """A block per 128 rows of 64 or 128 columns, a warp per 32 rows of half of them."""
    width, depth = inputs.weight.shape
    require_multiples("columns", WIDTH, depth, width)
    rows = math.prod(inputs.x.shape[:-1])
    wide = 64 if width <= 64 else 128
    return Cut(
        template=template(inputs, wide, is_last=True),
        grid=(-(-rows // _ROWS) * -(-width // wide), 1, 1),
        threads=_THREADS,
        shared_bytes=_shared_bytes(wide),
        tensors=(inputs.x, inputs.weight, *columns(inputs), inputs.residual),
        numbers=(rows, depth, width, *scalars(inputs, is_last=True)),
    )


def _shared_bytes(wide: int) -> int:
    """The size of `PointwiseInt8::Tile` in the source: x and weight, the output, columns."""
    return _STAGES * (_ROWS + wide) * _PITCH + _ROWS * (wide + 16) + 12 * wide


KERNEL = Kernel(
    name="pointwise_int8",
    inputs=Int8Inputs,
    compute=compute,
    allocate=allocate,
    cut=cut,
    budgets={
        "pointwise_int8<uint8, uint8, 128, NONE>": Budget(registers=128, instructions=1210),
        "pointwise_int8<int8, int8, 64, SILU>": Budget(registers=96, instructions=970),
        "pointwise_int8<uint8, bfloat16, 64, GELU>": Budget(registers=96, instructions=1200),
        "pointwise_int8<uint8, float, 128, NONE>": Budget(registers=128, instructions=1160),
    },
    is_differentiable=False,
)
