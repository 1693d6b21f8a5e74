"""Swin (Liu et al., 2021): attention inside windows that shift from one block to the next."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .parts import Parts, image_parts

# low enough that a masked pair gets no weight, and finite in every precision
_MASKED = -100.0


class WindowAttention(nn.Module):
    """Self-attention within windows, with a learned relative position bias."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.position_bias = nn.Parameter(
            torch.empty((2 * window - 1) ** 2, heads).normal_(std=0.2)
        )
        self.register_buffer("position_index", _relative_positions(window), persistent=False)
        self.position_index: torch.Tensor

    def forward(self, windows: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Attend within each window; `mask` holds a matrix per window of an image, or is None."""
        qkv: torch.Tensor = self.qkv(windows).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.position_bias[self.position_index].permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            images = windows.shape[0] // mask.shape[0]
            bias = (bias + mask.unsqueeze(1)).repeat(images, 1, 1, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        # Attention backends return different memory layouts; a plain view would tie an exported
        # program to one of them.
        out: torch.Tensor = self.project(
            mixed.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2)
        )
        return out


class Block(nn.Module):
    """A pre-norm block: attention in shifted windows, then an MLP."""

    def __init__(self, width: int, heads: int, *, side: int, window: int, is_shifted: bool) -> None:
        super().__init__()
        self.window = window
        self.shift = window // 2 if is_shifted and side > window else 0
        self.norm1 = nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.register_buffer(
            "mask", _shift_mask(side, window, self.shift) if self.shift else None, persistent=False
        )
        self.mask: torch.Tensor | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches to the input, which is (batch, height, width, channels)."""
        x = x + self._attend(self.norm1(x))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        _, height, width, _ = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        windows = self.attention(split_windows(x, self.window), self.mask)
        x = join_windows(windows, self.window, height, width)
        return torch.roll(x, (self.shift, self.shift), dims=(1, 2)) if self.shift else x


class PatchMerging(nn.Module):
    """Merge four neighbouring tokens into one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Halve the resolution."""
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        out: torch.Tensor = self.reduce(self.norm(torch.cat(corners, dim=-1)))
        return out


class Swin(nn.Module):
    """Stages of window-attention blocks, with patches merged between them."""

    def __init__(
        self,
        *,
        side: int,
        width: int,
        depths: tuple[int, ...],
        heads: tuple[int, ...],
        window: int,
        classes: int,
        patch: int = 4,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.patch_norm = nn.LayerNorm(width)
        side //= patch
        stages = []
        for index, (depth, stage_heads) in enumerate(zip(depths, heads, strict=True)):
            merge = [PatchMerging(width)] if index else []
            side, width = (side // 2, width * 2) if index else (side, width)
            blocks = [
                Block(width, stage_heads, side=side, window=window, is_shifted=odd % 2 == 1)
                for odd in range(depth)
            ]
            stages.append(nn.Sequential(*merge, *blocks))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A score for every class."""
        tokens: torch.Tensor = self.stages(
            self.patch_norm(self.patches(images).permute(0, 2, 3, 1))
        )
        scores: torch.Tensor = self.head(self.norm(tokens).mean(dim=(1, 2)))
        return scores


def split_windows(x: torch.Tensor, window: int) -> torch.Tensor:
    """An image (batch, height, width, channels) as (batch · windows, tokens, channels)."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // window, window, width // window, window, channels)
    return x.transpose(2, 3).reshape(-1, window * window, channels)


def join_windows(windows: torch.Tensor, window: int, height: int, width: int) -> torch.Tensor:
    """The inverse of `split_windows`: the image."""
    channels = windows.shape[-1]
    x = windows.reshape(-1, height // window, width // window, window, window, channels)
    return x.transpose(2, 3).reshape(-1, height, width, channels)


def _relative_positions(window: int) -> torch.Tensor:
    row, column = (
        torch.arange(window).repeat_interleave(window),
        torch.arange(window).repeat(window),
    )
    down = row[:, None] - row[None, :] + window - 1
    right = column[:, None] - column[None, :] + window - 1
    return down * (2 * window - 1) + right


def _shift_mask(side: int, window: int, shift: int) -> torch.Tensor:
    """The mask between tokens of one window that the roll brought together from opposite edges."""
    position = torch.arange(side)
    piece = (position >= side - window).long() + (position >= side - shift).long()
    pieces = (3 * piece[:, None] + piece[None, :]).reshape(1, side, side, 1)
    tokens = split_windows(pieces, window).squeeze(-1)
    return (tokens[:, None, :] != tokens[:, :, None]).float() * _MASKED


def swin_t(batch: int) -> Parts:
    """Swin-T on 224×224 images."""
    model = Swin(
        side=224, width=96, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), window=7, classes=1000
    )
    return image_parts(model, batch=batch, side=224)


def swin_t_tiny(batch: int) -> Parts:
    """A narrow, shallow Swin on 112×112 images, with the window and the head width of Swin-T."""
    model = Swin(side=112, width=32, depths=(2, 2, 2), heads=(1, 2, 4), window=7, classes=10)
    return image_parts(model, batch=batch, side=112)
