"""Inputs of the depthwise convolution, the entries they need, and its comparison with float64."""

from __future__ import annotations

import torch

from paifuser_lab.kernels.depthwise import ACTIVATIONS, KERNEL, SIDES, STRIDES
from tests.support.kernel_checks import (
    exact,
)

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Every side, stride and type, with each activation coming round; all combinations would take g++ a
# minute.
CASES = [(kind, side, stride) for side in SIDES for stride in STRIDES for kind in TYPES]
ACTIVATION_OF = {case: [*ACTIVATIONS][index % len(ACTIVATIONS)] for index, case in enumerate(CASES)}
ENTRIES = tuple(
    f"depthwise<{kind}, {side}, {stride}, {ACTIVATION_OF[kind, side, stride].upper()}, 8, 8, 64, 1>"
    for kind, side, stride in CASES
)


def inputs_of(
    kind="float16",
    side=3,
    stride=1,
    *,
    batch=1,
    channels=72,
    height=11,
    width=13,
    padding=None,
    has_bias=True,
    has_residual=False,
):
    x = torch.randn(batch, channels, height, width).to(TYPES[kind])
    weight = (torch.randn(channels, 1, side, side) / side).to(TYPES[kind])
    bias = torch.randn(channels).to(TYPES[kind]) if has_bias else None
    rest = (stride, side // 2 if padding is None else padding, ACTIVATION_OF[kind, side, stride])
    room = KERNEL.empty(x, weight, bias, None, *rest)
    return x, weight, bias, torch.randn_like(room) if has_residual else None, *rest


def assert_exact(made, inputs):
    # Sums are kept in fp32 and rounded once at the end: half a unit of the last place.
    torch.testing.assert_close(
        made.double(), exact(KERNEL, inputs), rtol=0.51 * torch.finfo(made.dtype).eps, atol=1e-4
    )
