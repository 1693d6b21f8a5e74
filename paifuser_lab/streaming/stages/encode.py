"""Encodes frames for a video: on the worker that made them, so that packets travel instead of
images, or in one place. Built on PyAV.
"""

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


def codec_name(codec: str | None = None) -> str:
    """The encoder by this name, or the first one of ours that this PyAV has."""
    known = pyav().codecs_available
    for name in [codec] if codec else PREFERRED:
        if name in known:
            return name
    raise StreamError(f"This PyAV has no encoder {codec or ' or '.join(PREFERRED)}; name another.")


class FrameEncoder:
    """Encodes frames of one size; what it returns are packets of the frames so far."""

    def __init__(self, first: Frame, codec: str | None = None, *, rate: Fraction) -> None:
        if first.size is None:
            raise StreamError("A frame without its image cannot be encoded.")
        av = pyav()
        self.size = first.size
        self.codec = codec_name(codec)
        self.context = av.CodecContext.create(self.codec, "w")
        width, height = (side + side % 2 for side in self.size)
        configure(self.context, self.codec, width, height, first.time_base, rate)
        try:
            self.context.open()
        except (av.FFmpegError, ValueError) as error:
            raise StreamError(
                f"{self.codec} cannot encode {self.size[0]}×{self.size[1]}: {first_line(error)}."
            ) from error

    def encode(self, frame: Frame | None) -> list[Encoded]:
        """The packets that are ready; None gives the rest."""
        if frame is None:
            return [self._encoded(packet) for packet in self.context.encode(None)]
        if frame.image is None or frame.size != self.size:
            found = "no image" if frame.size is None else f"{frame.size[0]}×{frame.size[1]}"
            raise StreamError(
                f"A video of {self.size[0]}×{self.size[1]} cannot take a frame with {found}; "
                "resize them to one size before."
            )
        picture = pyav().VideoFrame.from_ndarray(_even(frame.image), format="rgb24")
        base = self.context.time_base
        picture.pts, picture.time_base = round(frame.time * frame.time_base / base), base
        return [self._encoded(packet) for packet in self.context.encode(picture)]

    def _encoded(self, packet: Any) -> Encoded:
        return Encoded(
            bytes(packet),
            packet.is_keyframe,
            self.codec,
            bytes(self.context.extradata or b""),
            self.context.width,
            self.context.height,
            self.context.time_base,
        )


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


def encoded_group(frames: list[Frame], codec: str | None, *, rate: Fraction) -> list[Encoded]:
    """Frames as a group of packets that decodes alone, one each."""
    encoder = FrameEncoder(frames[0], codec, rate=rate)
    packets = [packet for frame in [*frames, None] for packet in encoder.encode(frame)]
    if len(packets) != len(frames):
        raise StreamError(
            f"{encoder.codec} made {len(packets)} packets of {len(frames)} frames; choose an "
            "encoder that makes one of each."
        )
    return packets


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

    def __init__(self, *, rate: float | Fraction = 25, codec: str | None = None) -> None:
        self.rate, self.codec = Fraction(rate).limit_denominator(100_000), codec

    def __call__(self, items: Any) -> list[Frame]:
        """The frames with their packets."""
        frames = list(items)
        if not all(isinstance(frame, Frame) for frame in frames):
            raise StreamError("Only frames are encoded; put Decode first in the stream.")
        packets = encoded_group(frames, self.codec, rate=self.rate) if frames else []
        return [
            frame.with_(packet=packet, image=None)
            for frame, packet in zip(frames, packets, strict=True)
        ]
