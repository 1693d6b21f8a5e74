"""U-Net (Ronneberger et al., 2015): an encoder and a decoder with skip connections."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from . import parts
from .parts import Parts, image_parts
from .weights import RELU_GAIN


class ConvUnit(nn.Sequential):
    """Twice: 3×3 convolution, batch-norm, ReLU."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(*parts.ConvUnit(channels, width, 3), *parts.ConvUnit(width, width, 3))


class Up(nn.Module):
    """Double the resolution and join the encoder's features of that resolution."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose2d(channels, width, 2, stride=2)
        self.conv = ConvUnit(2 * width, width)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Upsample, concatenate with the skip connection, convolve."""
        out: torch.Tensor = self.conv(torch.cat([skip, self.upsample(x)], dim=1))
        return out


class UNet(nn.Module):
    """A class for every pixel; image sides are multiples of two to the power of `depth`."""

    def __init__(self, *, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.stem = ConvUnit(3, width)
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(ConvUnit(above, below) for above, below in pairwise(widths))
        self.up = nn.ModuleList(Up(below, above) for below, above in pairwise(reversed(widths)))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class at every pixel."""
        x: torch.Tensor = self.stem(images)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(self.pool(x))
        for up in self.up:
            x = up(x, skips.pop())
        scores: torch.Tensor = self.head(x)
        return scores


def unet(batch: int) -> Parts:
    """U-Net for streets on 128×128 images."""
    return image_parts(UNet(width=32, depth=4, classes=6), batch=batch, side=128, gain=RELU_GAIN)


def unet_tiny(batch: int) -> Parts:
    """A narrow, shallow U-Net on 32×32 images."""
    return image_parts(UNet(width=8, depth=2, classes=6), batch=batch, side=32, gain=RELU_GAIN)
