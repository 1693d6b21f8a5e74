"""The memory plan of a workload: its buffers packed into one arena, against what torch held.

Buffers alive at the same time lie apart, the others may overlap. Best fit places one after another
into the smallest gap that holds it, largest first or longest-lived first; the better of the two is
kept. Up to 60 are also packed by a mixed-integer program (scipy.optimize.milp), which proves the
smallest arena: of two buffers alive at once one lies below the other, a binary variable per pair.
Sizes are as requested: nothing is rounded or aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from math import gcd

import numpy

from ..machine import hardware, threads
from ..measure import peak_bytes
from ..records import MemoryPlan, PackedBuffer, PackingMethod
from ..workload import Derived, Workload, running, workload_of
from .lifetimes import record


@dataclass(frozen=True)
class Span:
    """A size and a lifetime, from the operator `begin` to the operator `end`, both included."""

    size: int
    begin: int
    end: int

    def meets(self, other: Span) -> bool:
        """Whether both are alive at some operator."""
        return self.begin <= other.end and other.begin <= self.end


def smallest_arena(
    spans: Sequence[Span], *, at_least: int, at_most: int, seconds: float
) -> tuple[tuple[int, ...], bool] | None:
    """The smallest arena found in time, between two heights, and whether it is proven, or None."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    unit = gcd(*(span.size for span in spans))
    sizes = [span.size // unit for span in spans]
    pairs = [(i, j) for i, j in combinations(range(len(spans)), 2) if spans[i].meets(spans[j])]
    count, highest = len(spans), at_most // unit
    rows, columns, values, upper = _rows(sizes, pairs, highest)
    variables = count + 1 + len(pairs)
    matrix = coo_array((values, (rows, columns)), shape=(len(upper), variables))
    ones = [1.0] * len(pairs)
    result = milp(
        numpy.eye(1, variables, count)[0],
        integrality=[0] * (count + 1) + [1] * len(pairs),
        bounds=Bounds(
            [0.0] * count + [at_least / unit] + [0.0] * len(pairs),
            [float(highest - size) for size in sizes] + [float(highest), *ones],
        ),
        constraints=LinearConstraint(matrix.tocsr(), -numpy.inf, upper),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    offsets = _settled(spans, [float(value) for value in result.x[:count]])
    is_proven = result.status == 0 and _height(spans, offsets) <= unit * round(result.fun)
    return offsets, is_proven


def _rows(
    sizes: Sequence[int], pairs: Sequence[tuple[int, int]], highest: int
) -> tuple[list[int], list[int], list[float], list[float]]:
    """The constraints as triples of a sparse matrix, and their upper limits."""
    count = len(sizes)
    entries: list[tuple[int, int, float]] = []
    upper: list[float] = []
    for index, size in enumerate(sizes):  # offset + size ≤ height
        entries += [(len(upper), index, 1.0), (len(upper), count, -1.0)]
        upper.append(float(-size))
    for number, (i, j) in enumerate(pairs, count + 1):
        # i below j where the binary variable is 1, j below i where it is 0
        entries += [(len(upper), i, 1.0), (len(upper), j, -1.0), (len(upper), number, highest)]
        upper.append(float(highest - sizes[i]))
        entries += [(len(upper), j, 1.0), (len(upper), i, -1.0), (len(upper), number, -highest)]
        upper.append(float(-sizes[j]))
    rows, columns, values = (list(column) for column in zip(*entries, strict=True))
    return rows, columns, [float(value) for value in values], upper


def _settled(spans: Sequence[Span], rough: Sequence[float]) -> tuple[int, ...]:
    """Integer addresses in the order of the rough ones: each buffer lies on those below it."""
    offsets: dict[int, int] = {}
    for index in sorted(range(len(spans)), key=lambda index: rough[index]):
        below = (
            offset + spans[other].size
            for other, offset in offsets.items()
            if spans[other].meets(spans[index])
        )
        offsets[index] = max(below, default=0)
    return tuple(offsets[index] for index in range(len(spans)))


MOST_FOR_INTEGER_PROGRAM = 60
SECONDS = 10.0  # of the integer program

ORDERS: dict[PackingMethod, Callable[[Span], tuple[int, ...]]] = {
    "best fit by size": lambda span: (-span.size, span.begin - span.end, span.begin),
    "best fit by lifetime": lambda span: (span.begin - span.end, -span.size, span.begin),
}


@dataclass(frozen=True)
class Packing:
    """An address for each buffer."""

    offsets: tuple[int, ...]
    height: int
    method: PackingMethod
    best_fit: int  # the height by best fit alone
    is_optimal: bool  # proven: by the lower bound or by the integer program


def lower_bound(spans: Sequence[Span]) -> int:
    """The largest sum of sizes alive at once, which no packing can beat."""
    changes = [0] * (max((span.end for span in spans), default=0) + 2)
    for span in spans:
        changes[span.begin] += span.size
        changes[span.end + 1] -= span.size
    return max(accumulate(changes))


def pack(spans: Sequence[Span], *, seconds: float = SECONDS) -> Packing:
    """The best packing found; `seconds` limits the integer program."""
    bound = lower_bound(spans)
    packed = {
        method: best_fit(spans, sorted(range(len(spans)), key=lambda index: key(spans[index])))
        for method, key in ORDERS.items()
    }
    method = min(packed, key=lambda method: _height(spans, packed[method]))
    height = _height(spans, packed[method])
    packing = Packing(packed[method], height, method, height, is_optimal=height == bound)
    if packing.is_optimal or len(spans) > MOST_FOR_INTEGER_PROGRAM:
        return packing
    found = smallest_arena(spans, at_least=bound, at_most=height, seconds=seconds)
    if found is None:
        return packing
    offsets, is_proven = found
    smaller = _height(spans, offsets)
    if smaller >= height:
        return replace(packing, is_optimal=is_proven)
    is_optimal = is_proven or smaller == bound
    return Packing(offsets, smaller, "integer program", height, is_optimal)


def best_fit(spans: Sequence[Span], order: Sequence[int]) -> tuple[int, ...]:
    """Place the buffers in this order, each into the smallest gap between those alive with it."""
    offsets: dict[int, int] = {}
    for index in order:
        span, free, chosen = spans[index], 0, None
        taken = sorted(
            (offset, offset + spans[other].size)
            for other, offset in offsets.items()
            if spans[other].meets(span)
        )
        for begin, end in taken:
            gap = begin - free
            if gap >= span.size and (chosen is None or gap < chosen[0]):
                chosen = (gap, free)
            free = max(free, end)
        offsets[index] = free if chosen is None else chosen[1]
    return tuple(offsets[index] for index in range(len(spans)))


def _height(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((offset + span.size for offset, span in zip(offsets, spans, strict=True)), default=0)


NOTE = (
    "Buffers are what operators return and views of it; workspace inside operators is in what the "
    "allocator held, and in no buffer. Weights and inputs are in neither."
)


def plan_memory(subject: Workload | Derived) -> MemoryPlan:
    """Pack the buffers of a call into one arena, and measure what torch's allocator holds."""
    work = workload_of(subject)
    # a failing model raises here with its layer's name, and first-call allocations are done
    work.output()
    call = work.inputs.clone()
    with running(work.model), threads(subject.own_threads):
        recording = record(work.model, lambda: call(work.model))
        again = work.inputs.clone()
        held = peak_bytes(lambda: again(work.model), work.device)
    spans = [Span(buffer.size_bytes, buffer.begin, buffer.end) for buffer in recording.buffers]
    packing = pack(spans)
    return MemoryPlan(
        workload=work.name,
        machine=hardware().name,
        device=work.device.type,
        operators=recording.operators,
        buffers=tuple(
            PackedBuffer(
                layer=buffer.layer,
                operator=buffer.operator,
                size_bytes=buffer.size_bytes,
                begin=buffer.begin,
                end=buffer.end,
                offset_bytes=offset,
            )
            for buffer, offset in zip(recording.buffers, packing.offsets, strict=True)
        ),
        method=packing.method,
        best_fit_bytes=packing.best_fit,
        is_optimal=packing.is_optimal,
        referenced_bytes=recording.referenced_bytes,
        held_bytes=held,
        note=NOTE,
    )
