"""Short videos and images, made for tests."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image

CLOSED = {"preset": "ultrafast", "g": "5", "bf": "0", "sc_threshold": "0"}
OPEN = {"x264-params": "open-gop=1:keyint=12:min-keyint=12:scenecut=0:bframes=2:b-adapt=0"}


def pictures(count: int, width: int = 64, height: int = 48) -> list[np.ndarray]:
    """A texture that moves by a pixel each frame."""
    texture = np.random.default_rng(0).integers(0, 255, (height, width + count, 3), np.uint8)
    return [np.ascontiguousarray(texture[:, at : at + width]) for at in range(count)]


def clip(
    path: Path,
    count: int = 20,
    *,
    options: dict[str, str] | None = None,
    codec: str = "libx264",
    rotation: int = 0,
    times: list[int] | None = None,
) -> Path:
    """A video of moving pictures; `times` are milliseconds, 40 apart where none are given."""
    with own_schedule(), av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = dict(CLOSED if options is None else options)
        stream.codec_context.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        for index, picture in enumerate(pictures(count)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.time_base = Fraction(1, 1000)
            frame.pts = times[index] if times else 40 * index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@contextmanager
def own_schedule() -> Iterator[None]:
    """SVT-AV1 makes the thread that opens it a real-time one where it runs as root; all that this
    thread starts later would be that too, and starve what runs beside it.
    """
    if not hasattr(os, "sched_getscheduler"):  # not on macOS and Windows
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def sound(path: Path) -> Path:
    """A file with sound alone."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        for index in range(4):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = 16000, 1024 * index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def encoded(array: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """An image's file."""
    content = io.BytesIO()
    Image.fromarray(array).save(content, format=kind, **options)
    return content.getvalue()
