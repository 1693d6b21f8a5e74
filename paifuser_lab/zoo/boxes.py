"""Boxes as (left, top, right, bottom): their overlap, and the best of those that overlap."""

from __future__ import annotations

import math

import torch

EPSILON = 1e-7
BLOCK = 512  # candidates that are compared with each other at a time


def iou(boxes: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Intersection over union of boxes that are paired by broadcasting."""
    return _overlap(boxes, others)[0]


def complete_iou(boxes: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Intersection over union, less the distance of the centres and the difference of the aspect
    ratios, so that boxes which do not overlap have a gradient too (Zheng et al., "Distance-IoU
    Loss", AAAI 2020).
    """
    overlap, width, height, other_width, other_height = _overlap(boxes, others)
    hull = torch.maximum(boxes[..., 2:], others[..., 2:]) - torch.minimum(
        boxes[..., :2], others[..., :2]
    )
    between = (boxes[..., :2] + boxes[..., 2:] - others[..., :2] - others[..., 2:]) / 2
    distance = between.square().sum(-1) / (hull.square().sum(-1) + EPSILON)
    aspect = torch.atan(other_width / (other_height + EPSILON)) - torch.atan(
        width / (height + EPSILON)
    )
    unlike = 4 / math.pi**2 * aspect.square()
    with torch.no_grad():
        share = unlike / (1 - overlap + unlike + EPSILON)
    return overlap - distance - share * unlike


def _overlap(boxes: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Intersection over union, and the sides of both: width, height, width, height."""
    width, height = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).unbind(-1)
    other_width, other_height = (others[..., 2:] - others[..., :2]).clamp(min=0).unbind(-1)
    corner = torch.minimum(boxes[..., 2:], others[..., 2:])
    common = (corner - torch.maximum(boxes[..., :2], others[..., :2])).clamp(min=0).prod(-1)
    union = width * height + other_width * other_height - common
    return common / (union + EPSILON), width, height, other_width, other_height


def suppressed(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    *,
    least_score: float = 0.001,
    most_overlap: float = 0.7,
    limit: int = 100,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Non-maximum suppression of one image's candidates: of those of one class that overlap more
    than `most_overlap` the best remains. Boxes, scores and classes, best first.

    `boxes` is (candidates, 4), `scores` (candidates, classes).
    """
    candidate, kind = torch.nonzero(scores > least_score, as_tuple=True)
    order = scores[candidate, kind].argsort(descending=True, stable=True)
    candidate, kind = candidate[order], kind[order]
    chosen = boxes[candidate]

    def clashes(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """Which of some candidates and of others are of one class and overlap too much."""
        overlap = iou(chosen[some][:, None], chosen[others][None])
        return (overlap > most_overlap) & (kind[some][:, None] == kind[others][None])

    kept = torch.empty(0, dtype=torch.long, device=chosen.device)
    for block in torch.split(torch.arange(len(chosen), device=chosen.device), BLOCK):
        if len(kept) >= limit:
            break
        block = block[~clashes(kept, block).any(0)]
        among, is_open = clashes(block, block), torch.ones_like(block, dtype=torch.bool)
        best: list[int] = []
        for index in range(len(block)):
            if len(kept) + len(best) == limit:
                break
            if is_open[index]:
                best.append(index)
                is_open &= ~among[index]
        kept = torch.cat([kept, block[best]])
    return chosen[kept], scores[candidate, kind][kept], kind[kept]
