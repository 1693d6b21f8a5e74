"""The matrix that a layer multiplies its weights by: its rows, or the windows of a convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...model.layers import CONVOLUTIONS

FEWEST_ROWS, MOST_NUMBERS = 2048, 2**22  # of one call: all rows, or as many as make so many numbers


def layer_operands(layer: Any, x: Tensor, rows_wanted: Tensor | None = None) -> Tensor:
    """What a layer multiplies its weights by: (groups, rows, columns); of very many rows some,
    picked at random, or those wanted.
    """
    if not isinstance(layer, CONVOLUTIONS):
        rows = x.reshape(-1, x.shape[-1])
        return (
            rows[_picked(len(rows), rows.shape[1]) if rows_wanted is None else rows_wanted]
            .float()
            .unsqueeze(0)
        )
    windows = _windows(layer, x)
    positions = windows.shape[:1] + windows.shape[2 : 2 + len(layer.kernel_size)]
    if rows_wanted is None:
        rows_wanted = _picked(positions.numel(), layer.weight[0].numel() * layer.groups)
    chosen = torch.unravel_index(rows_wanted, positions)
    taps = windows.movedim(1, 1 + len(layer.kernel_size))[chosen].float()
    return taps.reshape(len(taps), layer.groups, -1).transpose(0, 1)


def _windows(layer: Any, x: Tensor) -> Tensor:
    """The window of each place of the output: (examples, channels, *positions, *window); a view,
    which takes no memory.
    """
    batch = x if x.ndim == len(layer.kernel_size) + 2 else x.unsqueeze(0)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    windows = F.pad(batch, layer._reversed_padding_repeated_twice, mode=mode)
    for axis, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        windows = windows.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    return windows


def _picked(count: int, columns: int) -> Tensor:
    """All rows, or as many as there is room for, always the same."""
    most = max(FEWEST_ROWS, MOST_NUMBERS // columns)
    if count <= most:
        return torch.arange(count)
    return torch.randint(count, (most,), generator=torch.Generator().manual_seed(0))
