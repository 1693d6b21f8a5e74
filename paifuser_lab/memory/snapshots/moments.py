"""The blocks and segments of one moment, and how fragmented they are."""

from __future__ import annotations

from typing import Any

import numpy

from ...records import SnapshotMap
from .lifetimes import Lifetimes
from .snapshot import Segment, Trace, segments_at
from .stacks import CATEGORIES, Stacks

MAX_BLOCKS = 6000


def map_at(
    trace: Trace,
    segments: list[Segment],
    lifetimes: Lifetimes,
    stacks: Stacks,
    event: int,
    moment: str,
) -> SnapshotMap:
    """The segments after an event, with the blocks in them; of many blocks the largest."""
    held = segments_at(trace, segments, event)
    alive = lifetimes.alive_at(event)
    owner = _owners(held, lifetimes.address[alive])
    inside, owner = alive[owner >= 0], owner[owner >= 0]
    used = numpy.bincount(owner, lifetimes.size[inside], minlength=len(held)).astype(numpy.int64)
    free, largest = _free(held, lifetimes, inside, owner)
    times = trace.times_ms()
    return SnapshotMap(
        moment=moment,
        time_ms=float(times[event]) if 0 <= event < len(times) else 0.0,
        segment_bytes=tuple(segment.size for segment in held),
        segment_allocated_bytes=tuple(
            min(allocated, segment.size)
            for allocated, segment in zip(used.tolist(), held, strict=True)
        ),
        segment_stream=tuple(segment.stream for segment in held),
        segment_is_large=tuple(segment.is_large for segment in held),
        segment_is_expandable=tuple(segment.is_expandable for segment in held),
        blocks_left_out=max(0, len(inside) - MAX_BLOCKS),
        requested_bytes=int(lifetimes.requested[inside].sum()),
        free_bytes=free,
        largest_free_bytes=largest,
        **_blocks(held, lifetimes, stacks, inside, owner),
    )


def _blocks(
    held: list[Segment],
    lifetimes: Lifetimes,
    stacks: Stacks,
    inside: numpy.ndarray,
    owner: numpy.ndarray,
) -> dict[str, Any]:
    """The columns of the blocks, by address; of many blocks those of the largest."""
    largest = numpy.argsort(-lifetimes.size[inside], kind="stable")[:MAX_BLOCKS]
    chosen = largest[numpy.argsort(lifetimes.address[inside[largest]], kind="stable")]
    blocks, owners = inside[chosen], owner[chosen]
    starts = numpy.asarray([segment.address for segment in held], numpy.int64)
    names, site_of = stacks.sites
    sites: dict[str, int] = {}
    stack = lifetimes.stack[blocks].tolist()
    return {
        "block_segment": tuple(owners.tolist()),
        "block_offset_bytes": tuple(
            (lifetimes.address[blocks] - starts[owners]).tolist() if len(blocks) else ()
        ),
        "block_bytes": tuple(lifetimes.size[blocks].tolist()),
        "block_site": tuple(sites.setdefault(names[site_of[index]], len(sites)) for index in stack),
        "block_category": tuple(stacks.categories[index] for index in stack),
        "sites": tuple(sites),
        "categories": CATEGORIES,
    }


def _owners(held: list[Segment], address: numpy.ndarray) -> numpy.ndarray:
    """The index of the segment of each address; −1 if none holds it."""
    starts = numpy.asarray([segment.address for segment in held], numpy.int64)
    ends = starts + numpy.asarray([segment.size for segment in held], numpy.int64)
    index = numpy.searchsorted(starts, address, side="right") - 1
    if not len(held):
        return numpy.full(len(address), -1)
    owners: numpy.ndarray = numpy.where((index >= 0) & (address < ends[index]), index, -1)
    return owners


def _free(
    held: list[Segment], lifetimes: Lifetimes, inside: numpy.ndarray, owner: numpy.ndarray
) -> tuple[int, int]:
    """The free bytes within segments, and the largest free range."""
    by_segment: dict[int, list[tuple[int, int]]] = {}
    order = numpy.argsort(lifetimes.address[inside], kind="stable")
    for index, segment in zip(inside[order].tolist(), owner[order].tolist(), strict=True):
        start = int(lifetimes.address[index])
        by_segment.setdefault(segment, []).append((start, start + int(lifetimes.size[index])))
    total, largest = 0, 0
    for index, segment in enumerate(held):
        at = segment.address
        for start, end in [
            *by_segment.get(index, []),
            (segment.address + segment.size, segment.address + segment.size),
        ]:
            total, largest = total + max(0, start - at), max(largest, start - at)
            at = max(at, end)
    return total, largest
