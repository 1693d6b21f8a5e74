"""Latency against throughput of dynamic batching."""

from __future__ import annotations

from ..records import BatchingCurve
from .picture import Axis, Dots, Key, Line, Mark, Panel, Picture, Shape

TONES = ("soft", "main", "good", "memory", "overhead", "bad")
SHAPES: tuple[Shape, ...] = ("disc", "square", "up", "diamond", "down", "plus")


def picture(curve: BatchingCurve) -> Picture:
    """The median of each rule at each rate, and the 95th percentile above it, dashed."""
    marks: list[Mark] = []
    looks = []
    for index, (rule, points) in enumerate(curve.rules.items()):
        tone, shape = TONES[index % len(TONES)], SHAPES[index % len(SHAPES)]
        rates = [point.answered_per_s for point in points]
        medians = [point.p50_ms for point in points]
        tails = [point.p95_ms for point in points]
        marks += [
            Line(rates, tails, width=1.0, tone=tone, style="dashed"),
            Line(rates, medians, tone=tone),
            Dots(rates, medians, shape, tone=tone),
        ]
        looks.append(Key(tone, rule, shape))
    every = [point for points in curve.rules.values() for point in points]
    low, high = min(point.p50_ms for point in every), max(point.p95_ms for point in every)
    across = Axis.linear(0, 1.05 * max(point.answered_per_s for point in every),
                         "answered a second", "rate")  # fmt: skip
    up = Axis.log(low / 1.2, high * 1.2, "latency, ms: p50, p95 dashed")
    panel = Panel(across, up, tuple(marks), 260)
    return Picture(curve.title, "latency by throughput", ((panel,),), legend=tuple(looks))
