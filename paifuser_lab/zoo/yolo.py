"""A one-shot detector like YOLOv8: C2f blocks, a two-way neck, heads for boxes and classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from .boxes import complete_iou, iou
from .parts import ConvUnit, Parts, image_parts
from .weights import SILU_GAIN, damp

_unit = partial(ConvUnit, activation=nn.SiLU, eps=1e-3)


class Bottleneck(nn.Module):
    """Two 3×3 convolutions with an optional shortcut."""

    def __init__(self, width: int, *, has_shortcut: bool) -> None:
        super().__init__()
        self.has_shortcut = has_shortcut
        self.conv1 = _unit(width, width, 3)
        self.conv2 = _unit(width, width, 3)
        if has_shortcut and isinstance(norm := self.conv2[1], nn.BatchNorm2d):
            damp(norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branch, added to the input if there is a shortcut."""
        branch: torch.Tensor = self.conv2(self.conv1(x))
        return x + branch if self.has_shortcut else branch


class SplitBlock(nn.Module):
    """C2f: half of the channels bypass the bottlenecks, whose outputs are all concatenated."""

    def __init__(self, channels: int, width: int, depth: int, *, has_shortcut: bool) -> None:
        super().__init__()
        self.split = _unit(channels, width)
        self.blocks = nn.ModuleList(
            Bottleneck(width // 2, has_shortcut=has_shortcut) for _ in range(depth)
        )
        self.merge = _unit(width // 2 * (2 + depth), width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Concatenate the bypassed half with every bottleneck's output."""
        stages = list(self.split(x).chunk(2, dim=1))
        for block in self.blocks:
            stages.append(block(stages[-1]))
        out: torch.Tensor = self.merge(torch.cat(stages, dim=1))
        return out


class FastPyramid(nn.Module):
    """SPPF: the same pooling three times, for context at three sizes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow = _unit(width, width // 2)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)
        self.merge = _unit(width * 2, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Concatenate each position with its context."""
        levels = [self.narrow(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        out: torch.Tensor = self.merge(torch.cat(levels, dim=1))
        return out


class Backbone(nn.Module):
    """Features at strides 8, 16 and 32."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem = _unit(3, width, 3, stride=2)
        self.stage1 = _stage(width, 2 * width, depth)
        self.stage2 = _stage(2 * width, 4 * width, 2 * depth)
        self.stage3 = _stage(4 * width, 8 * width, 2 * depth)
        self.stage4 = _stage(8 * width, 16 * width, depth)
        self.pyramid = FastPyramid(16 * width)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The features at the three strides."""
        fine = self.stage2(self.stage1(self.stem(images)))
        middle = self.stage3(fine)
        return fine, middle, self.pyramid(self.stage4(middle))


class Neck(nn.Module):
    """Features flow up to the fine scales, then back down to the coarse ones."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        fine, middle, coarse = 4 * width, 8 * width, 16 * width
        self.upsample = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.up_middle = SplitBlock(coarse + middle, middle, depth, has_shortcut=False)
        self.up_fine = SplitBlock(middle + fine, fine, depth, has_shortcut=False)
        self.down_fine = _unit(fine, fine, 3, stride=2)
        self.down_middle = SplitBlock(fine + middle, middle, depth, has_shortcut=False)
        self.reduce_middle = _unit(middle, middle, 3, stride=2)
        self.down_coarse = SplitBlock(middle + coarse, coarse, depth, has_shortcut=False)

    def forward(
        self, fine: torch.Tensor, middle: torch.Tensor, coarse: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Exchange features between the three scales."""
        middle = self.up_middle(torch.cat([self.upsample(coarse), middle], dim=1))
        fine = self.up_fine(torch.cat([self.upsample(middle), fine], dim=1))
        middle = self.down_middle(torch.cat([self.down_fine(fine), middle], dim=1))
        coarse = self.down_coarse(torch.cat([self.reduce_middle(middle), coarse], dim=1))
        return fine, middle, coarse


class Head(nn.Module):
    """The head of one scale: the distance of each box edge as a distribution over `bins` steps, and
    the class scores.
    """

    def __init__(
        self, channels: int, *, box_width: int, class_width: int, bins: int, classes: int
    ) -> None:
        super().__init__()
        self.boxes = _branch(channels, box_width, 4 * bins)
        self.scores = _branch(channels, class_width, classes)
        self.register_buffer("steps", torch.arange(bins).float(), persistent=False)
        self.steps: torch.Tensor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Corners as a share of the image, and a probability for every class, at every position."""
        height, width = x.shape[-2:]
        spread: torch.Tensor = self.boxes(x).flatten(2).transpose(1, 2).unflatten(-1, (4, -1))
        left_top, right_bottom = (spread.softmax(dim=-1) * self.steps).sum(dim=-1).chunk(2, dim=-1)
        across = torch.arange(width, dtype=x.dtype, device=x.device) + 0.5
        down = torch.arange(height, dtype=x.dtype, device=x.device) + 0.5
        centres = torch.stack([across.repeat(height), down.repeat_interleave(width)], dim=-1)
        corners = torch.cat([centres - left_top, centres + right_bottom], dim=-1)
        share = corners / torch.tensor(
            [width, height, width, height], dtype=x.dtype, device=x.device
        )
        scores: torch.Tensor = self.scores(x).flatten(2).transpose(1, 2).sigmoid()
        return share, scores


class Yolo(nn.Module):
    """Backbone, neck, and a head for each of three scales; image sides are multiples of 32."""

    def __init__(self, *, width: int, depth: int, classes: int, bins: int = 16) -> None:
        super().__init__()
        self.backbone = Backbone(width, depth)
        self.neck = Neck(width, depth)
        scales = (4 * width, 8 * width, 16 * width)
        box_width, class_width = max(width, 4 * bins), max(4 * width, min(classes, 100))
        self.heads = nn.ModuleList(
            Head(channels, box_width=box_width, class_width=class_width, bins=bins, classes=classes)
            for channels in scales
        )

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """Every candidate box, as (left, top, right, bottom) shares of the image, with its class
        probabilities.
        """
        features = self.neck(*self.backbone(images))
        outputs = [head(feature) for head, feature in zip(self.heads, features, strict=True)]
        boxes, scores = zip(*outputs, strict=True)
        return {"boxes": torch.cat(boxes, dim=1), "scores": torch.cat(scores, dim=1)}


def expect_background(model: Yolo, share: float = 0.01) -> None:
    """Start with this probability of every class, since nearly all candidates are background."""
    for head in model.heads:
        bias = head.get_parameter("scores.2.bias")
        nn.init.constant_(bias, math.log(share / (1 - share)))


def _stage(channels: int, width: int, depth: int) -> nn.Sequential:
    return nn.Sequential(
        _unit(channels, width, 3, stride=2), SplitBlock(width, width, depth, has_shortcut=True)
    )


def _branch(channels: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        _unit(channels, width, 3), _unit(width, width, 3), nn.Conv2d(width, outputs, 1)
    )


def yolo(batch: int) -> Parts:
    """A small detector of 80 classes on 320×320 images."""
    return image_parts(Yolo(width=16, depth=1, classes=80), batch=batch, side=320, gain=SILU_GAIN)


def yolo_tiny(batch: int) -> Parts:
    """A narrow detector of 4 classes on 64×64 images."""
    return image_parts(
        Yolo(width=4, depth=1, classes=4, bins=8), batch=batch, side=64, gain=SILU_GAIN
    )


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
        """What each candidate shall score for each object, (batch, objects, candidates), or 0."""
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
