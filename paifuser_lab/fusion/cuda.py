"""This project's CUDA kernels: depthwise and 1×1 convolutions and linear layers, in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import convolve_depthwise, convolve_pointwise, project
from ..kernels.activation import ACTIVATIONS
from ..model.formats import HALVES
from ..model.layers import is_pointwise
from ..quantization.layers.on_gpu import is_depthwise
from .activation import NONE, Bound
from .onednn import is_channels_last


def name_for(layer: Any, dtype: torch.dtype, *, has_residual: bool, activation: str) -> str:
    """The backend's name if there is a kernel for all of it, else ''; a layer alone is left to
    cuBLAS and cuDNN.
    """
    if (
        dtype not in HALVES
        or activation not in ACTIVATIONS
        or (activation == NONE and not has_residual)
    ):
        return ""
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        is_padded_by_numbers = not isinstance(layer.padding, str)
        has_kernel = is_padded_by_numbers and is_depthwise(layer) and layer.groups % 8 == 0
        return "CUDA depthwise" if has_kernel and not (has_residual and activation != NONE) else ""
    if layer.weight.shape[0] % 8 or layer.weight.shape[1] % 8:
        return ""
    return "CUDA pointwise" if isinstance(layer, nn.Linear) or is_pointwise(layer) else ""


def pack(layer: nn.Module, weight: Tensor, x: Tensor) -> Tensor:
    """The weight itself: the kernels need no other layout."""
    return weight


def bind(
    layer: Any, weight: Tensor, packed: Tensor, x: Tensor, activation: str, *, has_residual: bool
) -> Bound:
    """activation(layer(x) + residual) for inputs such as x, in one kernel."""
    bias = layer.bias
    if isinstance(layer, nn.Linear):
        return lambda x, residual: project(x, weight, bias, residual, activation=activation)
    options: dict[str, Any] = {"activation": activation}
    if layer.groups > 1:
        options |= {"stride": layer.stride[0], "padding": int(layer.padding[0])}
    run: Callable[..., Tensor] = convolve_depthwise if layer.groups > 1 else convolve_pointwise

    def call(x: Tensor, residual: Tensor | None) -> Tensor:
        return run(x, weight, bias, residual, **options)

    if is_channels_last(x, weight):
        return call
    # The kernels' output is always channels-last; torch's has the memory format of the inputs.
    return lambda x, residual: call(x, residual).contiguous()
