"""Time each layer itself: at each entry and exit, the time since the last is the innermost's.

The clock's bookkeeping lies outside the timed spans; the little that remains is measured on layers
that do nothing, and subtracted.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from ..model.watch import watching

IDLE_LAYERS = 400  # that do nothing, called one after another
CALIBRATIONS = 15


@dataclass(frozen=True)
class Run:
    """One watched run: each layer's own time, its calls, and the calls that it made."""

    own_ms: dict[str, float]
    calls: dict[str, int]
    calls_made: dict[str, int]

    @property
    def total_ms(self) -> float:
        return sum(self.own_ms.values())

    def corrected(self, call_ms: float) -> dict[str, float]:
        """Each layer's own time without watching, half of it at the caller, half at the called."""
        return {
            layer: max(
                0.0,
                spent - call_ms * (self.calls.get(layer, 0) + self.calls_made.get(layer, 0)) / 2,
            )
            for layer, spent in self.own_ms.items()
        }


def watch_run(model: nn.Module, call: Callable[[], Any], device: torch.device) -> Run:
    """Run a model once and time each layer."""
    clock = _CudaClock(device) if device.type == "cuda" else _Clock()
    layers = [""]
    calls: dict[str, int] = defaultdict(int)
    calls_made: dict[str, int] = defaultdict(int)
    stop, start = clock.stop, clock.start

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        stop(layers[-1])
        calls_made[layers[-1]] += 1
        calls[layer] += 1
        layers.append(layer)
        start()

    def leave(layer: str, output: Any) -> None:
        stop(layers.pop())
        start()

    with watching(model, enter, leave):
        start()
        call()
        stop("")
    return Run(clock.spent_ms(), dict(calls), dict(calls_made))


class _Clock:
    """Wall time; what happens between `stop` and `start` is not counted."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = defaultdict(int)
        self.began = 0

    def start(self) -> None:
        self.began = time.perf_counter_ns()

    def stop(self, layer: str) -> None:
        self.spent[layer] += time.perf_counter_ns() - self.began

    def spent_ms(self) -> dict[str, float]:
        return {layer: spent / 1e6 for layer, spent in self.spent.items()}


class _CudaClock:
    """Time on the device, by events in the current stream, read after a synchronisation."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[tuple[str, torch.cuda.Event]] = []

    def start(self) -> None:
        if not self.marks:
            self.stop("")

    def stop(self, layer: str) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self.marks.append((layer, event))

    def spent_ms(self) -> dict[str, float]:
        torch.cuda.synchronize(self.device)
        spent: dict[str, float] = defaultdict(float)
        for (_, before), (layer, after) in zip(self.marks, self.marks[1:], strict=False):
            spent[layer] += before.elapsed_time(after)
        return dict(spent)


@cache
def call_costs_ms() -> tuple[float, float]:
    """The cost of calling a layer and the cost of watching the call, both on this machine."""
    model = nn.Sequential(*(nn.Identity() for _ in range(IDLE_LAYERS)))
    x = torch.zeros(1)
    cpu = torch.device("cpu")
    plain, watched = [], []
    for _ in range(CALIBRATIONS):
        began = time.perf_counter_ns()
        model(x)
        plain.append((time.perf_counter_ns() - began) / 1e6)
        watched.append(watch_run(model, lambda: model(x), cpu).total_ms)
    call = min(plain) / IDLE_LAYERS
    return call, max(0.0, min(watched) / IDLE_LAYERS - call)


@cache
def operator_cost_ms() -> float:
    """The cost of calling an operator, measured on an addition of two scalars."""
    x = torch.zeros(1)
    taken = []
    with torch.no_grad():
        for _ in range(CALIBRATIONS):
            began = time.perf_counter_ns()
            for _ in range(100):
                torch.add(x, x)
            taken.append((time.perf_counter_ns() - began) / 1e8)
    return min(taken)
