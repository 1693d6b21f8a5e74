"""What a model's output means: classes with scores, boxes, or a class for every pixel; each as JSON
too.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
NOT_FINITE = "the output has values that are not finite"


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
        """As JSON values."""
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
        """As JSON values."""
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
        from PIL import Image

        content = io.BytesIO()
        Image.fromarray(self.classes, mode=None).save(content, format="PNG")
        return {"shares": self.shares(), "png": base64.b64encode(content.getvalue()).decode()}


Answer = Classes | Boxes | Mask


def as_json(value: Any) -> Any:
    """An answer, or an output of tensors, as JSON values; raises TypeError for others and
    ValueError for what is not finite.
    """
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
