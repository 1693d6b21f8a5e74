"""Draws answers onto images: boxes, masks, classes; and small previews. Built on Pillow."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from ..frame import Frame, Image
from ..stage import Opened
from .answer import Boxes, Classes, Mask, label_of

# Okabe and Ito's colours, which the colour-blind tell apart
COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
OPACITY = 0.45
MOST_CHARACTERS = 60


class Overlay(Opened):
    """Draws each frame's answer onto its image; a frame without an answer stays as it is."""

    name = "overlay"

    def __call__(self, items: Any) -> list[Any]:
        return [drawn(item) if isinstance(item, Frame) else item for item in items]


def drawn(frame: Frame) -> Frame:
    draw = DRAWN.get(type(frame.answer))
    if draw is None or frame.image is None:
        return frame
    return frame.with_(image=draw(frame.image, frame.answer))


def colour_of(index: int) -> tuple[int, int, int]:
    return COLOURS[index % len(COLOURS)]


def _boxes(image: Image, answer: Boxes) -> Image:
    picture = Pillow.fromarray(image)
    canvas = ImageDraw.Draw(picture)
    thick = max(1, min(image.shape[:2]) // 240)
    for box, score, index in reversed(
        list(zip(answer.boxes.tolist(), answer.scores, answer.classes, strict=True))
    ):
        colour = colour_of(int(index))
        left, top, right, bottom = (round(edge) for edge in box)
        canvas.rectangle((left, top, max(left, right), max(top, bottom)), None, colour, thick)
        text = f"{label_of(int(index), answer.names)} {score:.0%}"
        _label(canvas, text, (left, top), colour, image.shape[0])
    return np.asarray(picture)


def _classes(image: Image, answer: Classes) -> Image:
    picture = Pillow.fromarray(image)
    canvas = ImageDraw.Draw(picture)
    colour = colour_of(int(answer.classes[0]))
    _label(canvas, f"{answer.label} {answer.scores[0]:.0%}", (0, 0), colour, image.shape[0])
    return np.asarray(picture)


def _label(
    canvas: Any, text: str, corner: tuple[int, int], colour: tuple[int, int, int], height: int
) -> None:
    """A text on a ground of its colour, above the corner where there is room."""
    font = ImageFont.load_default(max(9, height // 40))
    text = text[:MOST_CHARACTERS]
    left, top, right, bottom = canvas.textbbox((0, 0), text, font=font)
    tall = bottom - top + 4
    x, y = corner[0], corner[1] - tall if corner[1] >= tall else corner[1]
    canvas.rectangle((x, y, x + right - left + 4, y + tall), fill=colour)
    is_light = sum(colour) > 380
    canvas.text(
        (x + 2 - left, y + 2 - top), text, fill=(0,) * 3 if is_light else (255,) * 3, font=font
    )


def _mask(image: Image, answer: Mask) -> Image:
    colours = np.asarray(COLOURS, np.float32)[answer.classes % len(COLOURS)]
    blended = image * (1 - OPACITY) + colours * OPACITY
    return blended.round().astype(np.uint8)


DRAWN: dict[type, Callable[[Image, Any], Image]] = {Boxes: _boxes, Classes: _classes, Mask: _mask}


class Preview(Opened):
    """Gives a few frames a second a small JPEG, for a person who watches."""

    name = "preview"

    def __init__(self, *, width: int = 480, rate: float = 5.0) -> None:
        self.width, self.rate = width, rate
        self._next = 0.0

    def __call__(self, items: Any) -> list[Any]:
        """The frames, each with a preview whose turn it is."""
        frames = list(items)
        for index, frame in enumerate(frames):
            has_image = isinstance(frame, Frame) and frame.image is not None
            if has_image and (now := time.monotonic()) >= self._next:
                self._next = now + 1 / self.rate
                frames[index] = frame.with_(preview=small_jpeg(frame.image, self.width))
        return frames


def small_jpeg(image: Image, width: int) -> bytes:
    """The image as a JPEG of at most this width."""
    picture = Pillow.fromarray(image)
    picture.thumbnail((width, width))
    content = io.BytesIO()
    picture.save(content, format="JPEG", quality=80)
    return content.getvalue()
