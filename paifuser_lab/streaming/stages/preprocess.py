"""Turns images into a model's input: resized, normalised. Built on torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...arguments import checked_options
from ...errors import StreamError
from ...records import ImagePreprocessing
from ..frame import Fit, Frame, Image, frame_of
from ..model import OpenModel
from ..stage import Opened

logger = logging.getLogger(__name__)
UNSTATED = (
    "%s does not state its preprocessing: pixels are 0 to 1. If it was trained with others, give "
    "mean and std, or lab.Workload(…, preprocessing={'mean': …, 'std': …})."
)
LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's mode L
GREY = 114  # of the border around a letterboxed image, as detectors are trained with

# an image's sides and those of the input → the sides that it is resized to
Resize = Callable[[int, int, int, int], tuple[int, int]]


def _letterbox(width: int, height: int, to_width: int, to_height: int) -> tuple[int, int]:
    scale = min(to_width / width, to_height / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _crop(width: int, height: int, to_width: int, to_height: int) -> tuple[int, int]:
    scale = max(to_width / width, to_height / height)
    return max(to_width, round(width * scale)), max(to_height, round(height * scale))


def _stretch(width: int, height: int, to_width: int, to_height: int) -> tuple[int, int]:
    return to_width, to_height


RESIZES: dict[str, Resize] = {"letterbox": _letterbox, "crop": _crop, "stretch": _stretch}


class Preprocess(Opened):
    """Gives each frame a `tensor`: channels × height × width, float32, and how the image `fit`s.

    `how` is `stretch`, `letterbox` (the whole image, with a grey border) or `crop` (its middle).
    Values are 0 to 1 before `mean` and `std` are applied: a number, or one a channel. `order` is
    that of three channels, RGB or BGR.
    """

    name = "preprocess"

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        how: str = "stretch",
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        channels: int = 3,
        order: str = "RGB",
    ) -> None:
        self.height, self.width = (size, size) if isinstance(size, int) else size
        self.how, self.channels = how, channels
        stated = {"mean": mean, "std": std, "order": order}
        own = checked_options(ImagePreprocessing, stated, "an image's preprocessing", StreamError)
        self.mean, self.std, self.order = own.mean, own.std, own.order
        if how not in RESIZES:
            raise StreamError(
                f"Images are not fitted by {how!r}; choose one of {', '.join(RESIZES)}."
            )
        if self.height < 1 or self.width < 1 or channels not in (1, 3):
            raise StreamError(
                f"An input of {channels} × {self.height} × {self.width} is not possible: 1 or 3 "
                "channels, and sides of 1 or more."
            )
        if any(len(values) not in (1, channels) for values in (self.mean, self.std)):
            raise StreamError(f"Give one mean and std, or one for each of {channels} channels.")

    @classmethod
    def of(
        cls,
        model: OpenModel,
        *,
        how: str = "letterbox",
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
    ) -> Preprocess:
        """The stage of a model that takes one image: as it states, but for what is given here."""
        assert model.image_shape is not None
        channels, height, width = model.image_shape
        own = model.work.preprocessing
        if own is None:
            own = ImagePreprocessing()
            if mean is None and std is None:
                logger.warning(UNSTATED, model.name)
        return cls(
            (height, width),
            how=how,
            channels=channels,
            mean=own.mean if mean is None else mean,
            std=own.std if std is None else std,
            order=own.order,
        )

    def __call__(self, items: Any) -> list[Frame]:
        return [self.prepared(frame_of(item)) for item in items]

    def prepared(self, frame: Frame) -> Frame:
        if frame.image is None:
            raise StreamError("A frame without its image cannot be preprocessed; do that first.")
        tensor, fit = self._resized(frame.image)
        values = tensor.to(torch.float32) / 255
        if self.channels == 1:
            values = (values * torch.tensor(LUMA)[:, None, None]).sum(0, keepdim=True)
        elif self.order == "BGR":
            values = values.flip(0)
        mean, std = (torch.tensor(each)[:, None, None] for each in (self.mean, self.std))
        return frame.with_(tensor=(values - mean) / std, fit=fit)

    def _resized(self, image: Image) -> tuple[Tensor, Fit]:
        height, width = image.shape[:2]
        to_width, to_height = RESIZES[self.how](width, height, self.width, self.height)
        tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
        if (to_width, to_height) != (width, height):
            tensor = F.interpolate(
                tensor, (to_height, to_width), mode="bilinear", antialias=True, align_corners=False
            )
        left, top = (self.width - to_width) // 2, (self.height - to_height) // 2
        right, bottom = self.width - to_width - left, self.height - to_height - top
        if left or top or right or bottom:
            # negative widths of a border cut
            tensor = F.pad(tensor, (left, right, top, bottom), value=GREY)
        return tensor[0], Fit(
            self.width, self.height, to_width / width, to_height / height, left, top
        )
