"""One multiplication of a model, with the channel ids along its sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .channel_ids import Numbers

Row = (
    Numbers | int
)  # the channel ids along a dimension; its length where nothing of it can be removed


@dataclass(frozen=True)
class Shape:
    """What of a convolution or a matrix product does not change with its widths."""

    kind: str
    given: tuple[int, ...]  # of a convolution its batch and spatial sizes, of a product its rows
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    has_bias: bool = False
    is_channels_last: bool = False
    dtype: torch.dtype = torch.float32
    device: str = "cpu"


@dataclass(frozen=True)
class Product:
    """One operator's multiply-adds: `times` for each of what its sizes multiply to; and how many
    values it makes, likewise.
    """

    layer: str
    shape: Shape
    times: int
    sizes: tuple[
        Row, ...
    ]  # of a convolution what it makes and reads, of a product its rows, what it reads and makes
    made_times: int
    made: tuple[Row, ...]
