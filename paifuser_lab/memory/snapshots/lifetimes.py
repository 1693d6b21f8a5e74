"""Each block from its allocation to its release, in columns.

A block is alive until its release is complete: one that another stream still uses is not reusable.
Blocks from before the first event are found by their release, or because they are still there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from .settings import SMALLEST_BYTES
from .snapshot import ALLOC, FREE_COMPLETED, Segment, Trace
from .stacks import NO_STACK

BEFORE = -1  # the event of an allocation from before the first event


@dataclass(frozen=True)
class Lifetimes:
    """Blocks as columns, with the events of their allocation and release."""

    address: numpy.ndarray
    size: numpy.ndarray  # rounded to what torch rounds to by default
    requested: numpy.ndarray
    start: numpy.ndarray
    end: numpy.ndarray  # the number of events for a block that is never released
    stack: numpy.ndarray
    stream: numpy.ndarray
    events: int

    def __len__(self) -> int:
        return len(self.address)

    def alive_at(self, event: int) -> numpy.ndarray:
        """The indices of the blocks that are alive after an event."""
        alive: numpy.ndarray = numpy.flatnonzero((self.start <= event) & (event < self.end))
        return alive

    def alive_bytes(self, of: numpy.ndarray | None = None) -> numpy.ndarray:
        """The bytes alive after each event, of all blocks or of those of a mask."""
        every = numpy.ones(len(self), bool) if of is None else of
        change = numpy.zeros(self.events + 1, numpy.int64)
        begun = every & (self.start >= 0)
        numpy.add.at(change, self.start[begun], self.size[begun])
        numpy.subtract.at(change, self.end[every], self.size[every])
        before = int(self.size[every & (self.start < 0)].sum())
        alive: numpy.ndarray = before + numpy.cumsum(change[: self.events])
        return alive


def lifetimes_of(
    trace: Trace, segments: list[Segment], smallest: int = SMALLEST_BYTES
) -> Lifetimes:
    """The lifetimes of all blocks of a device, their sizes rounded to multiples of `smallest`."""
    chosen = numpy.flatnonzero((trace.action == ALLOC) | (trace.action == FREE_COMPLETED))
    address = trace.address[chosen]
    order = chosen[numpy.argsort(address, kind="stable")]  # by address, then by time
    is_alloc = trace.action[order] == ALLOC
    follows = numpy.zeros(len(order), bool)
    follows[1:] = trace.address[order[1:]] == trace.address[order[:-1]]

    end = numpy.full(len(order), len(trace), numpy.int64)
    if len(order):
        # a block ends with the next event at its address; were the release lost, with the next
        # allocation there
        end[:-1] = numpy.where(follows[1:], order[1:], len(trace))
    recorded = order[is_alloc]
    released = order[~is_alloc & ~follows]  # from before the first event
    standing = _standing(trace, segments)
    return Lifetimes(
        address=_joined(trace.address[recorded], trace.address[released], standing[0]),
        size=_joined(
            rounded(trace.size[recorded], smallest),
            rounded(trace.size[released], smallest),
            standing[1],
        ),
        requested=_joined(trace.size[recorded], trace.size[released], standing[2]),
        start=_joined(
            recorded, numpy.full(len(released), BEFORE), numpy.full(len(standing[0]), BEFORE)
        ),
        end=_joined(end[is_alloc], released, numpy.full(len(standing[0]), len(trace))),
        stack=_joined(trace.stack[recorded], numpy.full(len(released), NO_STACK), standing[3]),
        stream=_joined(trace.stream[recorded], trace.stream[released], standing[4]),
        events=len(trace),
    )


def rounded(sizes: numpy.ndarray, smallest: int = SMALLEST_BYTES) -> numpy.ndarray:
    """Sizes as torch rounds them by default on CUDA."""
    whole: numpy.ndarray = -(-numpy.maximum(sizes, 1) // smallest) * smallest
    return whole


def _standing(trace: Trace, segments: list[Segment]) -> list[numpy.ndarray]:
    """Blocks at the end that no event allocated: address, size, requested, stack, stream."""
    used = [
        (block.address, block.size, block.requested, block.stack, segment.stream)
        for segment in segments
        for block in segment.blocks
        if not block.is_free
    ]
    columns = numpy.asarray(used, numpy.int64).reshape(len(used), 5).T
    allocated = numpy.unique(trace.address[trace.action == ALLOC])
    is_new = ~numpy.isin(columns[0], allocated)
    return [column[is_new] for column in columns]


def _joined(*parts: numpy.ndarray) -> numpy.ndarray:
    whole: numpy.ndarray = numpy.concatenate([part.astype(numpy.int64) for part in parts])
    return whole
