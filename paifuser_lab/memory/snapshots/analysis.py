"""A snapshot as a record: timeline, segment maps, who held the peak, why memory ran out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy

from ...errors import FileError
from ...records import (
    LayerMemory,
    MemorySnapshot,
    OutOfMemory,
    Remedy,
    SiteMemory,
    SnapshotMap,
    readable_bytes,
)
from ...records.text import counted, readable_share
from ...workload import Derived, Workload
from ..predict.predictor import options_of
from .allocator import Allocator
from .lifetimes import Lifetimes, lifetimes_of
from .live import recorded
from .reading import read_snapshot
from .replay import replay as replayed
from .replay import requests_of, run
from .settings import Settings
from .snapshot import OOM, Segment, Snapshot, Trace, reserved_at_end, reserved_bytes, segments_at
from .stacks import CATEGORIES, Stacks

MAX_BLOCKS = 6000  # of a map
GROWS_WITH_BATCH = ("activations", "inputs")
OTHER_SETTINGS = (Settings(expandable_segments=True), Settings(max_split_size_mb=128))
MAX_TIMES = 1500
MAX_SITES = 200


def memory_snapshot(
    subject: Workload | Derived | Snapshot | str | Path | dict[str, Any],
    train: bool = False,
    *,
    batch: int | None = None,
    device: int | None = None,
    replay: bool = False,
    **options: Any,
) -> MemorySnapshot:
    """Record the memory of a call, or of a step of training, of a workload or variant; or analyse a
    snapshot of CUDA's memory: who held what and when, by category, layer and call site.

    `subject` is a workload, a variant, a snapshot's file, a snapshot that was read, or what
    `torch.cuda.memory._snapshot` returned. A workload's `batch` is that of its example inputs
    unless one is given, and the other options are those of `lab.fits`.

    Of a snapshot, `device` is by default the one with most events. `replay=True` also simulates the
    recorded requests under other allocator settings. If memory ran out, the record has the
    post-mortem of the last time.
    """
    snapshot = _snapshot_of(subject, batch, {"train": train, **options})
    chosen, is_cpu = _checked(snapshot, device), snapshot.device_type == "cpu"
    trace, segments, stacks = snapshot.trace(chosen), snapshot.segments_of(chosen), snapshot.stacks
    lifetimes = lifetimes_of(trace, segments, *([1] if is_cpu else []))
    alive, reserved = lifetimes.alive_bytes(), reserved_bytes(trace, segments)
    peak = int(alive.argmax()) if len(alive) else -1
    at_peak = lifetimes.alive_at(peak)
    shown = _shown(alive, reserved)
    times = trace.times_ms()
    present, columns = _by_category(lifetimes, stacks, shown)
    names, site_of = stacks.sites
    by_site = _held_by([names[site] for site in site_of], lifetimes, at_peak, stacks)
    by_layer = _held_by(stacks.layers, lifetimes, at_peak, stacks)
    ended = numpy.flatnonzero(trace.action == OOM)
    # if both are the same event, it is named once
    mapped = {} if is_cpu else {peak: "at the peak", len(trace) - 1: "at the end"}
    return MemorySnapshot(
        name=snapshot.name,
        device=chosen,
        devices=snapshot.devices,
        events=len(trace),
        is_timed=trace.is_timed,
        device_type=snapshot.device_type,
        settings="" if is_cpu else str(Settings.of_snapshot(snapshot.settings)),
        categories=present,
        time_ms=tuple(times[shown].tolist()),
        held_bytes=columns,
        reserved_bytes=tuple(reserved[shown].tolist()),
        peak_ms=float(times[peak]) if peak >= 0 else 0.0,
        peak_bytes=int(lifetimes.size[at_peak].sum()),
        peak_reserved_bytes=int(reserved.max(initial=reserved_at_end(segments))),
        at_peak=tuple(SiteMemory(site=name, **held) for name, held in by_site),
        blocks_at_peak=len(at_peak),
        layers=tuple(LayerMemory(layer=name, **held) for name, held in by_layer),
        maps=tuple(
            map_at(trace, segments, lifetimes, stacks, event, moment)
            for event, moment in mapped.items()
        ),
        replay=replayed(snapshot, device=chosen) if replay and not is_cpu else None,
        out_of_memory=post_mortem(snapshot, chosen, int(ended[-1])) if len(ended) else None,
    )


def _snapshot_of(subject: Any, batch: int | None, options: dict[str, Any]) -> Snapshot:
    """The snapshot, which is recorded if the subject is a workload."""
    if isinstance(subject, Snapshot | str | Path | dict):
        if batch is not None or options != {"train": False}:
            raise FileError(
                "A snapshot's file has one recorded run; train, batch and options are for a "
                "workload."
            )
        return subject if isinstance(subject, Snapshot) else read_snapshot(subject)
    return recorded(subject, options_of(**options), batch)


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


def _held_by(
    names: Sequence[str], lifetimes: Lifetimes, blocks: numpy.ndarray, stacks: Stacks
) -> list[tuple[str, dict[str, Any]]]:
    """What is held in blocks by each stack's name and category; of many rows the largest."""
    held: dict[tuple[str, str], list[int]] = {}
    for stack, size in zip(
        lifetimes.stack[blocks].tolist(), lifetimes.size[blocks].tolist(), strict=True
    ):
        row = held.setdefault((names[stack], CATEGORIES[stacks.categories[stack]]), [0, 0])
        row[0] += 1
        row[1] += size
    largest = sorted(held.items(), key=lambda item: (-item[1][1], item[0]))[:MAX_SITES]
    return [
        (name, {"category": category, "blocks": count, "held_bytes": size})
        for (name, category), (count, size) in largest
    ]


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
        is_timed=whole.is_timed,
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
        refused = run(requests, allocator)
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
    """The share of the batch that fits, if activations and inputs alone are in proportion to it."""
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
