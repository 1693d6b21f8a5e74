"""The recorded requests of a snapshot, simulated under other allocator settings.

Blocks from before the first event are allocated first. Where the recorded run gave memory back to
the device, the simulated one does as well. Not simulated: pools of their own, such as those of CUDA
graphs, which count as part of their stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from ...progress import Progress, progress
from ...records import Replay, ReplayRow
from .allocator import Allocator, Block
from .lifetimes import BEFORE, lifetimes_of
from .settings import Settings
from .snapshot import (
    ALLOC,
    FREE_COMPLETED,
    OOM,
    SHRINKS,
    Segment,
    Snapshot,
    Trace,
    reserved_at_end,
    reserved_bytes,
)

Request = tuple[int, int, int, int]  # what, address, size, stream
TRIM = FREE_COMPLETED + 1
SHOWN_EVERY = 20_000
OTHERS = (
    Settings(expandable_segments=True),
    Settings(max_split_size_mb=64),
    Settings(max_split_size_mb=256),
    Settings(roundup_power2_divisions=4),
    Settings(roundup_power2_divisions=16),
)
COLLECTING = Settings(garbage_collection_threshold=0.8)  # needs a limit


def replay(
    snapshot: Snapshot,
    settings: Sequence[Settings] | None = None,
    *,
    device: int | None = None,
) -> Replay:
    """Simulate the recorded requests under its own settings and others, within the same limit."""
    chosen = snapshot.device(device)
    trace, segments = snapshot.trace(chosen), snapshot.segments_of(chosen)
    reserved = reserved_bytes(trace, segments)
    limit = capacity(trace, reserved)
    own = Settings.of_snapshot(snapshot.settings)
    if settings is None:
        settings = OTHERS if limit is None else (*OTHERS, COLLECTING)
    requests = list(requests_of(trace, segments))
    runs = dict.fromkeys((own, *settings))
    with progress(f"Replaying {snapshot.name}", len(requests) * len(runs)) as shown:
        rows = tuple(_row(requests, each, limit, shown) for each in runs)
    return Replay(
        snapshot=snapshot.name,
        device=chosen,
        requests=sum(request[0] == ALLOC for request in requests),
        recorded_peak_reserved_bytes=int(reserved.max(initial=reserved_at_end(segments))),
        limit_bytes=limit,
        rows=rows,
    )


def requests_of(
    trace: Trace, segments: list[Segment], until: int | None = None
) -> Iterator[Request]:
    """The requests, releases and trims before an event in order; all without one."""
    lifetimes = lifetimes_of(trace, segments)
    old = numpy.flatnonzero(lifetimes.start == BEFORE)
    for index in old[numpy.argsort(lifetimes.address[old], kind="stable")]:
        yield (
            ALLOC,
            int(lifetimes.address[index]),
            int(lifetimes.requested[index]),
            int(lifetimes.stream[index]),
        )
    shrinks = numpy.isin(trace.action, SHRINKS)
    ends_run = shrinks & ~numpy.append(shrinks[1:], [False])[: len(shrinks)]
    kept = (trace.action == ALLOC) | (trace.action == FREE_COMPLETED) | ends_run
    kept[len(trace) if until is None else until :] = False
    columns = (
        numpy.where(ends_run, TRIM, trace.action)[kept],
        trace.address[kept],
        trace.size[kept],
        trace.stream[kept],
    )
    yield from zip(*(column.tolist() for column in columns), strict=True)


def run(requests: Sequence[Request], allocator: Allocator, shown: Progress | None = None) -> int:
    """Serve requests; how many did not fit."""
    alive: dict[int, Block] = {}
    refused = 0
    for done, (what, address, size, stream) in enumerate(requests, 1):
        if what == TRIM:
            allocator.trim()
        else:
            held = alive.pop(address, None)
            if held is not None:
                allocator.free(held)
            if what == ALLOC:
                block = allocator.allocate(size, stream)
                if block is None:
                    refused += 1
                else:
                    alive[address] = block
        if shown is not None and not done % SHOWN_EVERY:
            shown.advance(SHOWN_EVERY)
    return refused


def capacity(trace: Trace, reserved: numpy.ndarray) -> int | None:
    """What was held, and left on the device, when memory ran out; None if it never did."""
    ended = numpy.flatnonzero(trace.action == OOM)
    if not len(ended):
        return None
    return int((reserved[ended] + trace.address[ended]).max())


def _row(
    requests: Sequence[Request], settings: Settings, limit: int | None, shown: Progress
) -> ReplayRow:
    allocator = Allocator(settings, limit)
    refused = run(requests, allocator, shown)
    return ReplayRow(
        settings=str(settings),
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        device_calls=allocator.device_calls,
        refused=refused,
    )
