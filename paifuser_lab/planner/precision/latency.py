"""What each layer takes alone in each format: as the precision step makes it, on what it is really
given, formats in turn.

The rows are kept in the cache folder, a file a machine, number of threads and torch: the next plan,
also of another model with layers of the same kind, measures only what is new.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..._files import cache_file
from ...errors import FileError, StepError
from ...formats import FLOATS, Range
from ...machine import hardware, threads
from ...measure import in_turn
from ...model.weights import weights_bytes
from ...progress import progress
from ...quantization.conversion import dequantize_values, quantize_values
from ...recipe import Recipe
from ...records import ConversionLatency, LatencyTable, LayerLatency
from ...variant import apply
from ...workload import Workload, running
from .layers import LAYER, PlannedLayer

VERSION = 1  # raise it when layers are made or timed otherwise: old rows are then left unread

Wanted = tuple[str, str]  # format, around
Stop = Callable[[], bool]


def latency_table(
    work: Workload,
    wanted: Mapping[str, tuple[PlannedLayer, tuple[Wanted, ...]]],
    *,
    count: int,
    seconds: float,
    should_stop: Stop,
) -> tuple[LatencyTable, list[str]]:
    """The rows of what is wanted by likeness, from the cache or measured now; and what could not be
    made, as notes.

    One that is stopped has the rows that were measured until then.
    """
    table, notes = kept_table(count), list[str]()
    missing = {
        key: (planned, new)
        for key, (planned, every) in wanted.items()
        if (new := _missing(table, key, every))
    }
    rows: list[LayerLatency] = []
    conversions: list[ConversionLatency] = []
    with progress("timing layers", len(missing)) as shown, running(work.model), threads(count):
        for planned, new in missing.values():
            if should_stop():
                notes.append("the timing was stopped: some layers were not timed in every format")
                break
            output, converted, failed = _timed(planned, new, work.device, seconds / len(missing))
            rows, conversions, notes = (
                [*rows, *output],
                [*conversions, *converted],
                [*notes, *failed],
            )
            shown.advance(doing=planned.layer)
    return table.with_rows(tuple(rows), tuple(conversions)), notes


def kept_table(count: int) -> LatencyTable:
    """What was measured here before with so many threads; an empty table where nothing was, or
    where the file is damaged.
    """
    empty = LatencyTable(
        machine=hardware().label, threads=count, torch_version=str(torch.__version__)
    )
    with suppress(FileError, OSError):
        kept = LatencyTable.load(_path(empty))
        if (kept.machine, kept.threads, kept.torch_version) == (
            empty.machine,
            empty.threads,
            empty.torch_version,
        ):
            return kept
    return empty


def _missing(table: LatencyTable, likeness: str, every: Iterable[Wanted]) -> tuple[Wanted, ...]:
    """All formats of a layer are timed in turn, so that one that is new has the others measured
    again.
    """
    every = tuple(every)
    has_all = all(table.find(likeness, *one) is not None for one in every)
    needs_conversion = (
        any(name == "int8" for name, _ in every) and table.conversion(likeness) is None
    )
    return () if has_all and not needs_conversion else every


def _timed(
    planned: PlannedLayer, wanted: Iterable[Wanted], device: torch.device, seconds: float
) -> tuple[list[LayerLatency], list[ConversionLatency], list[str]]:
    output, notes = _made(planned, wanted)
    calls: dict[Any, Callable[[], Any]] = {one: call for one, (call, _) in output.items()}
    if has_int8 := any(name == "int8" for name, _ in output):
        calls |= _conversions(planned)
    taken = in_turn(calls, device, seconds)
    rows = [
        LayerLatency(
            likeness=planned.likeness,
            format=name,
            around=around,
            ms=taken[name, around],
            size_bytes=size,
        )
        for (name, around), (_, size) in output.items()
    ]
    converted = (
        ConversionLatency(
            likeness=planned.likeness, to_int8_ms=taken["to int8"], back_ms=taken["back"]
        )
        if has_int8
        else None
    )
    return rows, [converted] if converted else [], notes


def _made(
    planned: PlannedLayer, wanted: Iterable[Wanted]
) -> tuple[dict[Wanted, tuple[Callable[[], Any], int]], list[str]]:
    """The layer in each format, ready to be called, and its bytes; made by the very step that will
    change the model.
    """
    alone = Workload(planned.alone(), planned.inputs, name=planned.layer)
    found, notes = {}, []
    for name, around in wanted:
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
            found[name, around] = call, weights_bytes(module)
        else:
            kind = str(dtype).removeprefix("torch.")
            notes.append(
                f"layer '{planned.layer}' and its like cannot be in {name} among {around}: they "
                f"would pass on {kind}"
            )
    return found, notes


def _call(parts: list[Any], inputs: torch.Tensor) -> Callable[[], Any]:
    """The parts one after the other: what is around them is in its format already, and has no cast
    of its own.
    """

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
    """Keep the rows for the next plan, beside what another process wrote meanwhile."""
    table = kept_table(table.threads).with_rows(table.rows, table.conversions)
    try:
        table.save(_path(table))
    except (FileError, OSError) as error:
        warnings.warn(f"Layers will be timed again the next time: {error}", stacklevel=2)


def _path(table: LatencyTable) -> Path:
    return cache_file("latency", VERSION, table.machine, table.threads, table.torch_version)
