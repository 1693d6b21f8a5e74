"""A light segmentation network: depthwise encoder, pyramid pooling, bilinear upsampling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .parts import ConvUnit, Parts, image_parts
from .weights import RELU_GAIN


class SeparableUnit(nn.Sequential):
    """A depthwise convolution, then a 1×1 convolution."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__(
            ConvUnit(channels, channels, 3, stride, groups=channels), ConvUnit(channels, width, 1)
        )


class PyramidPooling(nn.Module):
    """Pyramid pooling: add context at several scales, up to the whole image, to every position."""

    def __init__(self, width: int, grids: tuple[int, ...]) -> None:
        super().__init__()
        share = width // len(grids)
        self.levels = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(grid), ConvUnit(width, share, 1)) for grid in grids
        )
        self.merge = ConvUnit(width + share * len(grids), width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Concatenate each position with its context at every scale."""
        surroundings = [_resize(level(x), x) for level in self.levels]
        out: torch.Tensor = self.merge(torch.cat([x, *surroundings], dim=1))
        return out


class SegNet(nn.Module):
    """A class for every pixel; image sides are multiples of 32."""

    def __init__(self, *, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = ConvUnit(3, width, 3, stride=2)
        self.fine = _stage(width, 2 * width, depth)
        self.coarse = _stage(2 * width, 4 * width, depth)
        self.context = PyramidPooling(4 * width, grids=(1, 2, 4))
        self.bridge = ConvUnit(2 * width, width, 1)
        self.decoder = SeparableUnit(5 * width, 2 * width)
        self.sharp = ConvUnit(3 * width, 2 * width, 3)
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class at every pixel."""
        half: torch.Tensor = self.stem(images)
        quarter: torch.Tensor = self.fine(half)
        context: torch.Tensor = self.context(self.coarse(quarter))
        decoded: torch.Tensor = self.decoder(
            torch.cat([self.bridge(quarter), _resize(context, quarter)], dim=1)
        )
        sharp: torch.Tensor = self.sharp(torch.cat([half, _resize(decoded, half)], dim=1))
        return _resize(self.head(sharp), images)


def _stage(channels: int, width: int, depth: int) -> nn.Sequential:
    return nn.Sequential(
        SeparableUnit(channels, width, stride=2),
        *(SeparableUnit(width, width) for _ in range(depth - 1)),
    )


def _resize(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


def segnet(batch: int) -> Parts:
    """The light street segmenter on 256×256 images."""
    return image_parts(SegNet(width=64, depth=4, classes=6), batch=batch, side=256, gain=RELU_GAIN)


def segnet_tiny(batch: int) -> Parts:
    """A narrow, shallow street segmenter on 64×64 images."""
    return image_parts(SegNet(width=12, depth=2, classes=6), batch=batch, side=64, gain=RELU_GAIN)
