"""Which formats a layer supports, and the layer in a format."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..model.formats import AUTOCAST, FLOATS, Quantized, Range, integer_bits
from ..model.layers import CONVOLUTIONS, channel_of, is_altered, is_linear, is_pointwise
from .layers import on_gpu
from .layers.fp8 import Fp8Linear, device_obstacle
from .layers.int8 import Int8Convolution, Int8Linear, paddings
from .layers.layer import QuantizedLayer
from .layers.weights_only import EmbeddingWeightsOnly, WeightsOnly


def obstacle(layer: nn.Module, name: str) -> str | None:
    """Why a layer cannot run in a format; None where it can."""
    if name in FLOATS or name in AUTOCAST:
        return None
    if isinstance(layer, QuantizedLayer):
        return f"it is in {layer.format} already"
    if channel_of(layer) is None:
        return f"a {type(layer).__name__} has no weight that could be rounded to lower precision"
    weight = layer.weight
    if not isinstance(weight, torch.Tensor) or weight.dtype not in FLOATS.values():
        return f"its weight is {getattr(weight, 'dtype', type(weight).__name__)}"
    if is_altered(layer):
        return "it has hooks or parametrizations of its own"
    if not bool(torch.isfinite(weight).all()):
        return "its weight holds a NaN or an infinity"
    kinds = {"int8": _int8_obstacle, "fp8": _fp8_obstacle}
    return kinds.get(name, _weights_obstacle)(layer)


def _int8_obstacle(layer: Any) -> str | None:
    if isinstance(layer, CONVOLUTIONS):
        device = layer.weight.device
        if device.type not in ("cpu", "cuda"):
            return f"convolutions in int8 run on a CPU or with CUDA, and it is on {device}"
        if paddings(layer) is None:
            return "its padding is not the same number of zeros on both sides"
        return on_gpu.obstacle(layer) if device.type == "cuda" else None
    return (
        None
        if is_linear(layer)
        else f"there is no {type(layer).__name__} in int8; use int8-weights"
    )


def _fp8_obstacle(layer: Any) -> str | None:
    if not (is_linear(layer) or is_pointwise(layer)):
        return (
            "fp8 is for linear layers and pointwise convolutions, and it is a "
            f"{type(layer).__name__}"
        )
    return device_obstacle(layer.weight.device)


def _weights_obstacle(layer: Any) -> str | None:
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "it renormalises its weight at each call (max_norm)"
    return None


def quantized_layer(
    layer: nn.Module,
    name: str,
    span: Range | None = None,
    numbers: Quantized | None = None,
    *,
    reduced_range: bool | None = None,
) -> QuantizedLayer:
    """The layer in lower precision, rounded to the nearest where no integers are given; int8 needs
    the range of the layer's input, and its integers may be in reduced range.
    """
    if name == "fp8":
        return Fp8Linear(layer)
    if name != "int8":
        of_weights = EmbeddingWeightsOnly if isinstance(layer, nn.Embedding) else WeightsOnly
        channel = channel_of(layer)
        assert channel is not None
        return of_weights(layer, channel, name, numbers)
    assert span is not None
    kind = Int8Convolution if isinstance(layer, CONVOLUTIONS) else Int8Linear
    return kind(layer, span, numbers, bits=integer_bits(name, reduced_range=reduced_range))
