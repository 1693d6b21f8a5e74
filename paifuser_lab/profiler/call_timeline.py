"""The timeline of the call that was recorded for memory and kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from ..records import CallTimeline
from .observation import Observation
from .recording import MARK, MEMORY, Event, device_work, started_by, with_layers

MOST_EVENTS = 2000  # the longest: more would be thinner than a line
DIGITS = 4  # of ms: a tenth of a microsecond


class Row(NamedTuple):
    """An event with its layer and its operator; of a call of a layer the operator is ''."""

    event: Event
    layer: str
    operator: str


def call_timeline(observation: Observation, events: list[Event]) -> CallTimeline:
    """What ran in the call that these events are of; the model itself is the whole."""
    rows = sorted(_rows(events), key=lambda row: (row.event.start_ns, -row.event.end_ns))
    begin = min(row.event.start_ns for row in rows)
    shown = [row for row in rows if row.layer or row.operator]
    longest = sorted(range(len(shown)), key=lambda index: -shown[index].event.ms)[:MOST_EVENTS]
    kept = [shown[index] for index in sorted(longest)]
    lanes = _lanes(row.event for row in rows)
    names = tuple(dict.fromkeys(lanes.values()))
    layers = tuple(dict.fromkeys(row.layer for row in kept))
    operators = tuple(dict.fromkeys(row.operator for row in kept))
    return CallTimeline(
        workload=observation.work.name,
        machine=observation.machine.label,
        latency_ms=median(observation.plain_ms),
        duration_ms=(max(row.event.end_ns for row in rows) - begin) / 1e6,
        lanes=names,
        layers=layers,
        operators=operators,
        lane_index=tuple(names.index(lanes[row.event.lane]) for row in kept),
        layer_index=tuple(layers.index(row.layer) for row in kept),
        operator_index=tuple(operators.index(row.operator) for row in kept),
        start_ms=tuple(round((row.event.start_ns - begin) / 1e6, DIGITS) for row in kept),
        end_ms=tuple(round((row.event.end_ns - begin) / 1e6, DIGITS) for row in kept),
        operators_ms=_outermost_ms(
            row.event for row in rows if row.operator and lanes[row.event.lane] == names[0]
        ),
        left_out=len(shown) - len(kept),
    )


def _rows(events: list[Event]) -> Iterator[Row]:
    for event in events:
        if event.name.startswith(MARK) and not event.is_device:
            yield Row(event, event.name.removeprefix(MARK), "")
    started = device_work(events)
    for event, layers in with_layers(events):
        if event.name != MEMORY:
            layer = layers[-1] if layers else ""
            yield Row(event, layer, event.name)
            for work in started_by(event, started):
                yield Row(work, layer, work.name)


def _lanes(events: Iterable[Event]) -> dict[str, str]:
    """The name of each lane: of threads, in the order of their first events, a short number."""
    first = {event.lane: event.is_device for event in events}
    threads = [lane for lane, is_device in first.items() if not is_device]
    named = {lane: f"thread {number}" for number, lane in enumerate(threads, 1)}
    return named | {lane: lane for lane, is_device in first.items() if is_device}


def _outermost_ms(events: Iterable[Event]) -> float:
    """The time in events of one thread, without those inside others."""
    spent_ns = reached_ns = 0
    for event in events:
        if event.start_ns >= reached_ns:
            spent_ns += event.end_ns - event.start_ns
            reached_ns = event.end_ns
    return spent_ns / 1e6
