"""The time of each layer alone in each format, as the precision step builds it, on its real input,
formats in turn; and of the whole model in each float format, the baseline of the layers' times.

The rows are cached, one file per machine, number of threads and torch version: the next plan, also
of another model with layers of the same kind, measures only what is new.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..._files import cache_file
from ...errors import FileError, StepError
from ...machine import hardware, thread_choices, threads
from ...measure import in_turn
from ...model.formats import FLOATS, Range
from ...model.weights import weights_bytes
from ...progress import progress
from ...quantization.conversion import dequantize_values, quantize_values
from ...records import ConversionLatency, LatencyTable, LayerLatency
from ...variant import apply
from ...variant.recipe import Recipe
from ...workload import Workload, running
from .layers import LAYER, PlannedLayer
from .program import Cost

VERSION = 1  # raise it when layers are built or timed differently: old rows are then ignored
# more threads are taken where they make the model this much faster; a layer timed alone slows down
# with fewer threads than the model does
MIN_SPEEDUP = 1.5

LayerFormat = tuple[str, str]  # the layer's format, the format around it
Stop = Callable[[], bool]


def latency_table(
    work: Workload,
    layers: Mapping[str, tuple[PlannedLayer, tuple[LayerFormat, ...]]],
    *,
    count: int,
    seconds: float,
    should_stop: Stop,
) -> tuple[LatencyTable, list[str]]:
    """The rows for the layers and their formats, by likeness, from the cache or measured now; and
    notes on the formats that could not be built.

    When it is stopped, the table has the rows measured until then.
    """
    table, notes = kept_table(count), list[str]()
    untimed = {
        key: (planned, formats)
        for key, (planned, requested) in layers.items()
        if (formats := _missing(table, key, requested))
    }
    rows: list[LayerLatency] = []
    conversions: list[ConversionLatency] = []
    with progress("timing layers", len(untimed)) as shown, running(work.model), threads(count):
        for planned, formats in untimed.values():
            if should_stop():
                notes.append("the timing was stopped: some layers were not timed in every format")
                break
            output, converted, failed = _timed(
                planned, formats, work.device, seconds / len(untimed)
            )
            rows, conversions = [*rows, *output], [*conversions, *converted]
            notes += failed
            shown.advance(doing=planned.layer)
    return table.with_rows(tuple(rows), tuple(conversions)), notes


def kept_table(count: int) -> LatencyTable:
    """The cached rows for this machine and number of threads; an empty table if there are none."""
    empty = LatencyTable(
        machine=hardware().label, threads=count, torch_version=str(torch.__version__)
    )
    with suppress(FileError, OSError):
        return LatencyTable.load(_path(empty))
    return empty


def _missing(
    table: LatencyTable, likeness: str, formats: Iterable[LayerFormat]
) -> tuple[LayerFormat, ...]:
    """The formats to time: all of a layer's, in turn, as soon as one of them is new."""
    formats = tuple(formats)
    has_all = all(table.find(likeness, *format_) is not None for format_ in formats)
    needs_conversion = (
        any(name == "int8" for name, _ in formats) and table.conversion(likeness) is None
    )
    return () if has_all and not needs_conversion else formats


def _timed(
    planned: PlannedLayer, formats: Iterable[LayerFormat], device: torch.device, seconds: float
) -> tuple[list[LayerLatency], list[ConversionLatency], list[str]]:
    built, notes = _built(planned, formats)
    calls: dict[Any, Callable[[], Any]] = {key: call for key, (call, _) in built.items()}
    if has_int8 := any(name == "int8" for name, _ in built):
        calls |= _conversions(planned)
    ms = in_turn(calls, device, seconds)
    rows = [
        LayerLatency(
            likeness=planned.likeness,
            format=name,
            around=around,
            ms=ms[name, around],
            size_bytes=size,
        )
        for (name, around), (_, size) in built.items()
    ]
    if not has_int8:
        return rows, [], notes
    converted = ConversionLatency(
        likeness=planned.likeness, to_int8_ms=ms["to int8"], back_ms=ms["back"]
    )
    return rows, [converted], notes


