"""Convolutional networks that rearrange their channels, each with one property: shuffles,
transposed convolutions, one and three dimensions, group norms, channels last, gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.prune_zoo.architecture import architecture, images, vectors
from tests.support.prune_zoo.convolutional import Head, block


@architecture("channel shuffle", images())
class Shuffle(nn.Module):
    """Half of the channels skip a branch, then the channels of both halves are interleaved."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inside = (
            block(3, 32),
            nn.Sequential(block(16, 16, 1), block(16, 16, groups=16, relu=False), block(16, 16, 1)),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Any:
        passing, y = self.stem(x).chunk(2, 1)
        y = torch.cat([passing, self.inside(y)], 1)
        b, c, h, w = y.shape
        return self.head(
            y.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w).mean((2, 3))
        )


@architecture("pixel shuffle", images())
def pixel_shuffle() -> nn.Module:
    return nn.Sequential(
        block(3, 32),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(16, 3, 3, padding=1),
    )


@architecture("pixel unshuffle", images())
def pixel_unshuffle() -> nn.Module:
    return Head(nn.Sequential(block(3, 16), nn.PixelUnshuffle(2), block(64, 32, 1)), 32)


@architecture("transposed in groups", images())
def transposed() -> nn.Module:
    body = nn.Sequential(
        block(3, 16),
        nn.ConvTranspose2d(16, 32, 2, 2, groups=4),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 32, 2, 2, groups=32),
    )
    return Head(body, 32)


@architecture("one dimension", vectors(2, 4, 20))
def one_dimension() -> nn.Module:
    body = nn.Sequential(
        nn.Conv1d(4, 16, 3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 16, 3),
        nn.ReLU(),
    )
    return nn.Sequential(body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 3))


@architecture("three dimensions", vectors(2, 2, 6, 6, 6))
def three_dimensions() -> nn.Module:
    body = nn.Sequential(
        nn.Conv3d(2, 16, 3, padding=1),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(16, 16, 3, padding=1),
    )
    return nn.Sequential(body, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 3))


@architecture("group norm", images())
def group_norm() -> nn.Module:
    return Head(
        nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.GroupNorm(8, 32),
            nn.ReLU(),
            nn.Conv2d(32, 16, 3),
            nn.GroupNorm(1, 16),
        ),
        16,
    )


@architecture("instance norm", images())
def instance_norm() -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.InstanceNorm2d(16, affine=True),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.InstanceNorm2d(16),
    )
    return Head(body, 16)


@architecture("channels-last block", images())
class ChannelsLast(nn.Module):
    """Depthwise convolution, layer norm and an MLP in the last dimension, scaled and added."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depth = nn.Conv2d(3, 24, 4, 4), nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.norm, self.wide, self.narrow = nn.LayerNorm(24), nn.Linear(24, 96), nn.Linear(96, 24)
        self.scale, self.head = nn.Parameter(torch.ones(24)), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(functional.gelu(self.wide(y)))
        return self.head((x + y.permute(0, 3, 1, 2)).mean((2, 3)))


@architecture("spatial gate", images())
class SpatialGate(nn.Module):
    """All channels are scaled by one map, the output of a convolution with a single channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate, self.last = block(3, 16), nn.Conv2d(16, 1, 1), block(16, 16)

    def forward(self, x: Tensor) -> Any:
        x = self.stem(x)
        return self.last(x * torch.sigmoid(self.gate(x))).sum((2, 3))


@architecture("gated halves", images())
def gated_halves() -> nn.Module:
    return Head(
        nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.GLU(1),
            block(16, 16),
            nn.PReLU(16),
            nn.Upsample(scale_factor=2.0, mode="bilinear"),
        ),
        16,
    )
