"""What comes out of a stream for each frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .stage import FrameError


@dataclass(frozen=True)
class Result:
    """The answer to one frame, in the order of the frames.

    `latency_ms` is the time from reading the frame's group to delivering it. A frame that a stage
    could not answer has `error`, and no value.
    """

    index: int
    value: Any
    latency_ms: float
    node: str = ""
    error: FrameError | None = None

    @property
    def is_ok(self) -> bool:
        """Whether every stage answered."""
        return self.error is None
