"""oneDNN's operators on a CPU: a layer with the sum and the activation that follow it, its weight packed once for the processor.

What torch itself calls at each use of a layer brings the weight into that order every time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from .activation import ACTIVATIONS, NONE

ops = torch.ops.mkldnn


def takes(layer: nn.Module, dtype: torch.dtype, *, has_residual: bool, activation: str) -> bool:
    """Whether there is an operator for it: a sum can only be followed by relu, that of a linear layer by nothing."""
    if not torch._C._has_mkldnn or not _computes_in(dtype) or activation not in ACTIVATIONS:
        return False
    return not has_residual or activation in ((NONE,) if isinstance(layer, nn.Linear) else (NONE, "relu"))


def _computes_in(dtype: torch.dtype) -> bool:
    if dtype is torch.bfloat16:
        return bool(ops._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def packed(layer: nn.Module, weight: Tensor, x: Tensor) -> Tensor:
    """The weight in the order that suits inputs such as this one."""
    made: Tensor
    if isinstance(layer, nn.Conv2d):
        made = ops._reorder_convolution_weight(
            weight, list(layer.padding), list(layer.stride), list(layer.dilation), layer.groups, list(x.shape)
        )
    else:
        made = ops._reorder_linear_weight(weight, x.numel() // x.shape[-1])
    return made


def run(layer: nn.Module, weight: Tensor, x: Tensor, residual: Tensor | None, activation: str) -> Tensor:
    """activation(layer(x) + residual) in one operator."""
    made: Tensor
    name, numbers, algorithm = ACTIVATIONS[activation].onednn
    bias: Any = layer.bias
    if isinstance(layer, nn.Conv2d):
        how = (list(layer.padding), list(layer.stride), list(layer.dilation), layer.groups)
        if residual is None:
            made = ops._convolution_pointwise(x, weight, bias, *how, name, numbers, algorithm)
        else:
            after = (None, [], None) if activation == NONE else (name, numbers, algorithm)
            made = ops._convolution_pointwise.binary(x, residual, weight, bias, *how, "add", 1.0, *after)
        return made if is_channels_last(x) or is_channels_last(layer.weight) else made.contiguous()
    if residual is None:
        made = ops._linear_pointwise(x, weight, bias, name, numbers, algorithm)
    else:
        made = ops._linear_pointwise.binary(x, residual, weight, bias, "add")
    return made


def is_channels_last(images: Tensor) -> bool:
    """The operator answers channels-last always; whoever asked in the usual order is answered in it, as torch does."""
    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()


@register_flop_formula(ops._convolution_pointwise, get_raw=True)
def _convolution_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    weight = next(one for one in args if isinstance(one, Tensor) and one.layout is torch._mkldnn)  # type: ignore[attr-defined]
    return 2 * out_val.numel() * weight.shape[1:].numel()


@register_flop_formula(ops._linear_pointwise, get_raw=True)
def _linear_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
    return 2 * x.numel() * out_val.shape[-1]
