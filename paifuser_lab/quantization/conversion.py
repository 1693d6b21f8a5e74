"""Conversions between float values and uint8, and a count of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..model.formats import Range

# torch warns once that its quantized tensors are deprecated
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)

conversions: Counter[str] = Counter()  # "to int8", "back"; "kept": passed on in int8


@contextmanager
def count_conversions() -> Iterator[Counter[str]]:
    """Count the conversions inside the `with` block."""
    before = conversions.copy()
    counted: Counter[str] = Counter()
    try:
        yield counted
    finally:
        counted.update(conversions - before)


def quantize_values(values: Tensor, span: Range) -> Tensor:
    """Float values quantized to uint8."""
    conversions["to int8"] += 1
    values = values.detach().float()
    if values.device.type != "cpu":
        return (values / span.scale).round_().add_(span.zero).clamp_(0, 255).to(torch.uint8)
    output = torch.quantize_per_tensor(values, span.scale, span.zero, torch.quint8)
    return torch.empty(0, dtype=torch.uint8).set_(
        output.untyped_storage(), 0, output.shape, output.stride()
    )


def dequantize_values(quantized: Tensor, span: Range, dtype: torch.dtype) -> Tensor:
    """The float values of quantized ones."""
    conversions["back"] += 1
    return quantized.float().sub_(span.zero).mul_(span.scale).to(dtype)


def fake_quantize(values: Tensor, span: Range) -> Tensor:
    """Values quantized and dequantized, by operators that compilers and exporters recognise."""
    operators, arguments = (
        torch.ops.quantized_decomposed,
        (span.scale, span.zero, 0, 255, torch.uint8),
    )
    rounded: Tensor = operators.dequantize_per_tensor(
        operators.quantize_per_tensor(values.float(), *arguments), *arguments
    )
    return rounded.to(values.dtype)


def dequantize_channels(integers: Tensor, scales: Tensor, channel: int, limit: int = 128) -> Tensor:
    """The floats of signed integers, by an operator that compilers and exporters recognise."""
    zeros = torch.zeros_like(scales, dtype=torch.int64)
    output: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel(
        integers, scales, zeros, channel, -limit, limit - 1, integers.dtype
    )
    return output
