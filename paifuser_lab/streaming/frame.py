"""A frame on its way through a stream, and encoded groups: packets of a video, or images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
MILLISECOND = Fraction(1, 1000)


@dataclass(frozen=True)
class Fit:
    """How an image lies in a model's input: scaled, then moved by `left` and `top` pixels."""

    width: int
    height: int
    scale_x: float = 1.0
    scale_y: float = 1.0
    left: float = 0.0
    top: float = 0.0


@dataclass(frozen=True)
class Frame:
    """An image with its time, and what the stages made of it."""

    image: Image | None  # height × width × 3, RGB; None once nothing needs it any more
    time: int = 0  # when it is shown, in units of `time_base`
    time_base: Fraction = MILLISECOND
    name: str = ""  # the file or key that it came from, if it has one
    tensor: Any = None  # the model's input, without the batch dimension
    fit: Fit | None = None  # how the image lies in `tensor`
    output: Any = None  # the model's output, without the batch dimension
    answer: Any = None  # what the output means: classes, boxes or a mask
    preview: bytes = b""  # a small JPEG of it, of a few frames a second
    packet: Any = None  # the frame encoded for a video, in place of its image

    @property
    def seconds(self) -> float:
        return float(self.time * self.time_base)

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of its image."""
        return None if self.image is None else (self.image.shape[1], self.image.shape[0])

    def with_(self, **changed: Any) -> Self:
        return replace(self, **changed)


def frame_of(item: Any) -> Frame:
    """An item as a frame: a frame, or an array of an image (height × width, or with 3 channels)."""
    if isinstance(item, Frame):
        return item
    return Frame(checked_image(item))


def checked_image(array: Any) -> Image:
    """An array as an RGB image; raises for one that is none."""
    image = np.asarray(array)
    if image.ndim == 2:
        image = np.repeat(image[..., None], 3, axis=2)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise ValueError(
            f"An image is an array of uint8, height × width × 3, not {image.dtype} of shape "
            f"{'×'.join(map(str, image.shape)) or 'one number'}; convert it before the stream."
        )
    return np.ascontiguousarray(image)


@dataclass(frozen=True)
class Pictures:
    """Packets of a video from a keyframe on, which decode without any others.

    `shown` are the times of the frames that they stand for, in order: packets of other times are
    only decoded because these refer to them, as in an open group of pictures.
    """

    codec: str
    extradata: bytes
    packets: tuple[bytes, ...]
    times: tuple[int, ...]
    shown: tuple[int, ...]
    time_base: Fraction
    rotation: int = 0  # degrees counter-clockwise that the decoded image is turned by

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What a checksum covers."""
        return self.packets


@dataclass(frozen=True)
class Photos:
    """Encoded images, JPEG or PNG, with their names and times."""

    contents: tuple[bytes, ...]
    names: tuple[str, ...]
    times: tuple[int, ...]
    time_base: Fraction = MILLISECOND

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What a checksum covers."""
        return self.contents
