"""How good a model is: plain functions of its predictions, higher is better, 1.0 is perfect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .parts import Batches


def accuracy(predict: Callable[..., Any], batches: Batches) -> float:
    """The share of examples whose best-scored class is the right one."""
    right = total = 0
    with torch.no_grad():
        for inputs, target in batches:
            best = predict(inputs).argmax(dim=1).to(target.device)
            right += int((best == target).sum())
            total += target.numel()
    return right / total


def mean_iou(predict: Callable[..., Any], batches: Batches) -> float:
    """The overlap of predicted and true areas over their union, averaged over the classes that
    occur.
    """
    table: torch.Tensor | None = None
    with torch.no_grad():
        for inputs, target in batches:
            scores = predict(inputs)
            counts = confusion(
                scores.argmax(dim=1).to(target.device), target, classes=scores.shape[1]
            )
            table = counts if table is None else table + counts
    if table is None:
        return 0.0
    overlap = table.diagonal()
    union = table.sum(dim=0) + table.sum(dim=1) - overlap
    return float((overlap[union > 0] / union[union > 0]).mean())


def confusion(predicted: torch.Tensor, target: torch.Tensor, *, classes: int) -> torch.Tensor:
    """How often each true class (row) was taken for each class (column)."""
    pairs = target.flatten() * classes + predicted.flatten()
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
