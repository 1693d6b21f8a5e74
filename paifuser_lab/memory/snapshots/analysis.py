"""A snapshot as a record: timeline by category, segment maps, and who held the peak."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy

from ...errors import FileError
from ...records import MemorySnapshot, SiteMemory, SnapshotMap
from .lifetimes import Lifetimes, lifetimes_of
from .moments import map_at
from .post_mortem import post_mortem
from .reading import read_snapshot
from .replay import replay as replayed
from .segments import reserved_bytes
from .settings import Settings
from .snapshot import OOM, Segment, Snapshot, Trace
from .stacks import CATEGORIES, Stacks

MAX_TIMES = 1500
MAX_SITES = 200


def memory_snapshot(
    subject: Snapshot | str | Path | dict[str, Any],
    *,
    device: int | None = None,
    replay: bool = False,
) -> MemorySnapshot:
    """Analyse a memory snapshot: who held what, when, in which segments.

    `subject` is a file, a snapshot that was read, or what `torch.cuda.memory._snapshot` returned.

    Without `device`, the one with most events. `replay=True` also simulates the recorded requests
    under other allocator settings. If memory ran out, the record has the post-mortem of the last
    time.
    """
    snapshot = subject if isinstance(subject, Snapshot) else read_snapshot(subject)
    chosen = _checked(snapshot, device)
    trace, segments = snapshot.trace(chosen), snapshot.segments_of(chosen)
    lifetimes = lifetimes_of(trace, segments)
    alive, reserved = lifetimes.alive_bytes(), reserved_bytes(trace, segments)
    peak = int(alive.argmax()) if len(alive) else -1
    at_peak = lifetimes.alive_at(peak)
    shown = _shown(alive, reserved)
    times = trace.times_ms()
    present, columns = _by_category(lifetimes, snapshot.stacks, shown)
    ended = numpy.flatnonzero(trace.action == OOM)
    held_at_end = sum(segment.size for segment in segments)
    return MemorySnapshot(
        name=snapshot.name,
        device=chosen,
        devices=snapshot.devices,
        events=len(trace),
        is_timed=trace.is_timed,
        settings=str(Settings.of_snapshot(snapshot.settings)),
        categories=present,
        time_ms=tuple(times[shown].tolist()),
        held_bytes=columns,
        reserved_bytes=tuple(reserved[shown].tolist()),
        peak_ms=float(times[peak]) if peak >= 0 else 0.0,
        peak_bytes=int(lifetimes.size[at_peak].sum()),
        peak_reserved_bytes=int(reserved.max(initial=held_at_end)),
        at_peak=_sites(lifetimes, at_peak, snapshot.stacks),
        blocks_at_peak=len(at_peak),
        maps=_maps(trace, segments, lifetimes, snapshot.stacks, peak),
        replay=replayed(snapshot, device=chosen) if replay else None,
        out_of_memory=post_mortem(snapshot, chosen, int(ended[-1])) if len(ended) else None,
    )


def _checked(snapshot: Snapshot, device: int | None) -> int:
    if device is not None and device not in snapshot.devices:
        known = ", ".join(map(str, snapshot.devices)) or "none"
        raise FileError(
            f"{snapshot.name} holds nothing of device {device}; devices in it: {known}."
        )
    return snapshot.device(device)


def _shown(alive: numpy.ndarray, reserved: numpy.ndarray) -> numpy.ndarray:
    """The events of the timeline: all, or of each interval the highest of both and the last."""
    count = len(alive)
    if count <= MAX_TIMES:
        return numpy.arange(count)
    edges = numpy.linspace(0, count, MAX_TIMES // 3 + 1).astype(int)
    chosen = {int(alive.argmax()), int(reserved.argmax())}
    for first, last in pairwise(edges):
        chosen |= {
            first + int(alive[first:last].argmax()),
            first + int(reserved[first:last].argmax()),
            int(last) - 1,
        }
    return numpy.asarray(sorted(chosen))


def _by_category(
    lifetimes: Lifetimes, stacks: Stacks, shown: numpy.ndarray
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """The categories that hold anything, and the bytes of each at the moments shown."""
    category = numpy.asarray(stacks.categories)[lifetimes.stack]
    present, columns = [], []
    for index, name in enumerate(CATEGORIES):
        of = category == index
        if of.any():
            present.append(name)
            columns.append(tuple(lifetimes.alive_bytes(of)[shown].tolist()))
    return tuple(present), tuple(columns)


def _sites(lifetimes: Lifetimes, blocks: numpy.ndarray, stacks: Stacks) -> tuple[SiteMemory, ...]:
    """What call sites hold in blocks, the largest first; the smallest of many are left out."""
    names, site_of = stacks.sites
    held: dict[tuple[int, int], list[int]] = {}
    for stack, size in zip(
        lifetimes.stack[blocks].tolist(), lifetimes.size[blocks].tolist(), strict=True
    ):
        row = held.setdefault((site_of[stack], stacks.categories[stack]), [0, 0])
        row[0] += 1
        row[1] += size
    largest = sorted(held.items(), key=lambda item: (-item[1][1], item[0]))[:MAX_SITES]
    return tuple(
        SiteMemory(
            site=names[site], category=CATEGORIES[category], blocks=blocks_held, held_bytes=size
        )
        for (site, category), (blocks_held, size) in largest
    )


def _maps(
    trace: Trace, segments: list[Segment], lifetimes: Lifetimes, stacks: Stacks, peak: int
) -> tuple[SnapshotMap, ...]:
    """The segments at the peak and at the end."""
    moments = {peak: "at the peak", len(trace) - 1: "at the end"}  # the same moment is named once
    return tuple(
        map_at(trace, segments, lifetimes, stacks, event, name) for event, name in moments.items()
    )
