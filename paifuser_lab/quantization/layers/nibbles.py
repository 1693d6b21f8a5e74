"""Integers of four bits, two a byte."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def packed(values: Tensor) -> Tensor:
    """Numbers from -8 to 7 in rows, as bytes; a row of odd length is filled up."""
    rows = values.reshape(values.shape[0], -1).add(8).to(torch.uint8)
    rows = F.pad(rows, (0, rows.shape[1] % 2))
    return rows[:, ::2] | (rows[:, 1::2] << 4)


def unpacked(nibbles: Tensor, columns: int) -> Tensor:
    """The numbers again, in rows of so many columns."""
    if torch.onnx.is_in_onnx_export():
        return _unpacked_by_arithmetic(nibbles, columns)
    pairs = nibbles.to(
        torch.int16
    )  # a byte spread over two, so that no row is taken apart and put together
    return ((pairs | (pairs << 4)) & 0x0F0F).view(torch.int8)[..., :columns] - 8


def _unpacked_by_arithmetic(nibbles: Tensor, columns: int) -> Tensor:
    """The same for a file: runtimes shift no bytes, and none reads one number as two."""
    whole = nibbles.to(torch.int32)
    both = torch.stack([whole & 15, whole >> 4], dim=-1).flatten(-2)
    return both[..., :columns].to(torch.int8) - 8
