"""Int8 layers on a GPU: by this project's kernels, which need CuPy, or by torch's product."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...kernels import QuantParams, convolve_depthwise_int8, project_int8
from ...kernels.depthwise import SIDES, STRIDES
from ...kernels.driver import packages
from ...kernels.quantized import FLOATS, WIDTH, weight_sums
from ...model.formats import Range

MIN_ROWS = 32  # torch's product on a GPU needs more than 16 rows, and widths in multiples of 8
SHIFT = 128
CLAMPS = {None: "none", (0, None): "relu", (0, 6): "relu6"}  # the clamps that the kernels fuse


def takes(layer: Any, quantized: Tensor) -> bool:
    """Whether a kernel computes this int8 layer on its input's device."""
    return quantized.is_cuda and obstacle(layer) is None


def can_requantize(layer: Any, quantized: Tensor) -> bool:
    """Whether its output can stay in int8."""
    return layer.requantization.clamp in CLAMPS and takes(layer, quantized)


def obstacle(layer: Any) -> str | None:
    """Why no kernel computes a linear layer or a zero-padded convolution; None where one does."""
    if not has_cupy():
        extra = packages().extra
        return (
            "on a GPU it needs this project's kernels, which need CuPy: pip install "
            f"paifuser-lab[{extra}]"
        )
    dimensions = _weight(layer).ndim
    if dimensions == 2:
        widths: tuple[int, ...] = tuple(_weight(layer).shape)
    elif dimensions != 4:
        return "on a GPU there are kernels only for 2d convolutions"
    elif _is_pointwise(layer):
        widths = (layer.in_channels, layer.out_channels)
    elif is_depthwise(layer):
        widths = (layer.groups,)
    else:
        return (
            "on a GPU there are kernels for pointwise convolutions and for depthwise ones with a "
            "kernel of 3, 5, 7 or 9"
        )
    return (
        f"on a GPU its widths must be multiples of {WIDTH}"
        if any(width % WIDTH for width in widths)
        else None
    )


def multiply(layer: Any, quantized: Tensor, scale: float, zero: int, dtype: torch.dtype) -> Tensor:
    """The layer's arithmetic on integers; an output in uint8 has this scale and zero point."""
    if layer._packed is None:
        layer._packed = (
            (layer.scales[:, 0] * layer.span.scale).contiguous(),
            weight_sums(layer.values),
        )
    scales, sums = layer._packed
    is_quantized = dtype == torch.uint8
    options: dict[str, Any] = {
        "zero": layer.span.zero,
        "sums": sums,
        "into": QuantParams(scale, zero)
        if is_quantized
        else dtype
        if dtype in FLOATS
        else torch.float32,
        "activation": CLAMPS[layer.requantization.clamp] if is_quantized else "none",
    }
    if layer.values.ndim == 2:
        output = project_int8(quantized, layer.values, scales, layer.bias, **options)
    elif layer.groups == 1:
        output = project_int8(
            quantized.movedim(1, -1), layer.values.flatten(1), scales, layer.bias, **options
        ).movedim(-1, 1)
    else:
        geometry: dict[str, Any] = {"stride": layer.stride[0], "padding": layer.padding[0]}
        output = convolve_depthwise_int8(
            quantized, layer.values, scales, layer.bias, **geometry, **options
        )
    return output if is_quantized else output.to(dtype)


@cache
def has_cupy() -> bool:
    """Whether CuPy, which runs the kernels, is installed."""
    return find_spec("cupy") is not None


def _weight(layer: Any) -> Tensor:
    """The weight of a layer, quantized or not."""
    weight: Tensor = layer.values if hasattr(layer, "values") else layer.weight
    return weight


def _is_pointwise(layer: Any) -> bool:
    return {*layer.kernel_size, *layer.stride, layer.groups} == {1} and _padding(layer) == {0}


def is_depthwise(layer: Any) -> bool:
    """Whether it is a depthwise convolution of a side and a stride that the kernels have."""
    side, stride, padding = set(layer.kernel_size), set(layer.stride), _padding(layer)
    is_single = layer.groups == layer.in_channels == layer.out_channels and set(layer.dilation) == {
        1
    }
    return (
        is_single
        and len(side) == len(stride) == len(padding) == 1
        and side <= {*SIDES}
        and stride <= {*STRIDES}
    )


def _padding(layer: Any) -> set[int]:
    """The padding along either dimension; for 'same', the same on both sides."""
    if layer.padding == "same":
        return {size // 2 for size in layer.kernel_size}
    return {0} if layer.padding == "valid" else set(layer.padding)


def int_mm_linear(
    quantized: Tensor, span: Range, values: Tensor, scales: Tensor, bias: Tensor | None
) -> Tensor:
    """`quantized` (rows × inputs, uint8) times integer weights (outputs × inputs), in fp32."""
    rows, outputs = quantized.shape[0], values.shape[0]
    signed = (quantized.to(torch.int16) - SHIFT).to(torch.int8)
    left = F.pad(signed, (0, -quantized.shape[1] % 8, 0, max(0, MIN_ROWS - rows)))
    right = F.pad(values, (0, -quantized.shape[1] % 8, 0, -outputs % 8))
    products = torch._int_mm(left, right.t())[:rows, :outputs]
    centred = products - (span.zero - SHIFT) * values.sum(dim=1, dtype=torch.int32)
    output = centred.float() * (span.scale * scales)
    return output if bias is None else output + bias
