"""Why memory ran out: what was asked for, what was free, and what would have made it fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from ...records import OutOfMemory, Remedy, readable_bytes
from ...records.text import counted, readable_share
from .allocator import Allocator
from .lifetimes import Lifetimes, lifetimes_of
from .moments import map_at
from .replay import requests_of, run
from .segments import reserved_bytes
from .settings import Settings
from .snapshot import Segment, Snapshot, Trace
from .stacks import CATEGORIES, Stacks

GROWS_WITH_BATCH = ("activations", "inputs")
OTHER_SETTINGS = (Settings(expandable_segments=True), Settings(max_split_size_mb=128))


def post_mortem(snapshot: Snapshot, device: int, event: int) -> OutOfMemory:
    """The post-mortem of an event at which memory ran out."""
    whole, segments = snapshot.trace(device), snapshot.segments_of(device)
    lifetimes = lifetimes_of(whole, segments)
    stacks, stack = snapshot.stacks, int(whole.stack[event])
    held = map_at(whole, segments, lifetimes, stacks, event, "out of memory")
    reserved = int(reserved_bytes(whole, segments)[event])
    names, site_of = stacks.sites
    asked, left = int(whole.size[event]), max(0, int(whole.address[event]))
    empty = sum(
        size
        for size, used in zip(held.segment_bytes, held.segment_allocated_bytes, strict=True)
        if not used
    )
    remedies = (
        _trimmed(Settings.of_snapshot(snapshot.settings), asked, left, empty),
        *_simulated(whole, segments, event, left + reserved),
        _smaller_batch(lifetimes, stacks, event, asked, left + reserved),
    )
    return OutOfMemory(
        time_ms=float(whole.times_ms()[event]),
        requested_bytes=asked,
        site=names[site_of[stack]],
        free_on_device_bytes=left,
        reserved_bytes=reserved,
        allocated_bytes=held.allocated_bytes,
        largest_free_bytes=held.largest_free_bytes,
        remedies=remedies,
    )


def _trimmed(own: Settings, asked: int, left: int, empty: int) -> Remedy:
    """Whether giving back the segments in which nothing is used leaves room for the request."""
    return Remedy(
        what="if free segments had been given back (empty_cache)",
        fits=left + empty >= own.segment_bytes(asked),
        outcome=f"{readable_bytes(left + empty)} would have been left for {readable_bytes(asked)}",
    )


def _simulated(trace: Trace, segments: list[Segment], event: int, limit: int) -> Iterator[Remedy]:
    """The request after all earlier ones, under other settings and the same limit."""
    asked, stream = int(trace.size[event]), int(trace.stream[event])
    requests = list(requests_of(trace, segments, until=event))
    for settings in OTHER_SETTINGS:
        allocator = Allocator(settings, limit)
        _, refused = run(requests, allocator)
        fits = not refused and allocator.allocate(asked, stream) is not None
        outcome = (
            f"{readable_bytes(allocator.reserved_bytes)} reserved of {readable_bytes(limit)}"
            if fits
            else f"refused after {readable_bytes(allocator.reserved_bytes)} reserved"
            if not refused
            else f"{counted(refused, 'earlier request')} refused"
        )
        yield Remedy(what=f"with {settings}", fits=fits, outcome=outcome)


def _smaller_batch(
    lifetimes: Lifetimes, stacks: Stacks, event: int, asked: int, limit: int
) -> Remedy:
    """The share of the batch that fits, if activations and inputs are in proportion to it and
    nothing else is.
    """
    alive = lifetimes.alive_at(event)
    category = numpy.asarray(stacks.categories)[lifetimes.stack[alive]]
    scales = numpy.isin(category, [CATEGORIES.index(name) for name in GROWS_WITH_BATCH])
    growing = int(lifetimes.size[alive][scales].sum()) + asked
    fixed = int(lifetimes.size[alive][~scales].sum())
    share = (limit - fixed) / growing if growing else 0.0
    if share >= 1:
        what = "with the same batch, were all free memory in one piece"
    elif share > 0:
        what = f"with a batch of at most {readable_share(share)} of this one"
    else:
        what = "with a smaller batch"
    return Remedy(
        what=what,
        fits=share > 0,
        outcome=f"{readable_bytes(growing)} are in proportion to the batch, "
        f"{readable_bytes(fixed)} are not",
    )
