"""Pack buffers into one arena: those alive at the same time lie apart, the others may overlap.

Best fit places one buffer after another into the smallest gap that holds it, largest first or
longest-lived first; the better of the two is kept. Up to 60 buffers are also packed by an integer
program, which proves the smallest arena. Sizes are as requested: nothing is rounded or aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..records import PackingMethod
from .integer_program import smallest_arena
from .spans import Span

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
    height, method, offsets = min(
        ((_height(spans, offsets), method, offsets) for method, offsets in _by_best_fit(spans)),
        key=lambda packed: packed[0],
    )
    packing = Packing(offsets, height, method, height, is_optimal=height == bound)
    if packing.is_optimal or len(spans) > MOST_FOR_INTEGER_PROGRAM:
        return packing
    found = smallest_arena(spans, at_least=bound, at_most=height, seconds=seconds)
    if found is None:
        return packing
    smaller, is_proven = _height(spans, found.offsets), found.is_proven
    if smaller >= height:
        return Packing(offsets, height, method, height, is_optimal=is_proven)
    return Packing(
        found.offsets,
        smaller,
        "integer program",
        height,
        is_optimal=is_proven or smaller == bound,
    )


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


def _by_best_fit(spans: Sequence[Span]) -> list[tuple[PackingMethod, tuple[int, ...]]]:
    return [
        (method, best_fit(spans, sorted(range(len(spans)), key=lambda index: key(spans[index]))))
        for method, key in ORDERS.items()
    ]


def _height(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((offset + span.size for offset, span in zip(offsets, spans, strict=True)), default=0)
