"""The loss of a detector: which candidates answer for an object, and how well they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .boxes import complete_iou, iou

SCORE_POWER, OVERLAP_POWER = 0.5, 6.0
BOX_WEIGHT, SCORE_WEIGHT = 7.5, 0.5
LEAST = 1e-6  # of a probability, so that its logarithm is finite


@dataclass(frozen=True)
class DetectionLoss:
    """The loss of candidates (`boxes`, `scores`) against padded targets (class, left, top, right,
    bottom), the class -1 where there is none.

    The `per_object` candidates near an object that fit it best, in score and overlap, answer for
    it: their score shall be their overlap, all others 0 (task-aligned assignment, Feng et al.,
    "TOOD", ICCV 2021; powers and weights are those of YOLOv8).
    """

    side: int
    strides: tuple[int, ...] = (8, 16, 32)
    per_object: int = 7

    def __call__(self, output: Mapping[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        """The loss of a batch, relative to the number of objects found."""
        boxes, scores = output["boxes"].float(), output["scores"].float()
        kind, objects = target[..., 0].long(), target[..., 1:].to(boxes.dtype)
        with torch.no_grad():
            answers = self._answers(boxes, scores, kind, objects)
        share, owner = answers.max(dim=1)
        wanted = torch.zeros_like(scores).scatter_(
            2, kind.clamp(min=0).gather(1, owner)[..., None], share[..., None]
        )
        likely = scores.clamp(LEAST, 1 - LEAST)
        entropy = -(wanted * likely.log() + (1 - wanted) * (1 - likely).log())
        owned = objects.gather(1, owner[..., None].expand(-1, -1, 4))
        misfit = (1 - complete_iou(boxes, owned)) * share
        total = share.sum().clamp(min=1.0)
        return (BOX_WEIGHT * misfit.sum() + SCORE_WEIGHT * entropy.sum()) / total

    def _answers(
        self,
        boxes: torch.Tensor,
        scores: torch.Tensor,
        kind: torch.Tensor,
        objects: torch.Tensor,
    ) -> torch.Tensor:
        """What each candidate shall score for each object, (batch, objects, candidates); 0 where it
        does not answer for it.
        """
        overlap = iou(boxes[:, None], objects[:, :, None])
        index = kind.clamp(min=0)[:, None].expand(-1, scores.shape[1], -1)
        score = scores.gather(2, index).transpose(1, 2)
        fit = score.pow(SCORE_POWER) * overlap.pow(OVERLAP_POWER)
        fit = fit * self._is_near(objects) * (kind >= 0)[..., None]
        least = fit.topk(min(self.per_object, fit.shape[-1]), dim=-1).values[..., -1:]
        fit = fit * (fit >= least)
        best = fit.amax(-1, keepdim=True).clamp(min=torch.finfo(fit.dtype).tiny)
        return fit / best * (overlap * (fit > 0)).amax(-1, keepdim=True)

    def _is_near(self, objects: torch.Tensor) -> torch.Tensor:
        """Whether a candidate's centre lies in an object, or half a step beside its centre."""
        centre, half = (
            (objects[..., :2] + objects[..., 2:]) / 2,
            (objects[..., 2:] - objects[..., :2]) / 2,
        )
        levels = []
        for stride in self.strides:
            steps = self.side // stride
            along = (torch.arange(steps, device=objects.device) + 0.5) / steps
            positions = torch.stack(
                [along.repeat(steps), along.repeat_interleave(steps)], dim=-1
            ).to(objects.dtype)
            reach = half.clamp(min=0.5 / steps + 1e-6)
            away = (positions - centre[:, :, None]).abs()
            levels.append((away <= reach[:, :, None]).all(-1))
        return torch.cat(levels, dim=-1)
