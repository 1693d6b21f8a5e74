"""Decodes what a source sends: packets of a video, encoded images. Built on PyAV and Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from ...errors import DataError, PaifuserError, first_line
from ..frame import Frame, Image, Photos, Pictures, frame_of
from ..optional import pyav
from ..stage import FrameError, Opened

MAX_PIXELS = 100_000_000  # of an image: a small file may unpack to more memory than there is
IMAGE_FORMATS = ("JPEG", "PNG")


class Decode(Opened):
    """Makes frames of encoded groups; one that cannot be decoded becomes an error in its place."""

    name = "decode"
    takes_group = True

    def __call__(self, items: Any) -> list[Any]:
        """The frames of an encoded payload, or of a list of frames or images."""
        if isinstance(items, Pictures):
            return decoded_pictures(items)
        if isinstance(items, Photos):
            return decoded_photos(items)
        return [_frame_or_error(item) for item in items]


def _frame_or_error(item: Any) -> Frame | FrameError:
    try:
        return frame_of(item)
    except (TypeError, ValueError) as error:
        return FrameError("decode", str(error))


def decoded_pictures(group: Pictures) -> list[Any]:
    """The frames that a group of packets stands for, in the order in which they are shown."""
    found: dict[int, Frame] = {}
    shown, problem = set(group.shown), "its packets are damaged"
    try:
        for decoded in frames_of(group):
            if decoded.pts in shown:
                image = turned(decoded.to_ndarray(format="rgb24"), group.rotation)
                found[decoded.pts] = Frame(image, decoded.pts, group.time_base)
    except pyav().FFmpegError as error:
        problem = first_line(error)
    lost = FrameError("decode", f"This frame cannot be decoded: {problem}.")
    return [found.get(time, lost) for time in group.shown]


def frames_of(group: Pictures) -> Iterator[Any]:
    """PyAV's frames of the packets, those that are not shown included."""
    av = pyav()
    context = av.CodecContext.create(group.codec, "r")
    context.extradata = group.extradata or None
    context.thread_count = 1  # a worker is one of many
    for content, time in zip(group.packets, group.times, strict=True):
        packet = av.Packet(content)
        packet.pts, packet.time_base = time, group.time_base
        yield from context.decode(packet)
    yield from context.decode(None)


def turned(image: Image, degrees: int) -> Image:
    """An image turned counter-clockwise by a multiple of 90 degrees."""
    turns = round(degrees / 90) % 4
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image


def decoded_photos(group: Photos) -> list[Any]:
    """The frames of encoded images; one that cannot be read becomes an error."""
    frames: list[Any] = []
    for content, name, time in zip(group.contents, group.names, group.times, strict=True):
        try:
            frames.append(Frame(decoded_image(content), time, group.time_base, name))
        except PaifuserError as error:
            frames.append(FrameError("decode", f"{name}: {error}" if name else str(error)))
    return frames


def decoded_image(content: bytes) -> Image:
    """A JPEG or PNG as an RGB image, turned by its EXIF data; one too large is not unpacked."""
    try:
        with Pillow.open(io.BytesIO(content), formats=IMAGE_FORMATS) as opened:
            width, height = opened.size
            if width * height <= MAX_PIXELS:
                return np.array(ImageOps.exif_transpose(opened).convert("RGB"))
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise DataError(
            f"This is no image that can be read, JPEG or PNG: {first_line(error)}."
        ) from error
    raise DataError(
        f"The image has {width} × {height} pixels, past the limit of {MAX_PIXELS:,}; make it "
        "smaller."
    )
