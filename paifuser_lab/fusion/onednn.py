"""oneDNN's operators on a CPU: a layer with the sum and the activation that follow it, its weight
packed once for the processor.

What torch itself calls at each use of a layer brings the weight into that order every time. Its
relu, relu6 and hardsigmoid make a number of NaN, where eager torch keeps it; so do those of
`torch.compile`, which calls the same operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from .activation import ACTIVATIONS, NONE, Bound
from .geometry import geometry_of, is_channels_last

ops = torch.ops.mkldnn


def name_for(layer: nn.Module, dtype: torch.dtype, *, has_residual: bool, activation: str) -> str:
    """The backend's name where there is an operator, else ''.

    A sum can only be followed by relu, that of a linear layer by nothing.
    """
    if not torch._C._has_mkldnn or not computes_in(dtype) or activation not in ACTIVATIONS:
        return ""
    after_sums = (NONE,) if isinstance(layer, nn.Linear) else (NONE, "relu")
    return "oneDNN" if not has_residual or activation in after_sums else ""


def computes_in(dtype: torch.dtype) -> bool:
    """Whether its operators take this format on this processor."""
    if dtype is torch.bfloat16:
        return bool(ops._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def pack(layer: nn.Module, weight: Tensor, x: Tensor) -> Tensor:
    """The weight in the order that suits inputs such as this one."""
    made: Tensor
    if isinstance(layer, nn.Conv2d):
        made = ops._reorder_convolution_weight(weight, *geometry_of(layer), list(x.shape))
    else:
        made = ops._reorder_linear_weight(weight, x.numel() // x.shape[-1])
    return made


def bind(
    layer: Any, weight: Tensor, packed: Tensor, x: Tensor, activation: str, *, has_residual: bool
) -> Bound:
    """activation(layer(x) + residual) for such inputs, in one operator."""
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
        made: Tensor
        if residual is None:
            made = alone(x, packed, bias, padding, stride, dilation, groups, *after)
        else:
            made = joined(
                x, residual, packed, bias, padding, stride, dilation, groups, "add", 1.0, *after_sum
            )
        return made

    if is_channels_last(x, weight):
        return call
    return lambda x, residual: call(
        x, residual
    ).contiguous()  # the operator outputs channels-last always, torch in the order it was asked


@register_flop_formula(ops._convolution_pointwise, get_raw=True)
def _convolution_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    weight = next(one for one in args if isinstance(one, Tensor) and one.layout is torch._mkldnn)  # type: ignore[attr-defined]
    return 2 * out_val.numel() * weight.shape[1:].numel()


@register_flop_formula(ops._linear_pointwise, get_raw=True)
def _linear_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    return 2 * x.numel() * out_val.shape[-1]
