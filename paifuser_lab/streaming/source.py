"""What a stream reads: groups of frames, each the unit of work, of replay and of integrity."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from ..arguments import check_count
from ..errors import StreamError


@dataclass(frozen=True)
class Group:
    """Consecutive frames that travel together: a list of them, or an encoded group of pictures.

    `sequence` counts groups from 0 and `first` frames; `count` is how many frames the group has
    once it is decoded. An encoded payload is bytes, or has them as `parts`; the first stage then
    has `takes_group`, and returns `count` frames.
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

    A source that can be opened again has `can_reopen = True`; others have no journal.
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
    """The CRC-32 of an encoded payload; None for a list of frames."""
    parts = (payload,) if isinstance(payload, bytes) else getattr(payload, "parts", None)
    if parts is None:
        return None
    value = 0
    for part in parts:
        value = zlib.crc32(part, zlib.crc32(len(part).to_bytes(8, "little"), value))
    return value


class Items:
    """Any iterable of frames, in groups of `group`; of a live source, groups of 1 do not wait.

    A sequence (or a function that returns a fresh iterator) can be opened again, as a resumed
    stream does; any other iterator is read once.
    """

    def __init__(
        self,
        frames: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        group: int = 8,
        name: str = "items",
    ) -> None:
        check_count("group", group, error=StreamError)
        self.group, self.name = group, name
        self._iterable = _checked(frames)

    @property
    def can_reopen(self) -> bool:
        """Whether the same frames come again."""
        return isinstance(self._iterable, Sequence) or callable(self._iterable)

    @property
    def frames(self) -> int | None:
        return len(self._iterable) if isinstance(self._iterable, Sequence) else None

    def groups(self, start: int = 0) -> Iterator[Group]:
        items = iter(self._iterable() if callable(self._iterable) else self._iterable)
        for sequence in itertools.count():
            if not (frames := list(itertools.islice(items, self.group))):
                return
            if sequence >= start:
                yield Group(sequence, sequence * self.group, len(frames), frames)


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
