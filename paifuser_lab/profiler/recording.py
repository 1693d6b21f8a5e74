"""What torch's own profiler saw of one run, joined to layers: memory held, kernels on a device, and
the way back.

Layers are marked by annotations; whatever starts between a mark's beginning and its end, in the
same thread, is that layer's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
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
    """One thing that the profiler saw; `sequence` ties an operator to its gradient, `link` a kernel
    to its operator.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: int = 0
    nbytes: int = 0
    sequence: int = -1
    number: int = 0
    link: int = 0
    is_device: bool = False

    @property
    def ms(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


def wake_profiler() -> None:
    """Start torch's profiler once in this thread: one that first starts in another than the main
    thread complains on the terminal.
    """
    with profile():
        pass


def record_run(
    model: nn.Module, call: Callable[[], Any], device: torch.device, *, memory: bool = False
) -> list[Event]:
    """Run a model once under torch's profiler, every layer marked."""
    marks: list[Any] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        mark = record_function(MARK + layer)
        mark.__enter__()  # type: ignore[no-untyped-call]
        marks.append(mark)

    def leave(layer: str, output: Any) -> None:
        marks.pop().__exit__(None, None, None)

    on_device = "cuda" if device.type == "cuda" else None
    with (
        profile(use_device=on_device, profile_memory=memory) as profiled,
        watching(model, enter, leave),
    ):
        call()
    return [_event(one) for one in profiled.kineto_results.events()]


def _event(one: Any) -> Event:
    return Event(
        name=one.name(),
        start_ns=one.start_ns(),
        end_ns=one.start_ns() + one.duration_ns(),
        thread=one.start_thread_id(),
        nbytes=one.nbytes(),
        sequence=one.sequence_nr(),
        number=one.correlation_id(),
        link=one.linked_correlation_id(),
        is_device=one.device_type() != torch.profiler.DeviceType.CPU,
    )


def with_layers(events: Iterable[Event]) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """Every event of the host in order of time, with the layers that it lies in, from the outermost
    to the innermost.
    """
    stacks: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda one: (one.start_ns, -one.end_ns)):
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
    """The most bytes of tensors that were alive at once while a layer ran, beyond what was there
    before the model was called.
    """
    held, peaks = 0, defaultdict(int, {"": 0})
    for event, layers in with_layers(events):
        if event.name == MEMORY:
            held += event.nbytes
        for layer in (*layers, ""):
            peaks[layer] = max(peaks[layer], held)
    return dict(peaks)


def kernels_by_layer(events: list[Event]) -> dict[str, dict[str, tuple[int, float]]]:
    """What ran on the device for each layer: kernel → how often and how many ms."""
    started = _device_work(events)
    found: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
    for event, layers in with_layers(events):
        for kernel in _started_by(event, started):
            layer = layers[-1] if layers else ""
            calls, spent = found[layer].get(kernel.name, (0, 0.0))
            found[layer][kernel.name] = (calls + 1, spent + kernel.ms)
    return dict(found)


def backward_by_layer(events: list[Event]) -> dict[str, float]:
    """How long the gradient of each layer's own operators took, in ms; on a device, what its
    kernels took.
    """
    started = _device_work(events)
    owner: dict[int, str] = {}
    back: list[Event] = []
    spent: dict[str, float] = defaultdict(float)
    for event, layers in with_layers(events):
        if event.name.startswith(BACKWARD):
            if not back or back[-1].end_ns <= event.start_ns or back[-1].thread != event.thread:
                back.append(event)
                spent[owner.get(event.sequence, "")] += 0.0 if started else event.ms
        elif event.sequence >= 0:
            # the operator that came last is the one whose gradient bears the number
            owner[event.sequence] = layers[-1] if layers else ""
        if (
            started
            and back
            and event.start_ns < back[-1].end_ns
            and event.thread == back[-1].thread
        ):
            spent[owner.get(back[-1].sequence, "")] += sum(
                one.ms for one in _started_by(event, started)
            )
    return dict(spent)


def _started_by(event: Event, started: dict[int, list[Event]]) -> list[Event]:
    """The work that an operator started; a call of the driver, which has a link itself, is numbered
    apart from operators.
    """
    return started.pop(event.number, []) if event.number and not event.link else []


def _device_work(events: list[Event]) -> dict[int, list[Event]]:
    """Work on the device by the number of the operator that started it."""
    started: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.is_device and event.link and event.name != MEMORY:
            started[event.link].append(event)
    return started
