"""Answers of a model's outputs, also as JSON: classes, boxes without overlaps, or a mask."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ...arguments import check_count
from ...errors import StreamError
from ...zoo.boxes import suppressed
from ..frame import Fit, Frame
from ..stage import Opened

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
NOT_FINITE = "the output has values that are not finite"
MOST_OVERLAP = 0.5  # of two boxes, before the better one alone remains
MOST_MASKED = 256  # classes of a pixel, which has a byte


def label_of(index: int, names: Sequence[str]) -> str:
    """The name of a class; its number where it has none."""
    return names[index] if index < len(names) else str(index)


@dataclass(frozen=True)
class Classes:
    """The likeliest classes, best first."""

    classes: Ints
    scores: Floats
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The best one."""
        return label_of(int(self.classes[0]), self.names)

    def as_json(self) -> Any:
        return {
            "classes": [
                {"label": label_of(int(index), self.names), "score": round(float(score), 6)}
                for index, score in zip(self.classes, self.scores, strict=True)
            ]
        }


@dataclass(frozen=True)
class Boxes:
    """Boxes in pixels of the image (left, top, right, bottom), best first."""

    boxes: Floats
    scores: Floats
    classes: Ints
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.boxes)

    def as_json(self) -> Any:
        return {
            "boxes": [
                {
                    "box": [round(float(edge), 2) for edge in box],
                    "label": label_of(int(index), self.names),
                    "score": round(float(score), 6),
                }
                for box, score, index in zip(self.boxes, self.scores, self.classes, strict=True)
            ]
        }


@dataclass(frozen=True)
class Mask:
    """The class of every pixel of the image."""

    classes: npt.NDArray[np.uint8]
    names: tuple[str, ...] = ()

    def shares(self) -> dict[str, float]:
        """The share of the image that each class has."""
        counts = np.bincount(self.classes.ravel())
        return {
            label_of(index, self.names): round(float(count) / self.classes.size, 6)
            for index, count in enumerate(counts)
            if count
        }

    def as_json(self) -> Any:
        """As JSON values, the pixels as a PNG in base64."""
        content = io.BytesIO()
        Image.fromarray(self.classes, mode=None).save(content, format="PNG")
        return {"shares": self.shares(), "png": base64.b64encode(content.getvalue()).decode()}


Answer = Classes | Boxes | Mask


