"""A vision transformer for segmentation: small patches and so many tokens, mostly attention."""

from __future__ import annotations

import math

import torch
from torch import nn

from .parts import Parts, image_parts
from .vit import Block

_OCTAVES = 4


class PositionEmbedding(nn.Module):
    """Embeddings of positions relative to the image's size, so that images of every size work."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(4 * _OCTAVES, width)

    def forward(self, tokens: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        """Add the position embedding to each token."""
        down = _waves(rows, tokens)[:, None].expand(-1, columns, -1)
        right = _waves(columns, tokens)[None].expand(rows, -1, -1)
        positions: torch.Tensor = self.project(torch.cat([down, right], dim=-1).flatten(0, 1))
        return tokens + positions


class SegViT(nn.Module):
    """A transformer over patches, which output their pixels; image sides are multiples of one."""

    def __init__(self, *, patch: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.places = PositionEmbedding(width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes * patch**2)
        self.pixels = nn.PixelShuffle(patch)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class at every pixel."""
        patches: torch.Tensor = self.patches(images)
        rows, columns = patches.shape[-2:]
        tokens = self.blocks(self.places(patches.flatten(2).transpose(1, 2), rows, columns))
        scores: torch.Tensor = self.head(self.norm(tokens))
        pixels: torch.Tensor = self.pixels(
            scores.transpose(1, 2).reshape(len(images), -1, rows, columns)
        )
        return pixels


def _waves(count: int, like: torch.Tensor) -> torch.Tensor:
    """Sine and cosine features of positions, at several frequencies."""
    position = (torch.arange(count, device=like.device, dtype=torch.float32) + 0.5) / count
    angle = position[:, None] * math.pi * 2.0 ** torch.arange(_OCTAVES, device=like.device)
    return torch.cat([angle.sin(), angle.cos()], dim=-1).to(like.dtype)


def segvit(batch: int) -> Parts:
    """The transformer of maps, wider and deeper, on 256×256 images: 4,096 tokens."""
    return image_parts(
        SegViT(patch=4, width=192, depth=6, heads=6, classes=7), batch=batch, side=256
    )


def segvit_tiny(batch: int) -> Parts:
    """A narrow, shallow SegViT on 64×64 images: 256 tokens."""
    return image_parts(SegViT(patch=4, width=32, depth=2, heads=1, classes=7), batch=batch, side=64)
