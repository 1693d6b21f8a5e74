"""Inputs of the linear layer, the entries they need, and its comparison with float64."""

from __future__ import annotations

import torch

from paifuser_lab.kernels.activation import ACTIVATIONS
from paifuser_lab.kernels.pointwise import KERNEL
from tests.support.kernel_checks import (
    exact,
)

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Each width and activation, the types taking turns.
CASES = [
    ([*TYPES][(index + wide // 64) % 2], wide, one)
    for index, one in enumerate(ACTIVATIONS)
    for wide in (64, 128)
]
ENTRIES = tuple(
    f"pointwise<{kind}, {one.upper()}, 128, {wide}, 32, 3, 4, 2>" for kind, wide, one in CASES
)


def inputs_of(
    kind="bfloat16",
    activation="none",
    *,
    rows=(150,),
    depth=72,
    columns=72,
    has_bias=True,
    has_residual=True,
):
    x = torch.randn(*rows, depth).to(TYPES[kind])
    weight = (torch.randn(columns, depth) / depth**0.5).to(TYPES[kind])
    bias = torch.randn(columns).to(TYPES[kind]) if has_bias else None
    residual = torch.randn(*rows, columns).to(TYPES[kind]) if has_residual else None
    return x, weight, bias, residual, activation


def assert_exact(made, inputs):
    # Sums are kept in fp32 and rounded once at the end: half a unit of the last place.
    torch.testing.assert_close(
        made.double(), exact(KERNEL, inputs), rtol=0.51 * torch.finfo(made.dtype).eps, atol=1e-4
    )
