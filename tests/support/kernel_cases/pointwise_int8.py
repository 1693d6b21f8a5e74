"""Inputs of the linear layer on integers, and the entries they need."""

from __future__ import annotations

from paifuser_lab.kernels.activation import ACTIVATIONS
from paifuser_lab.kernels.pointwise_int8 import KERNEL
from paifuser_lab.kernels.quantized import weight_sums
from tests.support.quantized_kernels import (
    KINDS,
    OUTS,
    columns,
    steps,
    zero_of,
)

# int8 to int8 and to every float dtype, the activations taking turns: what is a clamp is left
# to the rounding.
CASES = [
    *((kind, kind, activation) for kind in KINDS for activation in ACTIVATIONS),
    *(
        (kind, out, [*ACTIVATIONS][(index + 3 * turn) % 6])
        for turn, kind in enumerate(KINDS)
        for index, out in enumerate([*OUTS][2:])
    ),
]


def inputs_of(
    kind="uint8",
    out="uint8",
    activation="none",
    *,
    rows=(150,),
    depth=80,
    wide=80,
    bias=True,
    residual=True,
    zero=True,
    power=False,
):
    x, weight = steps(kind, *rows, depth), steps("int8", wide, depth)
    scales, offset = columns(wide, 3e-4 * (72 / depth) ** 0.5, is_power=power)
    more = steps(kind, *rows, wide) if residual else None
    zeros = (zero_of(kind), 7, 3) if zero else (0, 0, 0)
    out_scale = 2.0**-4 if power else 0.0371
    return (
        *(
            x,
            zeros[0],
            weight,
            scales,
            weight_sums(weight) if zero else None,
            offset if bias else None,
        ),
        *(more, 2.0**-6 if power else 0.013, zeros[1], out_scale, zeros[2], OUTS[out], activation),
    )


ENTRIES = tuple(
    dict.fromkeys(
        KERNEL.plan(KERNEL.empty(*one), *one).entry
        for case in CASES
        for one in (inputs_of(*case, wide=w) for w in (64, 80))
    )
)