def as_json(value: Any) -> Any:
    """An answer or tensors as JSON values; TypeError for others, ValueError for non-finite ones."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # numpy has no bfloat16
        is_short = value.is_floating_point() and value.element_size() < 4
        value = (value.float() if is_short else value).numpy()
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "fiub":
            raise TypeError(f"an array of {value.dtype} has no form in JSON")
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(NOT_FINITE)
        return value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(NOT_FINITE)
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


class Postprocess(Opened):
    """Gives each frame its `answer`, by the form of the output: `classes` of a vector of scores,
    `boxes` of a dict with boxes and scores, `mask` of scores for every pixel.

    Of classes the `top` best remain; of boxes those above `least_score`, and of those that overlap
    the best.
    """

    name = "postprocess"

    def __init__(
        self,
        *,
        names: tuple[str, ...] | list[str] = (),
        top: int = 5,
        least_score: float = 0.3,
    ) -> None:
        check_count("top", top, error=StreamError)
        self.names, self.top, self.least_score = tuple(names), top, least_score

    def __call__(self, items: Any) -> list[Frame]:
        """The frames with their answers, without the outputs."""
        return [self.answered(item) for item in items]

    def answered(self, frame: Frame) -> Frame:
        if not isinstance(frame, Frame) or frame.output is None:
            raise StreamError("A frame has no output; put Infer before Postprocess in the stream.")
        return frame.with_(answer=self.answer(frame.output, frame), output=None)

    def answer(self, output: Any, frame: Frame) -> Answer:
        """The answer of an output for one image."""
        kind = kind_of(output)
        if not kind:
            raise StreamError(
                f"An output of {described(output)} is neither classes, boxes nor a mask; give a "
                "function as a stage."
            )
        tensors = output.values() if isinstance(output, Mapping) else [output]
        # a score of minus infinity is a class that is left out
        if not all((value < math.inf).all() for value in tensors if isinstance(value, Tensor)):
            raise StreamError(f"{NOT_FINITE.capitalize()}.")
        return KINDS[kind](self, output, frame)


def kind_of(output: Any) -> str:
    """What an output without its batch dimension is; '' for none of these, as for a single score:
    there is nothing to choose between.
    """
    if isinstance(output, Mapping) and {"boxes", "scores"} <= output.keys():
        return "boxes"
    if isinstance(output, Tensor) and output.dim() and len(output) > 1:
        return {1: "classes", 3: "mask"}.get(output.dim(), "")
    return ""


def described(output: Any) -> str:
    """The form of an output, for a message."""
    if isinstance(output, Tensor):
        return f"shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        return f"the keys {', '.join(map(str, output))}"
    return f"type {type(output).__name__}"


def _classes(stage: Postprocess, output: Tensor, frame: Frame) -> Classes:
    scores, classes = output.float().softmax(0).topk(min(stage.top, len(output)))
    return Classes(classes.numpy(), scores.numpy(), stage.names)


def _boxes(stage: Postprocess, output: Mapping[str, Tensor], frame: Frame) -> Boxes:
    """Boxes are shares of the input's sides; they become pixels of the image."""
    found, rated = output["boxes"], output["scores"]
    if found.dim() != 2 or found.shape[1] != 4 or rated.dim() != 2 or len(rated) != len(found):
        raise StreamError(
            f"Boxes of shape {tuple(found.shape)} with scores of shape {tuple(rated.shape)} are "
            "not (candidates, 4), as shares of the input's sides, and (candidates, classes); give "
            "a function as a stage."
        )
    boxes, scores, classes = suppressed(
        found.float(),
        rated.float(),
        least_score=stage.least_score,
        most_overlap=MOST_OVERLAP,
    )
    width, height = frame.size or (1, 1)
    fit = frame.fit or Fit(width, height)
    sides = torch.tensor([fit.width, fit.height] * 2)
    shift = torch.tensor([fit.left, fit.top] * 2)
    scale = torch.tensor([fit.scale_x, fit.scale_y] * 2)
    placed = (boxes * sides - shift) / scale
    placed = torch.minimum(placed.clamp(min=0), torch.tensor([width, height] * 2))
    return Boxes(placed.numpy().astype(np.float32), scores.numpy(), classes.numpy(), stage.names)


def _mask(stage: Postprocess, output: Tensor, frame: Frame) -> Mask:
    """The border that letterboxing added is cut off, and scores are enlarged to the image."""
    if len(output) > MOST_MASKED:
        raise StreamError(
            f"A mask has at most {MOST_MASKED} classes, and the output has {len(output)}; give a "
            "function as a stage."
        )
    width, height = frame.size or (output.shape[2], output.shape[1])
    scores = output.float()[None]
    if frame.fit is not None:
        scores = _without_border(scores, frame.fit, width, height)
    scores = F.interpolate(scores, (height, width), mode="bilinear", align_corners=False)
    return Mask(scores[0].argmax(0).to(torch.uint8).numpy(), stage.names)


def _without_border(scores: Tensor, fit: Fit, width: int, height: int) -> Tensor:
    """The scores of the image alone; where the input shows only its middle, their edge goes on."""
    across, down = scores.shape[3] / fit.width, scores.shape[2] / fit.height
    left, top = round(fit.left * across), round(fit.top * down)
    right = scores.shape[3] - left - round(width * fit.scale_x * across)
    bottom = scores.shape[2] - top - round(height * fit.scale_y * down)
    cut = [-max(0, edge) for edge in (left, right, top, bottom)]
    more = [max(0, -edge) for edge in (left, right, top, bottom)]
    scores = F.pad(scores, cut)
    return F.pad(scores, more, mode="replicate") if any(more) else scores


KINDS: dict[str, Callable[[Postprocess, Any, Frame], Answer]] = {
    "classes": _classes,
    "boxes": _boxes,
    "mask": _mask,
}
