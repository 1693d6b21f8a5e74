"""What a snapshot holds, as columns: segments, blocks, events; the segments at each moment."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy

from .settings import SMALL_SEGMENT_BYTES
from .stacks import Stacks

# what an event did, as torch names it; the index is its code in a trace's column
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "other",
)
CODES = {name: code for code, name in enumerate(ACTIONS)}
ALLOC, FREE_REQUESTED, FREE_COMPLETED = 0, 1, 2
SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM = 3, 4, 5, 6, 7
OTHER = len(ACTIONS) - 1


class Block(NamedTuple):
    """A block of a segment when the snapshot was taken."""

    address: int
    size: int
    requested: int
    is_free: bool
    stack: int


class Segment(NamedTuple):
    """A range of addresses that the allocator holds."""

    device: int
    address: int
    size: int
    stream: int
    is_large: bool
    is_expandable: bool
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Trace:
    """The events of one device in order, as columns."""

    action: numpy.ndarray  # codes of ACTIONS
    address: numpy.ndarray  # free bytes on the device where the action is `oom`
    size: numpy.ndarray
    stream: numpy.ndarray
    time_us: numpy.ndarray  # all 0 where the version of torch recorded none
    stack: numpy.ndarray  # an index of `Snapshot.stacks`

    def __len__(self) -> int:
        return len(self.action)

    @property
    def is_timed(self) -> bool:
        return bool(self.time_us.any())

    def times_ms(self) -> numpy.ndarray:
        """Milliseconds since the first event; the number of the event if none has a time."""
        if not self.is_timed:
            return numpy.arange(len(self), dtype=float)
        times: numpy.ndarray = (self.time_us - self.time_us[0]) / 1e3
        return numpy.maximum.accumulate(times)


@dataclass(frozen=True)
class Snapshot:
    """A memory snapshot as plain data."""

    name: str
    segments: tuple[Segment, ...]
    traces: tuple[Trace, ...]  # by device
    stacks: Stacks
    settings: Mapping[str, Any]
    device_type: str = "cuda"

    def device(self, wanted: int | None = None) -> int:
        """The device, or the one with most events and reserved memory."""
        if wanted is not None:
            return wanted

        def weight(device: int) -> tuple[int, int]:
            return self._events(device), reserved_at_end(self.segments_of(device))

        return max(self.devices, key=weight, default=0)

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices of which the snapshot holds anything."""
        traced = {device for device in range(len(self.traces)) if len(self.traces[device])}
        return tuple(sorted(traced | {segment.device for segment in self.segments}))

    def _events(self, device: int) -> int:
        return len(self.traces[device]) if device < len(self.traces) else 0

    def trace(self, device: int) -> Trace:
        empty = numpy.zeros(0, numpy.int64)
        return self.traces[device] if self._events(device) else Trace(*[empty] * 6)

    def segments_of(self, device: int) -> list[Segment]:
        """The segments of a device by address."""
        return sorted(
            (segment for segment in self.segments if segment.device == device),
            key=lambda segment: segment.address,
        )


GROWS = (SEGMENT_ALLOC, SEGMENT_MAP)
SHRINKS = (SEGMENT_FREE, SEGMENT_UNMAP)


def reserved_bytes(trace: Trace, segments: list[Segment]) -> numpy.ndarray:
    """The bytes that the allocator holds after each event, reckoned back from the end."""
    change = numpy.where(
        numpy.isin(trace.action, GROWS),
        trace.size,
        numpy.where(numpy.isin(trace.action, SHRINKS), -trace.size, 0),
    ).astype(numpy.int64)
    total = numpy.cumsum(change)
    last = int(total[-1]) if len(total) else 0
    reserved: numpy.ndarray = numpy.maximum(total + reserved_at_end(segments) - last, 0)
    return reserved


def reserved_at_end(segments: list[Segment]) -> int:
    """The bytes that the allocator holds when the snapshot is taken."""
    return sum(segment.size for segment in segments)


def segments_at(trace: Trace, segments: list[Segment], event: int) -> list[Segment]:
    """The segments after an event, without blocks: the last ones with later events undone."""
    ranges = _Ranges(segments)
    later = numpy.flatnonzero(numpy.isin(trace.action, GROWS + SHRINKS))
    for index in later[later > event][::-1]:
        address, size = int(trace.address[index]), int(trace.size[index])
        action, stream = int(trace.action[index]), int(trace.stream[index])
        if action in GROWS:
            ranges.remove(address, size)
        else:
            ranges.add(address, size, stream, is_expandable=action == SEGMENT_UNMAP)
    return ranges.segments


class _Ranges:
    def __init__(self, segments: list[Segment]) -> None:
        self.device = segments[0].device if segments else 0
        self.segments = sorted(
            (segment._replace(blocks=()) for segment in segments), key=lambda row: row.address
        )

    def add(self, address: int, size: int, stream: int, *, is_expandable: bool) -> None:
        """Add a range; pages of an expandable segment join their neighbours."""
        is_large = size > SMALL_SEGMENT_BYTES
        segment = Segment(self.device, address, size, stream, is_large, is_expandable)
        if is_expandable:
            segment = self._joined(segment)
        insort(self.segments, segment, key=lambda row: row.address)

    def remove(self, address: int, size: int) -> None:
        """Take a range away, also out of the middle of a segment."""
        index = bisect_right(self.segments, address, key=lambda row: row.address) - 1
        if index < 0 or address >= self.segments[index].address + self.segments[index].size:
            return  # was released by an event that is not recorded
        segment = self.segments.pop(index)
        end, cut_end = segment.address + segment.size, address + size
        before = segment._replace(size=address - segment.address)
        after = segment._replace(address=cut_end, size=max(0, end - cut_end))
        self.segments[index:index] = [part for part in (before, after) if part.size > 0]

    def _joined(self, segment: Segment) -> Segment:
        start, end = segment.address, segment.address + segment.size
        for other in [
            row
            for row in self.segments
            if row.is_expandable
            and row.stream == segment.stream
            and (row.address == end or row.address + row.size == start)
        ]:
            self.segments.remove(other)
            start = min(start, other.address)
            end = max(end, other.address + other.size)
            segment = segment._replace(address=start, size=end - start, is_large=other.is_large)
        return segment