def _built(
    planned: PlannedLayer, formats: Iterable[LayerFormat]
) -> tuple[dict[LayerFormat, tuple[Callable[[], Any], int]], list[str]]:
    """A call of the layer in each format, and its bytes; built by the step `precision`."""
    alone = Workload(planned.alone(), planned.inputs, name=planned.layer)
    built, notes = {}, []
    for name, around in formats:
        try:
            module = apply(alone, _recipe(name, around)).module
        except StepError as error:
            notes.append(str(error))
            continue
        inputs = (
            planned.inputs.to(FLOATS[around])
            if planned.inputs.is_floating_point()
            else planned.inputs
        )
        call = _call(list(module.children()), inputs)
        with torch.no_grad():
            dtype = call().dtype
        if dtype == FLOATS[around]:
            built[name, around] = call, weights_bytes(module)
        else:
            kind = str(dtype).removeprefix("torch.")
            notes.append(
                f"layer '{planned.layer}' and its like cannot be in {name} among {around}: their "
                f"output would be {kind}"
            )
    return built, notes


def _call(parts: list[Any], inputs: torch.Tensor) -> Callable[[], Any]:
    """Call the parts one after the other, on values in their format: no cast is timed."""

    def call() -> Any:
        values = inputs
        for part in parts:
            values = part(values)
        return values

    return call


def _recipe(name: str, around: str) -> Recipe:
    options: dict[str, Any] = {"default": around} | (
        {"layers": {LAYER: name}} if name != around else {}
    )
    return Recipe([{"precision": options}])


def _conversions(planned: PlannedLayer) -> dict[str, Callable[[], Any]]:
    low, high = planned.inputs.aminmax()
    span = Range(float(low), float(high))
    steps = quantize_values(planned.inputs, span)
    return {
        "to int8": lambda: quantize_values(planned.inputs, span),
        "back": lambda: dequantize_values(steps, span, planned.inputs.dtype),
    }


def keep(table: LatencyTable) -> None:
    """Add the rows to the cache, beside rows that another process wrote meanwhile."""
    table = kept_table(table.threads).with_rows(table.rows, table.conversions)
    try:
        table.save(_path(table))
    except (FileError, OSError) as error:
        warnings.warn(f"Layers will be timed again the next time: {error}", stacklevel=2)


def _path(table: LatencyTable) -> Path:
    return cache_file("latency", VERSION, table.machine, table.threads, table.torch_version)


@dataclass(frozen=True)
class ModelTimes:
    """The cost of the whole model by number of threads and format."""

    costs: Mapping[int, Mapping[str, Cost]]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of threads to plan with: the fewest that are nearly as fast, then fewer."""
        quickest = min(costs["fp32"].latency_ms for costs in self.costs.values())
        best = min(
            count
            for count, costs in self.costs.items()
            if costs["fp32"].latency_ms <= MIN_SPEEDUP * quickest
        )
        return tuple(sorted((count for count in self.costs if count <= best), reverse=True))


def model_times(work: Workload, arounds: tuple[str, ...], seconds: float) -> ModelTimes:
    """Time the model in each format, in turn; one that the whole cannot be in is left out."""
    models, notes = {"fp32": work.model}, list[str]()
    for around in arounds:
        try:
            if around != "fp32":
                models[around] = apply(work, Recipe([{"precision": {"default": around}}])).module
        except StepError as error:
            notes.append(f"{around} between the layers was left out: {error}")
    inputs = work.inputs.clone()
    calls: dict[str, Callable[[], Any]] = {
        name: partial(inputs, model) for name, model in models.items()
    }
    counts = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    costs: dict[int, dict[str, Cost]] = {}
    with running(work.model):
        for count in counts:
            with threads(count):
                ms = in_turn(calls, work.device, seconds / len(counts))
            costs[count] = {
                name: Cost(0.0, ms[name], weights_bytes(model)) for name, model in models.items()
            }
    return ModelTimes(costs, tuple(notes))
