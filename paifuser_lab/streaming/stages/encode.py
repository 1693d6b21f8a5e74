"""Encodes frames on the worker that made them, so that packets travel instead of images."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...errors import StreamError
from ..frame import Frame
from ..stage import Opened
from ..video_writer import encoded_group


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
