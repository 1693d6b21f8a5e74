"""What a stream reads: groups of frames, each the unit of work, of replay and of integrity."""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from ..errors import StreamError
from .batching import BatchRule

POLL_S = 0.05


@dataclass(frozen=True)
class Group:
    """Consecutive frames that travel together: a list of them, or an encoded group of pictures.

    `sequence` counts groups from 0 and `first` frames; `count` is how many frames the group has
    once it is decoded. An encoded payload is bytes or a tuple of them; the stream's first stage
    then has `takes_group`, and returns `count` frames.
    """

    sequence: int
    first: int
    count: int
    payload: Any
    checksum: int | None = None

    def sealed(self) -> Group:
        """The same group with the checksum of an encoded payload, which the worker verifies."""
        return Group(self.sequence, self.first, self.count, self.payload, checksum(self.payload))


@runtime_checkable
class Source(Protocol):
    """Yields groups in order; the same groups, from any number on, when it is opened again.

    A source that cannot be opened again has no journal, and is not opened again after an error; one
    that can has `can_reopen = True`.
    """

    @property
    def name(self) -> str:
        """What the report and the journal call it."""

    @property
    def frames(self) -> int | None:
        """How many frames there will be, if that is known."""

    def groups(self, start: int = 0) -> Iterator[Group]:
        """The groups from number `start` on; a generator, closed when the stream ends early."""


def checksum(payload: Any) -> int | None:
    """The CRC-32 of bytes or of a sequence of bytes; None for anything else."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return zlib.crc32(payload)
    if isinstance(payload, tuple) and all(isinstance(part, bytes) for part in payload):
        value = 0
        for part in payload:
            value = zlib.crc32(part, zlib.crc32(len(part).to_bytes(8, "little"), value))
        return value
    return None


class Items:
    """Any iterable of frames, in groups of `group`; with `delay_ms` a group of a live source closes
    that long after its first frame, full or not.

    A sequence (or a function that returns a fresh iterator) can be opened again, as a resumed
    stream does; any other iterator is read once.
    """

    def __init__(
        self,
        frames: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        group: int = 8,
        delay_ms: float | None = None,
        name: str = "items",
    ) -> None:
        self.rule = BatchRule(group, delay_ms)
        self.name = name
        self._iterable = _checked(frames)

    @property
    def can_reopen(self) -> bool:
        """Whether the same frames come again."""
        is_fixed = isinstance(self._iterable, Sequence) or callable(self._iterable)
        return is_fixed and self.rule.delay_ms is None

    @property
    def frames(self) -> int | None:
        """The length of a sequence."""
        return len(self._iterable) if isinstance(self._iterable, Sequence) else None

    def groups(self, start: int = 0) -> Iterator[Group]:
        """The groups from number `start` on; those of a live source have no fixed borders."""
        items = self._iterable() if callable(self._iterable) else self._iterable
        delay_ms = self.rule.delay_ms
        batches = (
            self._full(iter(items)) if delay_ms is None else self._live(iter(items), delay_ms / 1e3)
        )
        first = 0
        for sequence, frames in enumerate(batches):
            if sequence >= start:
                yield Group(sequence, first, len(frames), frames)
            first += len(frames)

    def _full(self, items: Iterator[Any]) -> Iterator[list[Any]]:
        while frames := list(islice(items, self.rule.count)):
            yield frames

    def _live(self, items: Iterator[Any], delay_s: float) -> Iterator[list[Any]]:
        """Read on a thread of its own, so that a group can close while no frame comes."""
        waiting: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=self.rule.count)
        has_ended = threading.Event()
        reader = threading.Thread(
            target=_read, args=(items, waiting, has_ended), daemon=True, name="paifuser-camera"
        )
        reader.start()
        frames: list[Any] = []
        due = float("inf")  # of a group that has a frame
        try:
            while True:
                try:
                    wait = max(due - time.monotonic(), 0.0) if frames else POLL_S
                    kind, value = waiting.get(timeout=wait)
                except queue.Empty:
                    kind, value = "none", None
                if kind == "item":
                    due = due if frames else time.monotonic() + delay_s
                    frames.append(value)
                is_over = kind in ("error", "end")
                is_full = len(frames) >= self.rule.count
                is_late = kind == "none" and time.monotonic() >= due
                if frames and (is_full or is_over or is_late):
                    yield frames
                    frames = []
                if kind == "error":
                    raise value
                if is_over:
                    return
        finally:
            has_ended.set()


def _checked(frames: Any) -> Any:
    """What can be iterated over, or called for that; a path is not its letters."""
    if isinstance(frames, str | bytes | PurePath):
        raise StreamError(
            f"{str(frames)!r} is a path; open it as a source, VideoFile, ImageFolder or "
            "ParquetImages of paifuser_lab.streaming.sources."
        )
    if not callable(frames) and not hasattr(frames, "__iter__"):
        raise StreamError(
            f"A {type(frames).__name__} is no source of frames; give an iterable, or a function "
            "that returns one."
        )
    return frames


def _read(items: Iterator[Any], waiting: queue.Queue[tuple[str, Any]], is_over: Any) -> None:
    message: tuple[str, Any] = ("end", None)
    try:
        for item in items:
            if not _put(waiting, ("item", item), is_over):
                return
    except BaseException as error:
        message = ("error", error)
    _put(waiting, message, is_over)


def _put(waiting: queue.Queue[Any], message: Any, is_over: threading.Event) -> bool:
    while not is_over.is_set():
        try:
            waiting.put(message, timeout=POLL_S)
        except queue.Full:
            continue
        return True
    return False
