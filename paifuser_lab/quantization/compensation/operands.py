"""What a layer multiplies with its weights: its input rows, or a convolution's windows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...model.layers import CONVOLUTIONS

MIN_ROWS, MAX_ELEMENTS = 2048, 2**22  # the rows of one call are sampled beyond both limits


def layer_operands(layer: Any, x: Tensor, row_indices: Tensor | None = None) -> Tensor:
    """A layer's operands: (groups, rows, columns); the given rows, or a sample of too many."""
    if not isinstance(layer, CONVOLUTIONS):
        rows = x.reshape(-1, x.shape[-1])
        return (
            rows[_row_sample(len(rows), rows.shape[1]) if row_indices is None else row_indices]
            .float()
            .unsqueeze(0)
        )
    windows = _windows(layer, x)
    positions = windows.shape[:1] + windows.shape[2 : 2 + len(layer.kernel_size)]
    if row_indices is None:
        row_indices = _row_sample(positions.numel(), layer.weight[0].numel() * layer.groups)
    chosen = torch.unravel_index(row_indices, positions)
    taps = windows.movedim(1, 1 + len(layer.kernel_size))[chosen].float()
    return taps.reshape(len(taps), layer.groups, -1).transpose(0, 1)


def groups_of(layer: Any) -> int:
    """A convolution's groups; 1 for a linear layer."""
    return getattr(layer, "groups", 1)


def output_rows(layer: Any, output: Tensor) -> Tensor:
    """A layer's output as (rows, outputs)."""
    output = output.movedim(-1 - len(getattr(layer, "kernel_size", ())), -1)
    return output.reshape(-1, output.shape[-1])


def _windows(layer: Any, x: Tensor) -> Tensor:
    """A view of the windows: (examples, channels, *positions, *window)."""
    batch = x if x.ndim == len(layer.kernel_size) + 2 else x.unsqueeze(0)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    windows = F.pad(batch, layer._reversed_padding_repeated_twice, mode=mode)
    for axis, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        windows = windows.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    return windows


def _row_sample(count: int, columns: int) -> Tensor:
    """All rows, or a fixed random sample within the limits."""
    limit = max(MIN_ROWS, MAX_ELEMENTS // columns)
    if count <= limit:
        return torch.arange(count)
    return torch.randint(count, (limit,), generator=torch.Generator().manual_seed(0))
