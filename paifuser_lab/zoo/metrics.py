"""How good a model is: plain functions of its predictions, higher is better, 1.0 is perfect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .boxes import iou, suppressed
from .parts import Batches

OVERLAPS = tuple(np.arange(0.5, 1.0, 0.05).round(2).tolist())
RECALLS = np.linspace(0.0, 1.0, 101)


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
    """Predicted and true areas: their overlap over their union, averaged over present classes."""
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


def mean_average_precision(predict: Callable[..., Any], batches: Batches) -> float:
    """mAP@0.5:0.95 as COCO defines it: average precision over 101 recalls, of the classes that
    occur, at ten overlaps.

    Predictions have `boxes` and `scores`; a target's rows are class, left, top, right, bottom, the
    class -1 where there is none.
    """
    found: dict[int, list[_Found]] = {}
    with torch.no_grad():
        for inputs, target in batches:
            output = predict(inputs)
            boxes = output["boxes"].float().to(target.device)
            scores = output["scores"].float().to(target.device)
            for image in range(len(target)):
                for kind in range(scores.shape[-1]):
                    objects = target[image][target[image, :, 0] == kind, 1:]
                    found.setdefault(kind, []).append(
                        _matched(boxes[image], scores[image, :, kind], objects)
                    )
    classes = [images for images in found.values() if any(count for *_, count in images)]
    return float(np.mean([_average_precision(images) for images in classes])) if classes else 0.0


_Found = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], int]
"""Of one image and class: the scores, whether each is right at each overlap, how many objects."""


def _matched(boxes: torch.Tensor, scores: torch.Tensor, objects: torch.Tensor) -> _Found:
    """Detections take objects, best score first; each object once for each overlap."""
    kept, sure, _ = suppressed(boxes, scores[:, None])
    overlap = iou(kept[:, None], objects[None]).cpu().double().numpy()
    is_right = np.zeros((len(kept), len(OVERLAPS)), dtype=bool)
    for column, least in enumerate(OVERLAPS if len(objects) else ()):
        is_free = np.ones(len(objects), dtype=bool)
        for row in range(len(kept)):
            candidates = np.where(is_free, overlap[row], -1.0)
            best = int(candidates.argmax())
            if candidates[best] >= least:
                is_free[best] = False
                is_right[row, column] = True
    return sure.cpu().double().numpy(), is_right, len(objects)


def _average_precision(images: list[_Found]) -> float:
    """The mean over the overlaps of precision averaged over recalls."""
    order = np.argsort(-np.concatenate([scores for scores, *_ in images]), kind="stable")
    is_right = np.concatenate([right for _, right, _ in images])[order]
    hits = is_right.cumsum(axis=0)
    recall = hits / sum(count for *_, count in images)
    precision = hits / np.arange(1, len(hits) + 1)[:, None]
    envelope = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    averages = []
    for column in range(len(OVERLAPS)):
        reached = np.searchsorted(recall[:, column], RECALLS, side="left")
        padded = np.append(envelope[:, column], 0.0)
        averages.append(padded[np.minimum(reached, len(envelope))].mean())
    return float(np.mean(averages))
