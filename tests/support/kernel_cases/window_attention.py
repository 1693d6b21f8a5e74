"""Inputs of window attention, its entries, and its comparison with float64."""

from __future__ import annotations

import torch

from paifuser_lab.kernels.window_attention import HEADS, KERNEL, WINDOWS
from tests.support.kernel_checks import (
    exact,
)

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ENTRIES = tuple(
    f"window_attention<{kind}, {window}, {size}, 1, 0, 0>"
    for kind in TYPES
    for window in WINDOWS
    for size in HEADS
)


def inputs_of(
    kind=torch.bfloat16, *, window=7, size=32, batch=1, down=2, across=2, heads=2, shift=(3, 3)
):
    qkv = torch.randn(batch, down * window, across * window, 3, heads, size).to(kind)
    return qkv, torch.randn(heads, (2 * window - 1) ** 2), window, list(shift), size**-0.5


def assert_exact(made, inputs):
    # The weights are rounded once and the answer once; each may be off by half a unit of its last
    # place.
    allowed = torch.finfo(made.dtype).eps * inputs[0][..., 2, :, :].abs().max().item()
    torch.testing.assert_close(made.double(), exact(KERNEL, inputs), rtol=0, atol=1.05 * allowed)
