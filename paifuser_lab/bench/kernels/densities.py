"""The error of attention to chosen blocks by density, on data where blocks mean something and on
data where they mean nothing.
"""

from __future__ import annotations

import torch

from ...kernels import errors_by_density
from .record import DensityError

TOKENS, SIZE = 1024, 64
TYPE = torch.bfloat16  # one that the kernel takes


def errors_on_made_up_data(device: torch.device) -> tuple[DensityError, ...]:
    """Two kinds of made-up data; what a model's own heads lose is to be measured on them, by
    `errors_by_density`.
    """
    chance = torch.Generator().manual_seed(0)
    noise = torch.randn(3, 1, 4, TOKENS, SIZE, generator=chance)
    walk = noise.cumsum(3)
    walk = walk / walk.std(3, keepdim=True)
    return (
        DensityError(
            data="neighbours alike (a random walk)",
            errors=errors_by_density(*walk.to(device, TYPE)),
        ),
        DensityError(
            data="independent random numbers, the worst case",
            errors=errors_by_density(*noise.to(device, TYPE)),
        ),
    )
