"""Inputs of the depthwise convolution on integers, and the entries they need."""

from __future__ import annotations

from paifuser_lab.kernels.activation import ACTIVATIONS
from paifuser_lab.kernels.depthwise_int8 import KERNEL, SIDES, STRIDES
from paifuser_lab.kernels.quantized import weight_sums
from tests.support.quantized_kernels import (
    OUTS,
    columns,
    steps,
    zero_of,
)

# Every side and stride, with types and activations coming round: all combinations would take g++
# minutes.
_TURNS = [
    ("uint8", "uint8"),
    ("int8", "int8"),
    ("uint8", "bfloat16"),
    ("int8", "float"),
    ("uint8", "float16"),
]
CASES = [
    (*_TURNS[index % len(_TURNS)], side, stride, [*ACTIVATIONS][index % len(ACTIVATIONS)])
    for index, (side, stride, _) in enumerate(
        (side, stride, turn) for turn in range(2) for side in SIDES for stride in STRIDES
    )
]


def inputs_of(
    kind="uint8",
    out="uint8",
    side=3,
    stride=1,
    activation="none",
    *,
    batch=1,
    channels=80,
    height=11,
    width=13,
    padding=None,
    bias=True,
    residual=False,
    zero=True,
    power=False,
):
    x, weight = steps(kind, batch, channels, height, width), steps("int8", channels, 1, side, side)
    scales, offset = columns(channels, 3e-4 * 9 / side, is_power=power)
    zeros = (zero_of(kind), 7, 3) if zero else (0, 0, 0)
    inputs = (
        *(
            x,
            zeros[0],
            weight,
            scales,
            weight_sums(weight) if zero else None,
            offset if bias else None,
        ),
        *(
            None,
            2.0**-6 if power else 0.013,
            zeros[1],
            2.0**-4 if power else 0.0371,
            zeros[2],
            OUTS[out],
            activation,
        ),
        *(stride, side // 2 if padding is None else padding),
    )
    return (
        *inputs[:6],
        steps(kind, *KERNEL.empty(*inputs).shape) if residual else None,
        *inputs[7:],
    )


def entries_of(cases):
    found = (inputs_of(*case, residual=more) for case in cases for more in (False, True))
    return tuple(dict.fromkeys(KERNEL.plan(KERNEL.empty(*one), *one).entry for one in found))


ENTRIES = entries_of(CASES)
