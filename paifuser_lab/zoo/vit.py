"""The vision transformer (Dosovitskiy et al., 2020), at the small size of DeiT."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .parts import Parts, image_parts


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend over all tokens."""
        qkv: torch.Tensor = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: torch.Tensor = self.project(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """A pre-norm transformer block: attention, then an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches to the input."""
        x = x + self.attention(self.norm1(x))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class VisionTransformer(nn.Module):
    """An image as a sequence of patches, classified from a class token."""

    def __init__(
        self, *, side: int, patch: int, width: int, depth: int, heads: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, width).normal_(std=0.02))
        self.positions = nn.Parameter(
            torch.empty(1, (side // patch) ** 2 + 1, width).normal_(std=0.02)
        )
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class."""
        patches: torch.Tensor = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(patches.shape[0], -1, -1)
        tokens = self.blocks(torch.cat([class_token, patches], dim=1) + self.positions)
        scores: torch.Tensor = self.head(self.norm(tokens)[:, 0])
        return scores


def vit_s(batch: int) -> Parts:
    """ViT-S/16 on 224×224 images."""
    model = VisionTransformer(side=224, patch=16, width=384, depth=12, heads=6, classes=1000)
    return image_parts(model, batch=batch, side=224)


def vit_s_tiny(batch: int) -> Parts:
    """A narrow, shallow vision transformer on 64×64 images."""
    model = VisionTransformer(side=64, patch=16, width=48, depth=2, heads=3, classes=10)
    return image_parts(model, batch=batch, side=64)
