"""Summarise the events of a trace, nested by their times alone, by operator, layer and kernel."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from ...records import TracedCopy, TracedKernel, TracedLayer, TracedOperator, TraceSummary
from .events import DATA_LOADING, STEP, Events, Kind, layer_of

Floats = NDArray[numpy.float64]
Rows = NDArray[Any]  # of integers, or of booleans as a choice of rows

BLOCK = 1 << 13

WAITS = frozenset(
    f"{maker}{call}"
    for maker in ("cuda", "hip")
    for call in ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "Memcpy")
) | {"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"}
NO_LAUNCHES = ("HostFunc", "Attribute")


def summary_of(events: Events) -> TraceSummary:
    table = Table(events)
    nesting = nest(table)
    own, total = _device_times(table, nesting)
    runtime = table.is_kind(Kind.RUNTIME)
    waits = runtime & table.is_named(lambda name: name in WAITS)
    steps = table.is_kind(Kind.ANNOTATION) & table.is_named(lambda name: name.startswith(STEP))
    loading = table.is_named(lambda name: name.startswith(DATA_LOADING))
    return TraceSummary(
        name=events.file,
        span_ms=_span(table.start, table.end) / 1e3,
        events=events.seen,
        skipped=events.skipped,
        steps=int(steps.sum()),
        has_device=bool(table.is_on_device.any()),
        operators=_operators(table, nesting, own, total),
        kernels=_kernels(table, nesting),
        layers=_layers(table, total),
        copies=tuple(_copies(events)),
        device_idle_ratio=_device_idle(table),
        cpu_idle_ratio=_cpu_idle(table, nesting),
        data_loading_ms=float(table.length[loading].sum()) / 1e3,
        synchronisation_ms=float(table.length[waits].sum()) / 1e3,
        synchronisations=int(waits.sum()),
        value_reads=_value_reads(table),
        launches=int((runtime & table.is_named(_is_launch)).sum()),
    )


def _owners(table: Table, nesting: Nesting, rows: Rows) -> Rows:
    """The operator that started each device event, by its id or around its launch, or -1."""
    known = numpy.flatnonzero((table.external > 0) & (table.kind <= Kind.OPERATOR))
    owner = _lookup(table.external[rows], table.external[known], known)
    calls = numpy.flatnonzero((table.correlation > 0) & table.is_kind(Kind.RUNTIME))
    call = _lookup(table.correlation[rows], table.correlation[calls], calls)
    around = numpy.where(call >= 0, nesting.parent[call], -1)
    return numpy.where(owner >= 0, owner, around)


def _lookup(ids: Rows, known: Rows, rows: Rows) -> Rows:
    """The first row with each of `ids`, where `known` are the ids of `rows`; -1 if none."""
    if not len(rows):
        return numpy.full(len(ids), -1)
    order = numpy.argsort(known, kind="stable")
    position = numpy.minimum(numpy.searchsorted(known[order], ids), len(rows) - 1)
    match = order[position]
    return numpy.where((known[match] == ids) & (ids > 0), rows[match], -1)


def _device_times(table: Table, nesting: Nesting) -> tuple[Floats, Floats]:
    """The device time of each CPU event: of kernels that it started, and with nested events."""
    own = numpy.zeros(len(table.start))
    rows = numpy.flatnonzero(table.is_on_device)
    owners = _owners(table, nesting, rows)
    numpy.add.at(own, owners[owners >= 0], table.length[rows[owners >= 0]])
    total = own.copy()
    sources = at = numpy.flatnonzero(own)
    while at.size:
        above = nesting.parent[at]
        at, sources = above[above >= 0], sources[above >= 0]
        numpy.add.at(total, at, own[sources])
    return own, total


def _operators(
    table: Table, nesting: Nesting, own: Floats, total: Floats
) -> tuple[TracedOperator, ...]:
    rows = table.is_kind(Kind.OPERATOR)
    once = rows & ~nesting.is_again(table)
    calls = table.count(once)
    times = {
        "self_ms": table.by_name(rows, nesting.own),
        "total_ms": table.by_name(once, table.length),
        "device_self_ms": table.by_name(rows, own),
        "device_ms": table.by_name(once, total),
    }
    summaries = [
        TracedOperator(
            name=table.names[name],
            calls=int(calls[name]),
            **{column: float(us[name]) / 1e3 for column, us in times.items()},
        )
        for name in numpy.flatnonzero(calls)
    ]
    return tuple(sorted(summaries, key=lambda row: (-row.self_ms, row.name)))


def _layers(table: Table, total: Floats) -> tuple[TracedLayer, ...]:
    rows = table.is_kind(Kind.LAYER)
    calls = table.count(rows)
    cpu, device = table.by_name(rows, table.length), table.by_name(rows, total)
    summaries = []
    for name in numpy.flatnonzero(calls):
        layer, kind = layer_of(table.names[name])
        times = {"cpu_ms": float(cpu[name]) / 1e3, "device_ms": float(device[name]) / 1e3}
        summaries.append(TracedLayer(layer=layer, type=kind, calls=int(calls[name]), **times))
    return tuple(sorted(summaries, key=lambda row: (-row.device_ms, -row.cpu_ms, row.layer)))


def _kernels(table: Table, nesting: Nesting) -> tuple[TracedKernel, ...]:
    rows = table.is_kind(Kind.KERNEL)
    calls, device = table.count(rows), table.by_name(rows, table.length)
    layers = _layers_of_kernels(table, nesting, numpy.flatnonzero(rows))
    summaries = [
        TracedKernel(
            name=table.names[name],
            calls=int(calls[name]),
            device_ms=float(device[name]) / 1e3,
            layer=max(spent := layers.get(int(name), {}), key=spent.__getitem__, default=None),
            layer_count=len(spent),
        )
        for name in numpy.flatnonzero(calls)
    ]
    return tuple(sorted(summaries, key=lambda row: (-row.device_ms, row.name)))


def _layers_of_kernels(table: Table, nesting: Nesting, rows: Rows) -> dict[int, dict[str, float]]:
    """The innermost layers that ran each kernel (by name), and the time in each."""
    owners = _owners(table, nesting, rows)
    layers = numpy.where(owners >= 0, nesting.layer[owners], -1)
    rows, layers = rows[layers >= 0], layers[layers >= 0]
    pairs, which = numpy.unique(
        table.name[rows].astype(numpy.int64) << 32 | table.name[layers], return_inverse=True
    )
    spent = numpy.bincount(which, table.length[rows], len(pairs))
    layers_of: dict[int, dict[str, float]] = {}
    for pair, time in zip(pairs.tolist(), spent.tolist(), strict=True):
        layer = layer_of(table.names[pair & 0xFFFFFFFF])[0]
        layers_of.setdefault(pair >> 32, {})[layer] = time
    return layers_of


def _copies(events: Events) -> Iterator[TracedCopy]:
    for direction, (calls, size, length) in sorted(events.copied.items()):
        yield TracedCopy(
            direction=direction, calls=int(calls), bytes=int(size), device_ms=length / 1e3
        )


def _device_idle(table: Table) -> float | None:
    """The share of the span without a kernel, averaged over devices; None without a device."""
    devices = numpy.unique(table.lane[table.is_on_device])
    span = _span(table.start, table.end)
    if not len(devices) or not span:
        return None
    rows = table.is_kind(Kind.KERNEL)
    busy = sum(
        _covered(table.start[chosen], table.end[chosen])
        for chosen in (rows & (table.lane == device) for device in devices)
    )
    return float(numpy.clip(1 - busy / (span * len(devices)), 0, 1))


def _cpu_idle(table: Table, nesting: Nesting) -> float | None:
    """The share of the main thread's span without operator or runtime call: Python, or idle."""
    operators = table.is_kind(Kind.OPERATOR)
    if not operators.any():
        return None
    main = int(numpy.bincount(table.lane[operators], nesting.own[operators]).argmax())
    on_main = ~table.is_on_device & (table.lane == main)
    busy = on_main & (operators | table.is_kind(Kind.RUNTIME))
    span = _span(table.start[on_main], table.end[on_main])
    if not span:
        return None
    return float(numpy.clip(1 - _covered(table.start[busy], table.end[busy]) / span, 0, 1))


