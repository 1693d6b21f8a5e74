"""MKL's matrix product on a CPU: a linear layer or 1×1 convolution in fp32, its weight packed once;
the sum and the activation are done in place on its output.

Which of MKL and oneDNN is faster depends on the shape and the processor, so both are timed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from ..model.layers import is_pointwise
from .activation import ACTIVATIONS, NONE, Bound
from .onednn import can_follow, is_channels_last, linear_flops

ops = torch.ops.mkl


def name_for(layer: nn.Module, dtype: torch.dtype, *, has_residual: bool, activation: str) -> str:
    """The backend's name if it supports this, else ''.

    After a layer it supports what oneDNN supports, so that both can be timed at each site.
    """
    can = (
        torch._C.has_mkl
        and hasattr(ops, "_mkl_linear")
        and dtype is torch.float32
        and (isinstance(layer, nn.Linear) or is_pointwise(layer))
    )
    is_joined = can_follow(layer, has_residual=has_residual, activation=activation)
    return "MKL" if can and is_joined else ""


def pack(layer: Any, weight: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """The weight packed for a number of rows; for another one the plain weight is used."""
    rows = x.numel() // weight.shape[1]
    return ops._mkl_reorder_linear_weight(weight.flatten(1), rows), rows


def bind(
    layer: Any,
    weight: Tensor,
    packed: tuple[Tensor, int],
    x: Tensor,
    activation: str,
    *,
    has_residual: bool,
) -> Bound:
    """activation(layer(x) + residual) for inputs such as x."""
    run, bias, (own, rows), plain = (
        ops._mkl_linear.default,
        layer.bias,
        packed,
        weight.detach().flatten(1),
    )
    after = None if activation == NONE else ACTIVATIONS[activation].in_place
    is_image = weight.dim() == 4
    is_last = is_image and is_channels_last(x, weight)

    def call(x: Tensor, residual: Tensor | None) -> Tensor:
        output: Tensor = run(x.permute(0, 2, 3, 1) if is_image else x, own, plain, bias, rows)
        if is_image:  # a pixel is a row
            output = output.permute(0, 3, 1, 2)
        if residual is not None:
            output.add_(residual)
        if after is not None:
            output = after(output)
        return output if not is_image or is_last else output.contiguous()

    return call


if hasattr(ops, "_mkl_linear"):
    register_flop_formula(ops._mkl_linear, get_raw=True)(linear_flops)
