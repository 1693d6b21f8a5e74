"""What a stream does with frames: stages, called with lists on workers; a frame's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..errors import StreamError


@dataclass(frozen=True)
class FrameError:
    """What stands in place of a frame that a stage could not answer; later stages skip it.

    A stage may return it for single items itself, such as a frame that cannot be decoded.
    """

    stage: str
    message: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.message}"


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


@runtime_checkable
class Stage(Protocol):
    """Called with a list of items; returns a list of the same length.

    It is pickled to each worker and opened there once, so `open` loads models and `__init__` only
    keeps options. A stage with `takes_group = True` stands first, is called with the payload of an
    encoded group, and returns its frames.
    """

    @property
    def name(self) -> str:
        """What reports and errors call it."""

    @property
    def takes_group(self) -> bool:
        """Whether it is called with an encoded payload instead of a list of frames."""

    def open(self) -> None:
        """Load what it needs, on the worker."""

    def __call__(self, items: Any) -> list[Any]:
        """One answer for each item, in the same order."""

    def close(self) -> None:
        """Let go of what `open` loaded."""


class Opened:
    """A base for stages that have nothing to open or close, and that take lists of frames."""

    takes_group = False

    def open(self) -> None:
        return

    def close(self) -> None:
        return


class Map(Opened):
    """A stage that calls a function with each item."""

    def __init__(self, function: Callable[[Any], Any], *, name: str | None = None) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, items: Any) -> list[Any]:
        return [self.function(item) for item in items]


def as_stage(stage: Any) -> Stage:
    """A stage as it is; a plain function as a stage that calls it with each item."""
    if isinstance(stage, Stage):
        return stage
    if callable(stage):
        return Map(stage)
    raise StreamError(
        f"{stage!r} is no stage; give a function of one frame, or an object with name, open, "
        "close and a call on a list."
    )
