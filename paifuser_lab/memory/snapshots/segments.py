"""The address ranges that the allocator holds at a moment, and their bytes over time."""

from __future__ import annotations

from bisect import bisect_right, insort

import numpy

from .snapshot import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Segment,
    Trace,
)

GROWS = (SEGMENT_ALLOC, SEGMENT_MAP)
SHRINKS = (SEGMENT_FREE, SEGMENT_UNMAP)
SMALL_SEGMENT_BYTES = 2 << 20


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
    """The segments after an event, without their blocks: the last ones with all later events
    undone.
    """
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
    """Segments by address."""

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
