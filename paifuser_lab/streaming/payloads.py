"""Encoded groups as a tuple of bytes, so that one checksum covers all that a worker decodes: a JSON
header, then the packets of a video or encoded images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import DataError
from .frame import MILLISECOND

Payload = tuple[bytes, ...]


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
    rotation: int = 0
    """Degrees, counter-clockwise, by which the decoded image is turned before it is shown."""

    def packed(self) -> Payload:
        """The header and the packets."""
        header = {
            "kind": "pictures",
            "codec": self.codec,
            "extradata": self.extradata.hex(),
            "times": self.times,
            "shown": self.shown,
            "time_base": str(self.time_base),
            "rotation": self.rotation,
        }
        return (json.dumps(header).encode(), *self.packets)


@dataclass(frozen=True)
class Photos:
    """Encoded images, JPEG or PNG, with their names and times."""

    contents: tuple[bytes, ...]
    names: tuple[str, ...]
    times: tuple[int, ...]
    time_base: Fraction = MILLISECOND

    def packed(self) -> Payload:
        """The header and the images."""
        header = {
            "kind": "photos",
            "names": self.names,
            "times": self.times,
            "time_base": str(self.time_base),
        }
        return (json.dumps(header).encode(), *self.contents)


def unpacked(payload: Sequence[bytes]) -> Pictures | Photos:
    """The group that a payload holds."""
    try:
        header: dict[str, Any] = json.loads(payload[0])
        rest = tuple(payload[1:])
        base = Fraction(header["time_base"])
        times = tuple(header["times"])
        if header["kind"] == "photos":
            return Photos(rest, tuple(header["names"]), times, base)
        return Pictures(
            codec=header["codec"],
            extradata=bytes.fromhex(header["extradata"]),
            packets=rest,
            times=times,
            shown=tuple(header["shown"]),
            time_base=base,
            rotation=header["rotation"],
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(
            "This payload is no encoded group of pictures or images; the stage that decodes is "
            "for video files, folders of images and Parquet files."
        ) from error
