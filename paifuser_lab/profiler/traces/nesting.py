"""Find the nesting of each thread's events from their times alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
from numpy.typing import NDArray

from .events import Events, Kind

Floats = NDArray[numpy.float64]
Rows = NDArray[Any]  # of integers, or of booleans as a choice of rows

BLOCK = 1 << 13


class Table:
    """The columns as arrays, without events that never ended."""

    def __init__(self, events: Events) -> None:
        self.names, self.lanes = list(events.names), list(events.lanes)
        length = numpy.frombuffer(events.length)
        chosen: Any = (
            slice(None) if (ended := numpy.isfinite(length)).all() else numpy.flatnonzero(ended)
        )
        self.length: Floats = length[chosen]
        self.start: Floats = numpy.frombuffer(events.start)[chosen]
        self.kind: Rows = numpy.frombuffer(events.kind, numpy.int8)[chosen]
        self.name: Rows = numpy.frombuffer(events.name, numpy.int32)[chosen]
        self.lane: Rows = numpy.frombuffer(events.lane, numpy.int32)[chosen]
        self.external: Rows = numpy.frombuffer(events.external, numpy.int64)[chosen]
        self.correlation: Rows = numpy.frombuffer(events.correlation, numpy.int64)[chosen]

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
        """Which events repeat their parent: its only child, of the same name, dispatched again.

        They are one call, as for torch.profiler.
        """
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
