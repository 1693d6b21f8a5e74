"""Encodes frames for a video on workers, so that packets travel, not images. Built on PyAV."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import StreamError, first_line
from ..frame import Frame, Image
from ..optional import pyav
from ..stage import Opened

PREFERRED = ("libx264", "mpeg4")
MAX_UNITS = 1 << 16  # of a second in MPEG-4's header
FINE = Fraction(1, 60_000)
# without B-frames packets are in the order of the frames, one each
OPTIONS = {"libx264": {"preset": "ultrafast", "bf": "0", "crf": "20", "sc_threshold": "0"}}


@dataclass(frozen=True)
class Encoded:
    """A frame as a packet of a video."""

    content: bytes
    is_keyframe: bool
    codec: str
    extradata: bytes
    width: int
    height: int
    time_base: Fraction


def configure(
    context: Any, codec: str, width: int, height: int, time_base: Fraction, rate: Fraction
) -> None:
    """Set an encoder up; encoders that are set up alike have the same header."""
    context.width, context.height, context.pix_fmt = width, height, "yuv420p"
    context.time_base = time_base if time_base.denominator < MAX_UNITS else FINE
    context.framerate = rate
    context.thread_count = 1
    context.options = dict(OPTIONS.get(codec, {}))
    context.max_b_frames = 0
    context.flags |= pyav().codec.context.Flags.global_header


def encoded_group(frames: list[Frame], *, rate: Fraction) -> list[Encoded]:
    """Frames as a group of packets that decodes alone, one each."""
    av, first = pyav(), frames[0]
    if first.size is None:
        raise StreamError("A frame without its image cannot be encoded.")
    codec = next(name for name in PREFERRED if name in av.codecs_available)
    context = av.CodecContext.create(codec, "w")
    width, height = (side + side % 2 for side in first.size)
    configure(context, codec, width, height, first.time_base, rate)
    try:
        context.open()
    except (av.FFmpegError, ValueError) as error:
        raise StreamError(
            f"{codec} cannot encode {first.size[0]}×{first.size[1]}: {first_line(error)}."
        ) from error
    packets = []
    for frame in frames:
        packets += context.encode(_picture(frame, first.size, context.time_base))
    packets += context.encode(None)
    return [
        Encoded(
            bytes(packet),
            packet.is_keyframe,
            codec,
            bytes(context.extradata or b""),
            context.width,
            context.height,
            context.time_base,
        )
        for packet in packets
    ]


def _picture(frame: Frame, size: tuple[int, int], base: Fraction) -> Any:
    """A frame as PyAV encodes it; raises for one of another size."""
    if frame.image is None or frame.size != size:
        other = "no image" if frame.size is None else f"{frame.size[0]}×{frame.size[1]}"
        raise StreamError(
            f"A video of {size[0]}×{size[1]} cannot take a frame with {other}; resize them to one "
            "size before."
        )
    picture = pyav().VideoFrame.from_ndarray(_even(frame.image), format="rgb24")
    picture.pts, picture.time_base = round(frame.time * frame.time_base / base), base
    return picture


def _even(image: Image) -> Image:
    """The image with even sides, as colours at half the resolution need: an edge is repeated."""
    height, width = image.shape[:2]
    if height % 2 or width % 2:
        image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(image)


class Encode(Opened):
    """Gives each frame its `packet` for a video, and lets go of its image.

    The frames of a call become a group that decodes alone. Frames of a video have one size.
    """

    name = "encode"

    def __init__(self, *, rate: float | Fraction = 25) -> None:
        self.rate = Fraction(rate).limit_denominator(100_000)

    def __call__(self, items: Any) -> list[Frame]:
        frames = list(items)
        if not all(isinstance(frame, Frame) for frame in frames):
            raise StreamError("Only frames are encoded; put Decode first in the stream.")
        packets = encoded_group(frames, rate=self.rate) if frames else []
        return [
            frame.with_(packet=packet, image=None)
            for frame, packet in zip(frames, packets, strict=True)
        ]
