"""Record one run with torch's profiler and join it to layers: memory, device kernels, gradients.

Layers are marked by annotations; an event that starts within a mark, in the same thread, belongs to
that layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import profile, record_function

from ..model.watch import watching

MARK = "paifuser-lab layer: "
BACKWARD = "autograd::engine::evaluate_function"
MEMORY = "[memory]"


@dataclass(frozen=True)
class Event:
    """A profiler's event; `sequence` ties it to a gradient, `link` a kernel to its operator."""

    name: str
    start_ns: int
    end_ns: int
    thread: int = 0
    nbytes: int = 0
    sequence: int = -1
    number: int = 0
    link: int = 0
    is_device: bool = False
    stream: str = ""  # of a device

    @property
    def ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def lane(self) -> str:
        """Its stream of a device, or its thread."""
        return self.stream if self.is_device else str(self.thread)


def wake_profiler() -> None:
    """Start torch's profiler once: a first start outside the main thread would print a warning."""
    with profile():
        pass


def marking(model: nn.Module, name_of: Callable[[str], str]) -> AbstractContextManager[None]:
    """Annotate every call of a layer with a name."""
    marks: list[Any] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        marks.append(record_function(name_of(layer)))
        marks[-1].__enter__()

    def leave(layer: str, output: Any) -> None:
        marks.pop().__exit__(None, None, None)

    return watching(model, enter, leave)


def record_run(
    model: nn.Module, call: Callable[[], Any], device: torch.device, *, memory: bool = False
) -> list[Event]:
    """Run a model once under torch's profiler, every layer marked."""
    on_device = "cuda" if device.type == "cuda" else None
    with (
        profile(use_device=on_device, profile_memory=memory) as profiled,
        marking(model, lambda layer: MARK + layer),
    ):
        call()
    return [_event(event) for event in profiled.kineto_results.events()]


def _event(event: Any) -> Event:
    is_device = event.device_type() != torch.profiler.DeviceType.CPU
    stream = f"device {event.device_index()}, stream {event.device_resource_id()}"
    return Event(
        name=event.name(),
        start_ns=event.start_ns(),
        end_ns=event.start_ns() + event.duration_ns(),
        thread=event.start_thread_id(),
        nbytes=event.nbytes(),
        sequence=event.sequence_nr(),
        number=event.correlation_id(),
        link=event.linked_correlation_id(),
        is_device=is_device,
        stream=stream if is_device else "",
    )


def with_layers(events: Iterable[Event]) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """The events of the host in order of time, each with its layers from outermost to innermost."""
    stacks: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        if event.is_device and event.name != MEMORY:
            continue
        stack = stacks[event.thread]
        while stack and stack[-1].end_ns <= event.start_ns:
            stack.pop()
        if event.name.startswith(MARK):
            stack.append(event)
        else:
            yield event, tuple(mark.name.removeprefix(MARK) for mark in stack)


def bytes_held(events: Iterable[Event]) -> dict[str, int]:
    """The peak bytes of tensors alive while each layer ran, without those from before the call."""
    held, peaks = 0, defaultdict(int, {"": 0})
    for event, layers in with_layers(events):
        if event.name == MEMORY:
            held += event.nbytes
        for layer in (*layers, ""):
            peaks[layer] = max(peaks[layer], held)
    return dict(peaks)


def kernels_by_layer(events: list[Event]) -> dict[str, dict[str, tuple[int, float]]]:
    """The device kernels of each layer: kernel → calls and ms."""
    started = device_work(events)
    kernels: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
    for event, layers in with_layers(events):
        for kernel in started_by(event, started):
            layer = layers[-1] if layers else ""
            calls, spent = kernels[layer].get(kernel.name, (0, 0.0))
            kernels[layer][kernel.name] = (calls + 1, spent + kernel.ms)
    return dict(kernels)


def backward_by_layer(events: list[Event]) -> dict[str, float]:
    """The ms of the gradients of each layer's own operators; on a device, of their kernels."""
    started = device_work(events)
    owner: dict[int, str] = {}
    back: list[Event] = []
    spent: dict[str, float] = defaultdict(float)
    for event, layers in with_layers(events):
        is_within = (
            bool(back) and event.start_ns < back[-1].end_ns and event.thread == back[-1].thread
        )
        if event.name.startswith(BACKWARD) and not is_within:
            back.append(event)
            spent[owner.get(event.sequence, "")] += 0.0 if started else event.ms
            is_within = True
        elif event.sequence >= 0 and not is_within:
            # of several operators with this number, the gradient belongs to the last before it,
            # and torch records the gradient itself by this number, too
            owner[event.sequence] = layers[-1] if layers else ""
        if started and is_within:
            spent[owner.get(back[-1].sequence, "")] += sum(
                work.ms for work in started_by(event, started)
            )
    return dict(spent)


def started_by(event: Event, started: dict[int, list[Event]]) -> list[Event]:
    """The device work that an operator started; driver calls, with a link, count apart."""
    return started.pop(event.number, []) if event.number and not event.link else []


def device_work(events: list[Event]) -> dict[int, list[Event]]:
    """Device work by the number of the operator that started it."""
    started: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.is_device and event.link and event.name != MEMORY:
            started[event.link].append(event)
    return started
