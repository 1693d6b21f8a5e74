"""Distorted handwritten digits: rotated, shifted, scaled, with pieces of other digits and noise, so
that small networks make some errors.
"""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

ROTATION = pi / 6  # at most, in either direction
SHIFT = 0.25  # of half the side
SIZES = (0.7, 1.15)
CLUTTER = 3  # pieces of other digits
NOISE = 0.15


def distorted(small: Tensor, *, side: int, copies: int, generator: torch.Generator) -> Tensor:
    """Every image (N × 1 × h × w, 0 to 1) `copies` times in a row, each with another distortion."""
    images = small.repeat_interleave(copies, dim=0)
    drawn = _moved(images, side, generator) + _clutter(small, len(images), side, generator)
    return drawn.clamp(0, 1) + NOISE * torch.randn(drawn.shape, generator=generator)


def _moved(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift the images."""
    count = len(images)
    angle = ROTATION * _uniform(count, generator)
    size = SIZES[0] + (SIZES[1] - SIZES[0]) * torch.rand(count, generator=generator)
    across, down = (SHIFT * _uniform(count, generator) for _ in range(2))
    rows = [
        torch.stack(row, dim=1)
        for row in ((angle.cos(), -angle.sin(), across), (angle.sin(), angle.cos(), down))
    ]
    return _sampled(images, torch.stack(rows, dim=1) / size[:, None, None], side)


def _clutter(small: Tensor, count: int, side: int, generator: torch.Generator) -> Tensor:
    """Draw pieces of other digits, half as dark, around the edge."""
    drawn = torch.zeros(count, 1, side, side)
    for _ in range(CLUTTER):
        others = small[torch.randint(len(small), (count,), generator=generator)]
        angle = 2 * pi * torch.rand(count, generator=generator)
        zoom = torch.full((count,), 2.0)
        zero = torch.zeros(count)
        # The edge of the image in coordinates of the sampling grid: a piece is 0.8 of half a side
        # from the middle.
        rows = [
            torch.stack(row, dim=1)
            for row in ((zoom, zero, -1.6 * angle.cos()), (zero, zoom, -1.6 * angle.sin()))
        ]
        drawn = torch.maximum(drawn, 0.5 * _sampled(others, torch.stack(rows, dim=1), side))
    return drawn


def _sampled(images: Tensor, transform: Tensor, side: int) -> Tensor:
    grid = F.affine_grid(transform, [len(images), 1, side, side], align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    return 2 * torch.rand(count, generator=generator) - 1