def _span(starts: Floats, ends: Floats) -> float:
    return float(ends.max() - starts.min())


def _covered(starts: Floats, ends: Floats) -> float:
    """The length of the union of intervals."""
    if not len(starts):
        return 0.0
    order = numpy.argsort(starts, kind="stable")
    starts, ends = starts[order], numpy.maximum.accumulate(ends[order])
    before = numpy.concatenate([starts[:1], ends[:-1]])
    return float(numpy.maximum(ends - numpy.maximum(starts, before), 0).sum())


def _value_reads(table: Table) -> int:
    """How often a tensor's value was read as a number; one of these operators calls the other."""
    calls = table.count(table.is_kind(Kind.OPERATOR))
    reads = ("aten::_local_scalar_dense", "aten::item")
    return max(
        (int(calls[index]) for index, name in enumerate(table.names) if name in reads), default=0
    )


def _is_launch(name: str) -> bool:
    return "Launch" in name and not any(word in name for word in NO_LAUNCHES)


class Table:
    """The columns as arrays."""

    def __init__(self, events: Events) -> None:
        self.names = list(events.names)
        self.length: Floats = numpy.frombuffer(events.length)
        self.start: Floats = numpy.frombuffer(events.start)
        self.kind: Rows = numpy.frombuffer(events.kind, numpy.int8)
        self.name: Rows = numpy.frombuffer(events.name, numpy.int32)
        self.lane: Rows = numpy.frombuffer(events.lane, numpy.int32)
        self.external: Rows = numpy.frombuffer(events.external, numpy.int64)
        self.correlation: Rows = numpy.frombuffer(events.correlation, numpy.int64)

    @cached_property
    def end(self) -> Floats:
        return self.start + self.length

    @cached_property
    def is_on_device(self) -> Rows:
        return numpy.greater_equal(self.kind, Kind.KERNEL)

    def is_kind(self, kind: Kind) -> Rows:
        return numpy.equal(self.kind, kind)

    def is_named(self, predicate: Callable[[str], bool]) -> Rows:
        matches = numpy.fromiter((predicate(name) for name in self.names), bool, len(self.names))
        return numpy.asarray(matches[self.name])

    def by_name(self, rows: Rows, weights: Floats) -> Floats:
        """The sum of `weights` over the chosen rows, for each name."""
        return numpy.asarray(
            numpy.bincount(self.name[rows], weights[rows], len(self.names)), numpy.float64
        )

    def count(self, rows: Rows) -> Rows:
        """The number of the chosen rows for each name."""
        return numpy.bincount(self.name[rows], minlength=len(self.names))


