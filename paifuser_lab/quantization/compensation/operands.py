"""What a layer multiplies its weights by: a linear layer its rows, a convolution the window of each
place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...model.layers import CONVOLUTIONS

FEWEST_ROWS, MOST_NUMBERS = 2048, 2**22  # of one call: all rows, or as many as make so many numbers


def multiplied(layer: Any, given: Tensor, rows_wanted: Tensor | None = None) -> Tensor:
    """What a layer multiplies its weights by: (groups, rows, columns); of very many rows some,
    picked by chance, or those wanted.
    """
    if not isinstance(layer, CONVOLUTIONS):
        rows = given.reshape(-1, given.shape[-1])
        return (
            rows[_picked(len(rows), rows.shape[1]) if rows_wanted is None else rows_wanted]
            .float()
            .unsqueeze(0)
        )
    windows = _windows(layer, given)
    places = windows.shape[:1] + windows.shape[2 : 2 + len(layer.kernel_size)]
    if rows_wanted is None:
        rows_wanted = _picked(places.numel(), layer.weight[0].numel() * layer.groups)
    chosen = torch.unravel_index(rows_wanted, places)
    taps = windows.movedim(1, 1 + len(layer.kernel_size))[chosen].float()
    return taps.reshape(len(taps), layer.groups, -1).transpose(0, 1)


def _windows(layer: Any, given: Tensor) -> Tensor:
    """The window of each place of the answer: (examples, channels, *places, *window); a view, which
    takes no memory.
    """
    batch = given if given.ndim == len(layer.kernel_size) + 2 else given.unsqueeze(0)
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
