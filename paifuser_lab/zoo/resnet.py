"""Residual networks (He et al., 2015): ResNet-18's plain block and ResNet-50's bottleneck."""

from __future__ import annotations

import torch
from torch import nn

from .parts import Parts, image_parts
from .weights import RELU_GAIN, damp


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = damp(nn.BatchNorm2d(width))
        self.downsample = _shortcut(channels, width, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch to the shortcut."""
        branch: torch.Tensor = self.relu1(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        out: torch.Tensor = self.relu2(branch + self.downsample(x))
        return out


class Bottleneck(nn.Module):
    """A 3×3 convolution between two 1×1 ones, around a shortcut."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = damp(nn.BatchNorm2d(width * 4))
        self.downsample = _shortcut(channels, width * 4, stride)
        self.relu3 = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch to the shortcut."""
        branch: torch.Tensor = self.relu1(self.bn1(self.conv1(x)))
        branch = self.relu2(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        out: torch.Tensor = self.relu3(branch + self.downsample(x))
        return out


class ResNet(nn.Module):
    """Four stages of residual blocks, each at half the resolution and twice the width."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        *,
        width: int = 64,
        classes: int = 1000,
        channels: int = 3,
        small_images: bool = False,
    ) -> None:
        super().__init__()
        kernel, stride = (3, 1) if small_images else (7, 2)
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small_images else nn.MaxPool2d(3, stride=2, padding=1)
        stages, features = [], width
        for index, depth in enumerate(depths):
            stages.append(
                _stage(block, features, width << index, depth, stride=1 if index == 0 else 2)
            )
            features = (width << index) * block.expansion
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return scores


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    if channels == width and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    channels: int,
    width: int,
    depth: int,
    *,
    stride: int,
) -> nn.Sequential:
    later = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(channels, width, stride), *later)


def resnet18(batch: int) -> Parts:
    """ResNet-18 on 224×224 images."""
    return image_parts(ResNet(BasicBlock, (2, 2, 2, 2)), batch=batch, side=224, gain=RELU_GAIN)


def resnet18_tiny(batch: int) -> Parts:
    """ResNet-18 with an eighth of the channels, on 64×64 images."""
    return image_parts(
        ResNet(BasicBlock, (2, 2, 2, 2), width=8, classes=10), batch=batch, side=64, gain=RELU_GAIN
    )


def resnet50(batch: int) -> Parts:
    """ResNet-50 on 224×224 images."""
    return image_parts(ResNet(Bottleneck, (3, 4, 6, 3)), batch=batch, side=224, gain=RELU_GAIN)


def resnet50_tiny(batch: int) -> Parts:
    """A ResNet of bottlenecks with an eighth of the channels, on 64×64 images."""
    return image_parts(
        ResNet(Bottleneck, (1, 2, 2, 1), width=8, classes=10), batch=batch, side=64, gain=RELU_GAIN
    )
