"""How far two outputs of a model differ."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from ..errors import MeasureError
from ..model.tensors import tensors_in


def output_error(reference: Any, output: Any) -> tuple[float, float]:
    """Relative L2 error and largest absolute difference of two outputs of the same structure."""
    expected, actual = _tensors(reference), _tensors(output)
    if len(expected) != len(actual):
        raise MeasureError(
            f"the output has {len(actual)} tensors where the baseline's has {len(expected)}."
        )
    difference = total = largest = 0.0
    for left, right in zip(expected, actual, strict=True):
        if left.shape != right.shape:
            raise MeasureError(
                f"the output has shape {tuple(right.shape)} where the baseline's has "
                f"{tuple(left.shape)}."
            )
        left, right = left.double(), right.double()
        # equal infinities differ by nothing
        gap = torch.where(left == right, torch.zeros_like(left), left - right)
        difference += float((gap * gap).sum())
        total += float(left[torch.isfinite(left)].square().sum())
        # numpy.maximum keeps a NaN
        largest = float(numpy.maximum(largest, gap.abs().max() if gap.numel() else 0.0))
    return (difference / total) ** 0.5 if total else difference**0.5, largest


def _tensors(output: Any) -> list[Tensor]:
    return [tensor.detach().cpu() for tensor in tensors_in(output)]
