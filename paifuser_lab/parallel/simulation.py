"""Steps of training on many processes, simulated: each computes, exchanges are in order on its
link, and an exchange begins when the last process is ready for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from ..records import Link

STEPS = 96  # a multiple of the usual numbers of steps between averages


@dataclass(frozen=True)
class Compute:
    """What a step computes on one process: milliseconds."""

    forward_ms: float
    backward_ms: float
    update_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """All of a step."""
        return self.forward_ms + self.backward_ms + self.update_ms

    def scaled(self, factor: float) -> Compute:
        """The same on a machine that takes `factor` times as long."""
        return Compute(factor * self.forward_ms, factor * self.backward_ms, factor * self.update_ms)


@dataclass(frozen=True)
class Communication:
    """What the processes exchange: buckets of bytes, every so many steps.

    A bucket goes `passes` times around a ring: 2 in an all-reduce, 3 where weights are gathered
    twice and gradients scattered. An overlapped bucket is ready when the backward pass has
    computed its share, others when all is computed. However fast the link, an exchange ends
    `least_ms` after the last process has computed at the earliest: packing, adding up, unpacking.
    """

    buckets: tuple[float, ...] = ()
    passes: int = 2
    every: int = 1
    is_overlapped: bool = True
    least_ms: float = 0.0

    def sent_bytes(self, ranks: int) -> float:
        """The bytes that each process sends, a step on average."""
        return sum(self.buckets) * self.passes * (ranks - 1) / ranks / self.every


@dataclass(frozen=True)
class Simulated:
    """The time of a step, and how much of it a process waits for others and for the link."""

    step_ms: float
    wait_ms: float


def simulate_steps(
    compute: Compute,
    communication: Communication,
    link: Link,
    ranks: int,
    *,
    spread: Sequence[float] = (1.0,),
    steps: int = STEPS,
) -> Simulated:
    """The mean over steps. `spread` are measured times of a step relative to their median; each
    process draws one of them for each step.
    """
    draw = random.Random(0)
    clocks = numpy.zeros(ranks)
    computed = 0.0
    for step in range(1, steps + 1):
        factors = numpy.array([draw.choice(spread) for _ in range(ranks)])
        computed += compute.total_ms * float(factors.mean())
        ends = clocks + factors * (compute.forward_ms + compute.backward_ms)
        if communication.buckets and ranks > 1 and step % communication.every == 0:
            over, count = 0.0, len(communication.buckets)
            for index, size in enumerate(communication.buckets, 1):
                share = index / count if communication.is_overlapped else 1.0
                ready = clocks + factors * (compute.forward_ms + compute.backward_ms * share)
                begin = max(float(ready.max()), over)
                over = begin + 1e3 * link.ring_s(size, ranks, communication.passes)
            ends = numpy.full(ranks, max(over, float(ends.max()) + communication.least_ms))
        clocks = ends + factors * compute.update_ms
    step_ms = float(clocks.max()) / steps
    return Simulated(step_ms, max(0.0, step_ms - computed / steps))


def buckets_of(size_bytes: float, bucket_bytes: float = 25e6) -> tuple[float, ...]:
    """A total as equal buckets of at most the given size, DDP's by default."""
    count = max(1, -int(-size_bytes // bucket_bytes))
    return (size_bytes / count,) * count
