"""MKL's matrix product on a CPU: a linear layer in fp32 whose weight is packed once; what follows is written over its answer.

On processors that MKL knows it is ahead of oneDNN's for many shapes, on others far behind it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from .activation import ACTIVATIONS, NONE, Bound

ops = torch.ops.mkl


def name_for(layer: nn.Module, dtype: torch.dtype, *, has_residual: bool, activation: str) -> str:
    """What it is called where it can do that; else ''. It takes what oneDNN takes, so that each place has both to choose from."""
    can = torch._C.has_mkl and hasattr(ops, "_mkl_linear") and not (has_residual and activation != NONE)
    return "MKL" if can and isinstance(layer, nn.Linear) and dtype is torch.float32 and activation in ACTIVATIONS else ""


def pack(layer: Any, weight: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """The weight in the order that suits as many rows; with another number of them the operator takes the weight as it is."""
    rows = x.numel() // x.shape[-1]
    return ops._mkl_reorder_linear_weight(weight, rows), rows


def bind(layer: Any, weight: Tensor, packed: tuple[Tensor, int], x: Tensor, activation: str, *, has_residual: bool) -> Bound:
    """activation(layer(x) + residual) for such inputs."""
    run, bias, (own, rows) = ops._mkl_linear.default, layer.bias, packed
    after = None if activation == NONE else ACTIVATIONS[activation].compose

    def call(x: Tensor, residual: Tensor | None) -> Tensor:
        made: Tensor = run(x, own, weight, bias, rows)
        if residual is not None:
            made.add_(residual)
        return made if after is None else after(made)

    return call


if hasattr(ops, "_mkl_linear"):

    @register_flop_formula(ops._mkl_linear, get_raw=True)
    def _linear_flops(x: Tensor, *args: Any, out_val: Tensor, **kwargs: Any) -> int:
        return 2 * x.numel() * out_val.shape[-1]
