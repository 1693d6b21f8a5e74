"""Cases of the int8 kernels: random inputs, a peer by torch's int8 product, and the same inputs in
bf16.
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
    """Random inputs of a depthwise convolution."""
    x = _random_int8(device, batch, side, side, channels).permute(0, 3, 1, 2)
    weight = _random_int8(device, channels, 1, kernel, kernel)
    return (*_inputs(x, weight, 3e-4 / kernel, None, activation), 1, kernel // 2)


def rows(
    shape: tuple[int, ...],
    depth: int,
    columns: int,
    activation: str,
    device: torch.device,
    *,
    has_residual: bool,
) -> Inputs:
    """Random inputs of a linear layer."""
    residual = _random_int8(device, *shape, columns) if has_residual else None
    return _inputs(
        _random_int8(device, *shape, depth),
        _random_int8(device, columns, depth),
        3e-4 / depth**0.5,
        residual,
        activation,
    )


def by_int_mm(*inputs: Any) -> Tensor:
    """A linear layer by torch's own int8 product."""
    quantized = Int8Inputs(*inputs)
    shape = quantized.x.shape
    sums = torch._int_mm(quantized.x.reshape(-1, shape[-1]), quantized.weight.t())
    if quantized.sums is not None:
        sums = sums - quantized.zero * quantized.sums
    scaled = (sums.to(quantized.scales.dtype) * quantized.scales).reshape(*shape[:-1], -1)
    output = scaled + float_residual(quantized)
    output = output if quantized.bias is None else output + quantized.bias
    return rounded(quantized, apply_activation(quantized, output))


def as_images(inputs: Inputs) -> Inputs:
    """The inputs of the same convolution for the bf16 kernel."""
    quantized = Int8Inputs(*inputs)
    return (*_in_bf16(quantized), quantized.stride, quantized.padding, quantized.activation)


def as_rows(inputs: Inputs) -> Inputs:
    """The inputs of the same linear layer for the bf16 kernel."""
    quantized = Int8Inputs(*inputs)
    return (*_in_bf16(quantized), quantized.activation)


def _in_bf16(quantized: Int8Inputs) -> tuple[Tensor | None, ...]:
    scales = quantized.scales.reshape(-1, *[1] * (quantized.weight.dim() - 1))
    residual = float_residual(quantized)
    values = (
        quantized.x.float() - quantized.zero,
        quantized.weight * scales,
        quantized.bias,
        residual if isinstance(residual, Tensor) else None,
    )
    return tuple(None if value is None else value.bfloat16() for value in values)


def _inputs(
    x: Tensor, weight: Tensor, scale: float, residual: Tensor | None, activation: str
) -> Inputs:
    channels = weight.shape[0]
    scales = (torch.rand(channels, device=x.device) + 0.1) * scale
    rest = residual, 0.01, OUT_ZERO, OUT_SCALE, OUT_ZERO, torch.int8, activation
    return (
        x,
        ZERO,
        weight,
        scales,
        weight_sums(weight),
        torch.randn(channels, device=x.device),
        *rest,
    )


def _random_int8(device: torch.device, *shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, device=device)
