"""One multiplication of a model, with the channel ids along its sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .channel_ids import Numbers

# the channel ids along a dimension; its length where nothing of it can be removed
Row = Numbers | int


@dataclass(frozen=True)
class Shape:
    """The properties of a convolution or a matrix product that do not depend on its widths."""

    kind: str
    # of a convolution its batch and spatial sizes, of a product its rows
    input_sizes: tuple[int, ...]
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
    """One operator's multiply-adds: `times` the product of `sizes`; and its output values:
    `output_times` the product of `output_sizes`.
    """

    layer: str
    shape: Shape
    times: int
    # of a convolution output and input channels; of a product rows, input and output channels
    sizes: tuple[Row, ...]
    output_times: int
    output_sizes: tuple[Row, ...]
