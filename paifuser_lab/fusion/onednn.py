"""oneDNN's operators on a CPU: a layer with the sum and the activation that follow it, its weight
packed once for the processor.

torch's own call of a layer packs the weight at every call. oneDNN's relu, relu6 and hardsigmoid
turn NaN into a number, where eager torch keeps NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._prims_common import suggest_memory_format
from torch.utils.flop_counter import register_flop_formula

from .activation import ACTIVATIONS, NONE, Bound

ops = torch.ops.mkldnn


def name_for(layer: nn.Module, dtype: torch.dtype, *, has_residual: bool, activation: str) -> str:
    """The backend's name if there is an operator, else ''."""
    can = torch._C._has_mkldnn and computes_in(dtype)
    is_joined = can_follow(layer, has_residual=has_residual, activation=activation)
    return "oneDNN" if can and is_joined else ""


def can_follow(layer: nn.Module, *, has_residual: bool, activation: str) -> bool:
    """Whether they can: only relu follows a sum, and nothing the sum of a linear layer."""
    after_sums = (NONE,) if isinstance(layer, nn.Linear) else (NONE, "relu")
    return activation in (after_sums if has_residual else ACTIVATIONS)


def computes_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN's operators support this dtype on this processor."""
    if dtype is torch.bfloat16:
        return bool(ops._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def geometry_of(layer: Any) -> tuple[list[int], list[int], list[int], int]:
    """A convolution's padding, stride, dilation and groups."""
    return list(layer.padding), list(layer.stride), list(layer.dilation), layer.groups


def is_channels_last(x: Tensor, weight: Tensor) -> bool:
    """Whether torch's output of such a convolution is channels-last, by image or weight strides."""
    return any(suggest_memory_format(tensor) is torch.channels_last for tensor in (x, weight))


def pack(layer: nn.Module, weight: Tensor, x: Tensor) -> Tensor:
    """The weight packed for inputs such as x."""
    packed: Tensor
    if isinstance(layer, nn.Conv2d):
        packed = ops._reorder_convolution_weight(weight, *geometry_of(layer), list(x.shape))
    else:
        packed = ops._reorder_linear_weight(weight, x.numel() // x.shape[-1])
    return packed


def bind(
    layer: Any, weight: Tensor, packed: Tensor, x: Tensor, activation: str, *, has_residual: bool
) -> Bound:
    """activation(layer(x) + residual) for inputs such as x, in one operator."""
    bias, after = layer.bias, ACTIVATIONS[activation].onednn
    if isinstance(layer, nn.Linear):
        alone, joined = ops._linear_pointwise.default, ops._linear_pointwise.binary
        if has_residual:
            return lambda x, residual: joined(x, residual, packed, bias, "add")
        return lambda x, residual: alone(x, packed, bias, *after)
    padding, stride, dilation, groups = geometry_of(layer)
    alone, joined = ops._convolution_pointwise.default, ops._convolution_pointwise.binary
    after_sum = (None, [], None) if activation == NONE else after

    def call(x: Tensor, residual: Tensor | None) -> Tensor:
        output: Tensor
        if residual is None:
            output = alone(x, packed, bias, padding, stride, dilation, groups, *after)
        else:
            output = joined(
                x, residual, packed, bias, padding, stride, dilation, groups, "add", 1.0, *after_sum
            )
        return output

    if is_channels_last(x, weight):
        return call
    # The operator's output is always channels-last; torch's has the memory format of the inputs.
    return lambda x, residual: call(x, residual).contiguous()


@register_flop_formula(ops._convolution_pointwise, get_raw=True)
def _convolution_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    weight = next(arg for arg in args if isinstance(arg, Tensor) and arg.layout is torch._mkldnn)  # type: ignore[attr-defined]
    return 2 * out_val.numel() * weight.shape[1:].numel()


@register_flop_formula(ops._linear_pointwise, get_raw=True)
def linear_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    """The FLOPs of a linear layer."""
    return 2 * x.numel() * out_val.shape[-1]
