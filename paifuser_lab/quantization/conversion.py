"""Between numbers and the 256 steps that stand for them: the conversions, and how many of them were
done.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..formats import Range

with (
    warnings.catch_warnings()
):  # torch says once that its quantized tensors will go; the way without them is below
    warnings.simplefilter("ignore")
    HAS_QUICK_WAY = (
        hasattr(torch, "quint8")
        and torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8) is not None
    )

conversions: Counter[str] = Counter()  # "to int8", "back"


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the conversions of this while."""
    before = conversions.copy()
    found: Counter[str] = Counter()
    try:
        yield found
    finally:
        found.update(conversions - before)


def to_steps(values: Tensor, span: Range) -> Tensor:
    """Numbers as steps, in uint8."""
    conversions["to int8"] += 1
    values = values.detach().float()
    if not HAS_QUICK_WAY or values.device.type != "cpu":
        return (values / span.scale).round_().add_(span.zero).clamp_(0, 255).to(torch.uint8)
    made = torch.quantize_per_tensor(values, span.scale, span.zero, torch.quint8)
    return torch.empty(0, dtype=torch.uint8).set_(
        made.untyped_storage(), 0, made.shape, made.stride()
    )


def from_steps(steps: Tensor, span: Range, dtype: torch.dtype) -> Tensor:
    """The numbers that steps stand for."""
    conversions["back"] += 1
    return steps.float().sub_(span.zero).mul_(span.scale).to(dtype)


def through_steps(values: Tensor, span: Range) -> Tensor:
    """Numbers as the steps leave them, by operators that compilers and exporters know."""
    known, steps = torch.ops.quantized_decomposed, (span.scale, span.zero, 0, 255, torch.uint8)
    rounded: Tensor = known.dequantize_per_tensor(
        known.quantize_per_tensor(values.float(), *steps), *steps
    )
    return rounded.to(values.dtype)