@dataclass(frozen=True)
class Nesting:
    """For each CPU event: its own time, and the rows of its parent and layer (-1 if none)."""

    own: Floats
    parent: Rows
    layer: Rows

    def is_again(self, table: Table) -> Rows:
        """Which events repeat their parent, its only child of the same name: both are one call."""
        inner = numpy.flatnonzero((self.parent >= 0) & ~table.is_kind(Kind.RUNTIME))
        around = self.parent[inner]
        children = numpy.bincount(around, minlength=len(self.parent))
        again = numpy.zeros(len(self.parent), bool)
        again[inner] = (children[around] == 1) & (table.name[inner] == table.name[around])
        return again


def nest(table: Table) -> Nesting:
    """Find the parent of each event, thread by thread, from times alone.

    Clocks round, so an event that extends beyond the end of another is inside it if at least half
    of it is. Runtime calls are inside an operator but are not subtracted from its own time.
    """
    own = array("d", table.length.tobytes())
    parent, layer = array("i", [-1]) * len(own), array("i", [-1]) * len(own)
    rows: list[int] = []  # enclosing the current event, outermost first
    ends: list[float] = []
    here = -1
    for row, lane, start, length, kind in _in_order(table):
        if lane != here:
            here = lane
            rows.clear()
            ends.clear()
        while rows and 2 * (ends[-1] - start) < length:
            rows.pop()
            ends.pop()
        end = start + length
        if rows:
            around = parent[row] = rows[-1]
            layer[row] = layer[around]
            end = min(end, ends[-1])
            if kind != Kind.RUNTIME:
                own[around] -= end - start
        if kind == Kind.LAYER:
            layer[row] = row
        if kind != Kind.RUNTIME:
            rows.append(row)
            ends.append(end)
    return Nesting(
        numpy.maximum(numpy.frombuffer(own), 0.0),
        numpy.frombuffer(parent, numpy.int32),
        numpy.frombuffer(layer, numpy.int32),
    )


def _in_order(table: Table) -> Iterator[tuple[int, int, float, float, int]]:
    """The CPU events by thread and time, enclosing events first; in blocks, to save memory."""
    rows = numpy.flatnonzero(~table.is_on_device)
    keys = (
        table.external[rows],
        table.kind[rows],
        -table.length[rows],
        table.start[rows],
        table.lane[rows],
    )
    order = rows[numpy.lexsort(keys)]  # operators are numbered as they begin
    for first in range(0, len(order), BLOCK):
        block = order[first : first + BLOCK]
        columns = (
            block,
            table.lane[block],
            table.start[block],
            table.length[block],
            table.kind[block],
        )
        yield from zip(*(column.tolist() for column in columns), strict=True)
