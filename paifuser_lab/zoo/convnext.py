"""ConvNeXt (Liu et al., 2022): a convolutional network with the proportions of a transformer."""

from __future__ import annotations

import torch
from torch import nn

from .parts import Parts, image_parts


class ChannelNorm(nn.LayerNorm):
    """Layer-norm over the channels of an image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each pixel over its channels."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """A 7×7 depthwise convolution and a two-layer MLP per pixel, scaled and added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.project = nn.Linear(4 * width, width)
        # The paper starts at 1e-6, at which the output of an untrained branch would be negligible
        # in every analysis.
        self.layer_scale = nn.Parameter(torch.empty(width).uniform_(0.1, 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch to the input."""
        branch: torch.Tensor = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        branch = self.project(self.gelu(self.expand(branch))) * self.layer_scale
        return x + branch.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Four stages of blocks, with a norm and a strided convolution between them."""

    def __init__(self, depths: tuple[int, ...], widths: tuple[int, ...], *, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0], eps=1e-6)
        )
        stages: list[nn.Module] = []
        for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if index > 0:
                stages += [
                    ChannelNorm(widths[index - 1], eps=1e-6),
                    nn.Conv2d(widths[index - 1], width, 2, stride=2),
                ]
            stages += [Block(width) for _ in range(depth)]
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class."""
        features: torch.Tensor = self.stages(self.stem(images))
        scores: torch.Tensor = self.head(self.norm(features.mean(dim=(-2, -1))))
        return scores


def convnext_t(batch: int) -> Parts:
    """ConvNeXt-T on 224×224 images."""
    return image_parts(
        ConvNeXt((3, 3, 9, 3), (96, 192, 384, 768), classes=1000), batch=batch, side=224
    )


def convnext_t_tiny(batch: int) -> Parts:
    """A narrow, shallow ConvNeXt on 64×64 images."""
    return image_parts(ConvNeXt((1, 1, 2, 1), (8, 16, 32, 64), classes=10), batch=batch, side=64)
