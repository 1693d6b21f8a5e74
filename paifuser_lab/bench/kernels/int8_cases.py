"""Whole numbers of eight bits: what the int8 kernels are given, what else multiplies them, and the
same in bf16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels.quantized import Int8Inputs, apply_activation, float_residual, rounded, weight_sums
from .checking import Inputs

ZERO, OUT_ZERO, OUT_SCALE = -5, 3, 0.04


def images(
    batch: int, channels: int, side: int, kernel: int, activation: str, device: torch.device
) -> Inputs:
    """What a depthwise convolution is given."""
    x = _steps(device, batch, side, side, channels).permute(0, 3, 1, 2)
    weight = _steps(device, channels, 1, kernel, kernel)
    return (*_given(x, weight, 3e-4 / kernel, None, activation), 1, kernel // 2)


def rows(
    shape: tuple[int, ...],
    depth: int,
    columns: int,
    activation: str,
    device: torch.device,
    *,
    has_residual: bool,
) -> Inputs:
    """What a linear layer is given."""
    residual = _steps(device, *shape, columns) if has_residual else None
    return _given(
        _steps(device, *shape, depth),
        _steps(device, columns, depth),
        3e-4 / depth**0.5,
        residual,
        activation,
    )


def by_int_mm(*inputs: Any) -> Tensor:
    """A linear layer on torch's own product of int8."""
    given = Int8Inputs(*inputs)
    flat = given.x.reshape(-1, given.x.shape[-1])
    whole = torch._int_mm(flat, given.weight.t())
    if given.sums is not None:
        whole = whole - given.zero * given.sums
    made = (whole.to(given.scales.dtype) * given.scales).reshape(
        *given.x.shape[:-1], -1
    ) + float_residual(given)
    return rounded(
        given, apply_activation(given, made if given.bias is None else made + given.bias)
    )


def as_images(inputs: Inputs) -> Inputs:
    """The same convolution for the kernel that computes in bf16."""
    given = Int8Inputs(*inputs)
    return (*_in_bf16(given), given.stride, given.padding, given.activation)


def as_rows(inputs: Inputs) -> Inputs:
    """The same linear layer for the kernel that computes in bf16."""
    given = Int8Inputs(*inputs)
    return (*_in_bf16(given), given.activation)


def _in_bf16(given: Int8Inputs) -> tuple[Tensor | None, ...]:
    scales = given.scales.reshape(-1, *[1] * (given.weight.dim() - 1))
    residual = float_residual(given)
    numbers = (
        given.x.float() - given.zero,
        given.weight * scales,
        given.bias,
        residual if isinstance(residual, Tensor) else None,
    )
    return tuple(None if one is None else one.bfloat16() for one in numbers)


def _given(
    x: Tensor, weight: Tensor, worth: float, residual: Tensor | None, activation: str
) -> Inputs:
    channels = weight.shape[0]
    scales = (torch.rand(channels, device=x.device) + 0.1) * worth
    more = residual, 0.01, OUT_ZERO, OUT_SCALE, OUT_ZERO, torch.int8, activation
    return (
        x,
        ZERO,
        weight,
        scales,
        weight_sums(weight),
        torch.randn(channels, device=x.device),
        *more,
    )


def _steps(device: torch.device, *shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, device=device)
