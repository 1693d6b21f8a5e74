"""The cost of each layer in each format: the loss predicted by its sensitivity, and the measured
time and bytes.

Everything between the layers is in one float format, fp32 or a requested one; each of these formats
is an integer program of its own. Times and bytes are differences: the baseline is the whole model
in that format, and a layer adds what it takes beyond its own time and bytes in that format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from torch import nn

from ...errors import MeasureError, WorkloadError
from ...formats import FLOATS
from ...model.graph import Graph
from ...model.layers import channel_of
from ...recipe import Recipe
from ...records import LatencyTable, Sensitivity
from ...variant import apply
from ...workload import Workload
from ...workload.data import data_for_evaluation, first_batches
from .latency import LayerFormat, Stop, keep, latency_table
from .layer_pairs import LayerPair, layer_pairs
from .layers import PlannedLayer, graph_of, planned_layers, why_fixed
from .losses import error_of_output, losses, rise
from .program import Cost, Program, Saving
from .whole_model import ModelTimes, model_times

WHOLE_MODEL_SHARE = 0.25  # of the seconds for timing, for whole models
BATCHES = 8  # on which the loss of the whole model in a format is measured
STOPPED = (
    "the plan was stopped before all layers were timed; the undisturbed timings are kept for "
    "the next plan."
)
# layers that add up to more than this many times the whole model waited for another process: they
# are timed again with fewer threads
MAX_EXCESS = 1.5


@dataclass(frozen=True)
class PlanningProblem:
    """The program with one format around the layers, and the layers that its indices refer to."""

    around: str
    layers: tuple[str, ...]
    fixed: tuple[str, ...]  # layers that stay in the format around them
    program: Program
    errors: tuple[Mapping[str, float], ...]  # the standard errors of the losses


@dataclass(frozen=True)
class Survey:
    """The programs, the baseline and the timings that a plan is made from."""

    problems: tuple[PlanningProblem, ...]
    baseline: Cost
    table: LatencyTable
    notes: tuple[str, ...]


def check_known(
    work: Workload, sensitivity: Sensitivity, layers: Iterable[str], formats: Iterable[str]
) -> None:
    """Raise where the sensitivity lacks a layer or a format that is to be chosen."""
    known = {row.layer for row in sensitivity.rows}
    for layer in layers:
        if layer not in known:
            raise WorkloadError(
                f"the sensitivity of {sensitivity.workload} does not know layer '{layer}' of "
                f"{work.name}; estimate all layers with lab.sensitivity(work), or leave "
                "sensitivity out."
            )
    for name in formats:
        if name != "fp32" and name not in sensitivity.formats:
            raise WorkloadError(
                f"the sensitivity has no estimates for {name} (it has "
                f"{', '.join(sensitivity.formats)}); "
                f"extend it with lab.sensitivity(work, formats=[…, '{name}'], resume=sensitivity), "
                f"or leave {name} out of formats."
            )


def survey(
    work: Workload,
    estimate: Callable[[], Sensitivity],
    formats: tuple[str, ...],
    seconds: float,
    should_stop: Stop,
) -> tuple[Survey, Sensitivity]:
    """Trace the model, estimate its sensitivity, and time its layers and the whole; raises where it
    is stopped before all layers are timed.
    """
    graph = graph_of(work)
    planned_all = planned_layers(work, graph)
    sensitivity = estimate()
    check_known(work, sensitivity, [planned.layer for planned in planned_all], formats)
    arounds = ("fp32", *(name for name in formats if name in FLOATS and name != "fp32"))
    choices = {
        around: {
            planned.layer: _possible(work, graph, sensitivity, planned, formats, around)
            for planned in planned_all
        }
        for around in arounds
    }
    whole = model_times(work, arounds, WHOLE_MODEL_SHARE * seconds)
    table, notes = _table(
        work, planned_all, choices, whole, (1 - WHOLE_MODEL_SHARE) * seconds, should_stop
    )
    if should_stop() and any(
        table.find(planned.likeness, "fp32", "fp32") is None for planned in planned_all
    ):
        raise MeasureError(STOPPED)
    base = whole.costs[table.threads]
    int8_layers = [
        planned.layer for planned in planned_all if "int8" in choices["fp32"][planned.layer]
    ]
    pairs = layer_pairs(work, int8_layers) if int8_layers else []
    fixed = _others(work, graph, planned_all)
    problems = [
        _problem(
            planned_all,
            choices[around],
            fixed,
            sensitivity,
            table,
            _with_loss(work, sensitivity, base[around], around),
            pairs,
            around,
        )
        for around in arounds
        if around in base
    ]
    solvable = tuple(problem for problem in problems if problem is not None)
    return Survey(solvable, base["fp32"], table, (*whole.notes, *notes)), sensitivity


def _with_loss(work: Workload, sensitivity: Sensitivity, whole: Cost, around: str) -> Cost:
    """Add the measured loss of the whole model in a format; layers in that format then add no loss,
    and a layer in fp32 saves none.
    """
    if around == "fp32":
        return whole
    model = apply(work, Recipe([{"precision": {"default": around}}])).module
    return whole._replace(loss=max(_whole_model_loss(work, model, sensitivity), 0.0))


def _whole_model_loss(work: Workload, model: nn.Module, sensitivity: Sensitivity) -> float:
    data = data_for_evaluation(work)
    if sensitivity.unit == "output error" or work.loss is None or data is None:
        return error_of_output(work, model)
    source, kind = data
    batches = list(islice(first_batches(source, work.device, kind), BATCHES))
    if not batches:
        return error_of_output(work, model)
    mean, error = rise(losses(work, work.model, batches), losses(work, model, batches))
    return max(mean, error or 0.0)


def _possible(
    work: Workload,
    graph: Graph,
    sensitivity: Sensitivity,
    planned: PlannedLayer,
    formats: tuple[str, ...],
    around: str,
) -> tuple[str, ...]:
    """The formats that a layer can have and whose loss is known; the format around it where there
    is no other.
    """
    possible = [
        name
        for name in formats
        if why_fixed(work, graph, planned, name, around) is None
        and (name == "fp32" or sensitivity.predicted(planned.layer, name) is not None)
    ]
    return tuple(possible) or (around,)


def _formats_to_time(
    layers: Iterable[PlannedLayer], choices: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> dict[str, tuple[PlannedLayer, tuple[LayerFormat, ...]]]:
    """The formats to time for each kind of layer: its possible ones, and the one around it, which
    the times are counted from.
    """
    formats: dict[str, tuple[PlannedLayer, tuple[LayerFormat, ...]]] = {}
    for planned in layers:
        _, known = formats.get(planned.likeness, (planned, ()))
        new = [
            (name, around)
            for around, chosen in choices.items()
            for name in (around, *chosen[planned.layer])
        ]
        formats[planned.likeness] = planned, tuple(dict.fromkeys((*known, *new)))
    return formats


def _table(
    work: Workload,
    layers: list[PlannedLayer],
    choices: Mapping[str, Mapping[str, tuple[str, ...]]],
    whole: ModelTimes,
    seconds: float,
    should_stop: Stop,
) -> tuple[LatencyTable, list[str]]:
    """The layers' times with a suitable number of threads; saved only where they are plausible."""
    for count in whole.counts:
        table, notes = latency_table(
            work,
            _formats_to_time(layers, choices),
            count=count,
            seconds=seconds,
            should_stop=should_stop,
        )
        alone = sum(
            planned.calls * row.ms
            for planned in layers
            if (row := table.find(planned.likeness, "fp32", "fp32")) is not None
        )
        excess = alone / whole.costs[count]["fp32"].latency_ms
        if excess < MAX_EXCESS:
            keep(table)
            return table, notes
    disturbed = (
        f"the layers alone took {excess:.1f} times what the whole model takes: the machine was "
        "busy, and the latencies are rough"
    )
    return table, [*notes, disturbed]


