"""The events of torch's profiler for a loop, as time spans by name, in integer nanoseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import MeasureError

LOOP = "paifuser_lab: the loop"
MODEL = "paifuser_lab: a model's call"
WATCHING = "paifuser_lab: watching"  # which the loop alone would not do
SYNCHRONIZE = "paifuser_lab: synchronize"
BACKWARD = "autograd::engine::evaluate_function"
BATCH = "enumerate(DataLoader)#"
STEP = "Optimizer.step#"
COMPILED = "Torch-Compiled Region"

Span = tuple[int, int]  # from, to


@dataclass
class Trace:
    """The loop's time on host and device; the time of watching is left out of every figure."""

    loop: Span
    host: dict[str, list[Span]] = field(default_factory=dict)
    device: dict[str, list[Span]] = field(default_factory=dict)

    def named(self, *prefixes: str) -> list[Span]:
        """The spans on the host whose name has one of these prefixes."""
        return [
            span for name, spans in self.host.items() if name.startswith(prefixes) for span in spans
        ]

    def kernels(self, word: str = "") -> list[Span]:
        """The spans of device kernels, without copies."""
        return [
            span
            for name, spans in self.device.items()
            if word in name.lower() and not name.startswith("Mem")
            for span in spans
        ]

    def ms(self, spans: Iterable[Span]) -> float:
        """The part of the loop's time that the spans cover, in ms."""
        return length(without(_clipped(spans, self.loop), self.named(WATCHING))) / 1e6

    @property
    def wall_ms(self) -> float:
        return self.ms([self.loop])

    def count(self, *names: str, apart_from: tuple[str, ...] = ()) -> int:
        """How often the loop called one of these; calls nested in them are not counted again."""
        spans = outermost(span for name in names for span in self.host.get(name, []))
        return len(spans) - len(inside(spans, self.named(WATCHING, SYNCHRONIZE, *apart_from)))


def trace_of(events: Iterable[Any]) -> Trace:
    """Sort the events of torch's profiler into host and device, by name."""
    host: dict[str, list[Span]] = defaultdict(list)
    device: dict[str, list[Span]] = defaultdict(list)
    for event in events:
        side = host if event.device_type().name == "CPU" else device
        if side is host or not event.is_user_annotation():  # on a device a mark covers pauses too
            side[event.name()].append((event.start_ns(), event.end_ns()))
    if LOOP not in host:
        raise MeasureError(
            "The loop runs a profiler of its own, which ends the one that watches it; take it out "
            "for the checklist."
        )
    return Trace(host[LOOP][0], dict(host), dict(device))


def _clipped(spans: Iterable[Span], to: Span) -> list[Span]:
    return [
        (max(begin, to[0]), min(end, to[1]))
        for begin, end in spans
        if begin < to[1] and end > to[0]
    ]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The union of the spans, in order and without overlaps."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif end > begin:
            union.append((begin, end))
    return union


def length(spans: Iterable[Span]) -> int:
    """The length of the union of the spans."""
    return sum(end - begin for begin, end in joined(spans))


def without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """The time of `spans` that lies in none of `taken`."""
    begins, ends = _borders(taken)
    left: list[Span] = []
    for begin, end in joined(spans):
        for index in range(bisect_right(ends, begin), bisect_left(begins, end)):
            left.append((begin, begins[index]))
            begin = ends[index]
        left.append((begin, end))
    return [(begin, end) for begin, end in left if begin < end]


def inside(spans: Iterable[Span], around: Iterable[Span]) -> list[Span]:
    """The spans that begin within `around`, unchanged: for counting."""
    begins, ends = _borders(around)
    return [
        span
        for span in sorted(spans)
        if bisect_right(begins, span[0]) > bisect_right(ends, span[0])
    ]


def _borders(spans: Iterable[Span]) -> tuple[list[int], list[int]]:
    """Where the union of the spans begins, and where it ends."""
    union = joined(spans)
    return [begin for begin, _ in union], [end for _, end in union]


def outermost(spans: Iterable[Span]) -> list[Span]:
    """The spans that lie in no other, so that nested operators are not counted again."""
    outer: list[Span] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not outer or end > outer[-1][1]:
            outer.append((begin, end))
    return outer
