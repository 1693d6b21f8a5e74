"""MobileNetV2 (Sandler et al., 2018): inverted residuals around depthwise convolutions."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from .parts import ConvUnit, Parts, image_parts
from .weights import RELU_GAIN, damp

# (expansion, channels, repeats, stride) of each stage
Stages = tuple[tuple[int, int, int, int], ...]
_FULL: Stages = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_TINY: Stages = ((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 2), (6, 24, 2, 2), (6, 32, 1, 1))
_unit = partial(ConvUnit, activation=nn.ReLU6)


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, project; with a shortcut if the shapes allow it."""

    def __init__(self, channels: int, width: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels * expansion
        self.has_shortcut = stride == 1 and channels == width
        self.expand = nn.Identity() if expansion == 1 else _unit(channels, hidden, 1)
        self.depthwise = _unit(hidden, hidden, 3, stride, groups=hidden)
        self.project = nn.Conv2d(hidden, width, 1, bias=False)
        self.norm = damp(nn.BatchNorm2d(width)) if self.has_shortcut else nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branch, added to the input if the shapes allow it."""
        branch: torch.Tensor = self.norm(self.project(self.depthwise(self.expand(x))))
        return x + branch if self.has_shortcut else branch


class MobileNetV2(nn.Module):
    """Stages of inverted residuals between a strided stem and one wide 1×1 convolution."""

    def __init__(self, stages: Stages, *, stem: int, last: int, classes: int) -> None:
        super().__init__()
        self.stem = _unit(3, stem, 3, stride=2)
        blocks, channels = [], stem
        for expansion, width, repeats, stride in stages:
            for index in range(repeats):
                blocks.append(
                    InvertedResidual(
                        channels, width, stride=stride if index == 0 else 1, expansion=expansion
                    )
                )
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.last = _unit(channels, last, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class."""
        features = self.last(self.blocks(self.stem(images)))
        scores: torch.Tensor = self.classifier(torch.flatten(self.pool(features), 1))
        return scores


def mobilenetv2(batch: int) -> Parts:
    """MobileNetV2 on 224×224 images."""
    return image_parts(
        MobileNetV2(_FULL, stem=32, last=1280, classes=1000), batch=batch, side=224, gain=RELU_GAIN
    )


def mobilenetv2_tiny(batch: int) -> Parts:
    """A narrow, shallow MobileNetV2 on 64×64 images."""
    return image_parts(
        MobileNetV2(_TINY, stem=8, last=64, classes=10), batch=batch, side=64, gain=RELU_GAIN
    )