def _others(work: Workload, graph: Graph, layers: Iterable[PlannedLayer]) -> tuple[str, ...]:
    known = {planned.layer for planned in layers}
    names = [
        name
        for name, module in work.model.named_modules()
        if channel_of(module) is not None and graph.entries[name]
    ]
    return tuple(name for name in names if name not in known)


def _problem(
    planned_all: list[PlannedLayer],
    chosen: Mapping[str, tuple[str, ...]],
    fixed: tuple[str, ...],
    sensitivity: Sensitivity,
    table: LatencyTable,
    whole: Cost,
    pairs: list[LayerPair],
    around: str,
) -> PlanningProblem | None:
    """The program with one format around the layers; None where a layer could not be run in any of
    its formats there.
    """
    options: list[dict[str, Cost]] = []
    for planned in planned_all:
        costs = {
            name: _cost(planned, name, around, sensitivity, table) for name in chosen[planned.layer]
        }
        options.append({name: cost for name, cost in costs.items() if cost is not None})
        if not options[-1]:
            return None
    errors = [
        {name: _error(sensitivity, planned.layer, name) for name in costs_of}
        for planned, costs_of in zip(planned_all, options, strict=True)
    ]
    savings = _savings(planned_all, options, pairs, table)
    layers = tuple(planned.layer for planned in planned_all)
    return PlanningProblem(around, layers, fixed, Program(options, savings, whole), tuple(errors))


def _cost(
    planned: PlannedLayer, name: str, around: str, sensitivity: Sensitivity, table: LatencyTable
) -> Cost | None:
    """What a layer in a format takes beyond its cost in the format around it."""
    timed, reference = (
        table.find(planned.likeness, name, around),
        table.find(planned.likeness, around, around),
    )
    loss = 0.0 if name == around else _loss(sensitivity, planned.layer, name)
    if timed is None or reference is None or loss is None:
        return None
    return Cost(
        loss, planned.calls * (timed.ms - reference.ms), timed.size_bytes - reference.size_bytes
    )


def _loss(sensitivity: Sensitivity, layer: str, name: str) -> float | None:
    """The predicted loss of a layer in a format; None where that is not known.

    A prediction below its standard error, or below zero, counts as that error: among many uncertain
    estimates the program would otherwise pick those that are small by chance, and the model would
    lose a hundred times the predicted sum.
    """
    if name == "fp32":
        return 0.0
    estimate = sensitivity.predicted(layer, name)
    return None if estimate is None else max(estimate.value, estimate.error or 0.0, 0.0)


def _error(sensitivity: Sensitivity, layer: str, name: str) -> float:
    estimate = None if name == "fp32" else sensitivity.predicted(layer, name)
    return (estimate.error or 0.0) if estimate is not None else 0.0


def _savings(
    layers: list[PlannedLayer],
    options: list[dict[str, Cost]],
    pairs: list[LayerPair],
    table: LatencyTable,
) -> tuple[Saving, ...]:
    """Two int8 layers in a row save the second its conversion; every other reader of the value
    between them has to convert it back.
    """
    index = {planned.layer: number for number, planned in enumerate(layers)}
    savings: list[Saving] = []
    for pair in pairs:
        giver, consumer = index[pair.giver], index[pair.consumer]
        measured = table.conversion(layers[consumer].likeness)
        if measured is not None and "int8" in options[giver] and "int8" in options[consumer]:
            ms = measured.to_int8_ms - pair.others * measured.back_ms
            savings.append(Saving(giver, "int8", consumer, "int8", ms))
    return tuple(savings)
