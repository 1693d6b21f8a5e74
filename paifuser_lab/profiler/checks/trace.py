"""The events of torch's profiler for a loop, as time spans by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...errors import MeasureError
from .spans import Span, inside, length, outermost, without

LOOP = "paifuser_lab: the loop"
MODEL = "paifuser_lab: a model's call"
WATCHING = "paifuser_lab: watching"
SYNCHRONIZE = "paifuser_lab: synchronize"
BACKWARD = "autograd::engine::evaluate_function"
BATCH = "enumerate(DataLoader)#"
STEP = "Optimizer.step#"
COMPILED = "Torch-Compiled Region"


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
        kernels = [
            spans
            for name, spans in self.device.items()
            if word in name.lower() and not name.startswith("Mem")
        ]
        return [span for spans in kernels for span in spans]

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

    @property
    def has_backward(self) -> bool:
        return bool(self.named(BACKWARD))


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
