"""What each layer costs in each format: the loss that its sensitivity predicts, the time and the
bytes that were measured.

Everything between the layers is in one float format, fp32 or one that was asked for; each of these
is a program of its own. Times and bytes count from the model as it is in that format, whole: what a
layer adds is what it takes beyond what it took there.
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
from .latency import Stop, Wanted, keep, latency_table
from .layer_pairs import LayerPair, layer_pairs
from .layers import PlannedLayer, graph_of, planned_layers, why_fixed
from .losses import error_of_output, losses, rise
from .program import Cost, Program, Saving
from .whole_model import ModelTimes, model_times

WHOLE_SECONDS = 0.25  # of the seconds for timing, for whole models
BATCHES = 8  # that tell what the whole model loses in a format
STOPPED = (
    "the planning was stopped before all layers were timed; what was timed undisturbed is kept for "
    "the next plan."
)
# layers that take so many times the whole were waiting for a neighbour: they are tried with fewer
# threads
DISTURBED = 1.5


@dataclass(frozen=True)
class PlanningProblem:
    """The program with one format around the layers, and the layers that its numbers belong to."""

    around: str
    layers: tuple[str, ...]
    fixed: tuple[str, ...]  # layers that stay as what is around them
    program: Program
    errors: tuple[Mapping[str, float], ...]  # the standard errors of the losses


@dataclass(frozen=True)
class Survey:
    """Everything known before the first choice."""

    problems: tuple[PlanningProblem, ...]
    baseline: Cost
    table: LatencyTable
    notes: tuple[str, ...]


def check_known(
    work: Workload, found: Sensitivity, layers: Iterable[str], formats: Iterable[str]
) -> None:
    """A sensitivity has to know every layer and every format that is to be chosen."""
    known = {row.layer for row in found.rows}
    for layer in layers:
        if layer not in known:
            raise WorkloadError(
                f"the sensitivity of {found.workload} does not know layer '{layer}' of "
                f"{work.name}; "
                "estimate all layers, lab.sensitivity(work), or leave sensitivity out."
            )
    for name in formats:
        if name != "fp32" and name not in found.formats:
            raise WorkloadError(
                f"the sensitivity was not asked about {name} (it knows "
                f"{', '.join(found.formats)}); "
                f"go on with it: lab.sensitivity(work, formats=[…, '{name}'], resume=it), or leave "
                f"{name} out of formats."
            )


def survey(
    work: Workload,
    estimate: Callable[[], Sensitivity],
    formats: tuple[str, ...],
    seconds: float,
    should_stop: Stop,
) -> tuple[Survey, Sensitivity]:
    """Run the model, have its sensitivity estimated, and time its layers and the whole; an error
    where it is stopped before there is enough.
    """
    graph = graph_of(work)
    found = planned_layers(work, graph)
    sensitivity = estimate()
    check_known(work, sensitivity, [planned.layer for planned in found], formats)
    arounds = ("fp32", *(name for name in formats if name in FLOATS and name != "fp32"))
    choices = {
        around: {
            planned.layer: _possible(work, graph, sensitivity, planned, formats, around)
            for planned in found
        }
        for around in arounds
    }
    whole = model_times(work, arounds, WHOLE_SECONDS * seconds)
    table, notes = _table(work, found, choices, whole, (1 - WHOLE_SECONDS) * seconds, should_stop)
    if should_stop() and any(
        table.find(planned.likeness, "fp32", "fp32") is None for planned in found
    ):
        raise MeasureError(STOPPED)
    base = whole.costs[table.threads]
    can_be_int8 = [planned.layer for planned in found if "int8" in choices["fp32"][planned.layer]]
    pairs = layer_pairs(work, can_be_int8) if can_be_int8 else []
    fixed = _others(work, graph, found)
    problems = [
        _problem(
            found,
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
    kept = tuple(one for one in problems if one is not None)
    return Survey(kept, base["fp32"], table, (*whole.notes, *notes)), sensitivity


def _with_loss(work: Workload, sensitivity: Sensitivity, whole: Cost, around: str) -> Cost:
    """What the whole model loses in a format is measured; a layer that is in it costs nothing more,
    and one in fp32 saves nothing.
    """
    if around == "fp32":
        return whole
    model = apply(work, Recipe([{"precision": {"default": around}}])).module
    return whole._replace(loss=max(_lost(work, model, sensitivity), 0.0))


def _lost(work: Workload, model: nn.Module, sensitivity: Sensitivity) -> float:
    data = data_for_evaluation(work)
    if sensitivity.unit == "output error" or work.loss is None or data is None:
        return error_of_output(work, model)
    source, what = data
    few = list(islice(first_batches(source, work.device, what), BATCHES))
    if not few:
        return error_of_output(work, model)
    mean, error = rise(losses(work, work.model, few), losses(work, model, few))
    return max(mean, error or 0.0)


def _possible(
    work: Workload,
    graph: Graph,
    found: Sensitivity,
    planned: PlannedLayer,
    formats: tuple[str, ...],
    around: str,
) -> tuple[str, ...]:
    """The formats that a layer can have and whose loss is known; the format around it where it can
    have no other.
    """
    able = [
        name
        for name in formats
        if why_fixed(work, graph, planned, name, around) is None
        and (name == "fp32" or found.predicted(planned.layer, name) is not None)
    ]
    return tuple(able) or (around,)


def _wanted(
    found: Iterable[PlannedLayer], choices: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> dict[str, tuple[PlannedLayer, tuple[Wanted, ...]]]:
    """What has to be timed of each kind of layer: its formats, and its being as all around it is,
    from which the times count.
    """
    wanted: dict[str, tuple[PlannedLayer, tuple[Wanted, ...]]] = {}
    for planned in found:
        _, every = wanted.get(planned.likeness, (planned, ()))
        new = [
            (name, around)
            for around, chosen in choices.items()
            for name in (around, *chosen[planned.layer])
        ]
        wanted[planned.likeness] = planned, tuple(dict.fromkeys((*every, *new)))
    return wanted


def _table(
    work: Workload,
    found: list[PlannedLayer],
    choices: Mapping[str, Mapping[str, tuple[str, ...]]],
    whole: ModelTimes,
    seconds: float,
    should_stop: Stop,
) -> tuple[LatencyTable, list[str]]:
    """The layers' times with the number of threads that suits; kept only where they can be true."""
    for count in whole.counts:
        table, notes = latency_table(
            work, _wanted(found, choices), count=count, seconds=seconds, should_stop=should_stop
        )
        alone = sum(
            one.calls * row.ms
            for one in found
            if (row := table.find(one.likeness, "fp32", "fp32")) is not None
        )
        excess = alone / whole.costs[count]["fp32"].latency_ms
        if excess < DISTURBED:
            keep(table)
            return table, notes
    disturbed = (
        f"the layers alone took {excess:.1f} times what the whole model takes: the machine was "
        "busy, and the latencies are rough"
    )
    return table, [*notes, disturbed]


def _others(work: Workload, graph: Graph, found: Iterable[PlannedLayer]) -> tuple[str, ...]:
    known = {planned.layer for planned in found}
    every = [
        name
        for name, module in work.model.named_modules()
        if channel_of(module) is not None and graph.entries[name]
    ]
    return tuple(name for name in every if name not in known)


def _problem(
    found: list[PlannedLayer],
    chosen: Mapping[str, tuple[str, ...]],
    fixed: tuple[str, ...],
    sensitivity: Sensitivity,
    table: LatencyTable,
    whole: Cost,
    pairs: list[LayerPair],
    around: str,
) -> PlanningProblem | None:
    """The program with one format around the layers; None where a layer could not be run in it."""
    options: list[dict[str, Cost]] = []
    for planned in found:
        costs = {
            name: _cost(planned, name, around, sensitivity, table) for name in chosen[planned.layer]
        }
        options.append({name: cost for name, cost in costs.items() if cost is not None})
        if not options[-1]:
            return None
    errors = [
        {name: _error(sensitivity, planned.layer, name) for name in one}
        for planned, one in zip(found, options, strict=True)
    ]
    savings = _savings(found, options, pairs, table)
    layers = tuple(planned.layer for planned in found)
    return PlanningProblem(around, layers, fixed, Program(options, savings, whole), tuple(errors))


def _cost(
    planned: PlannedLayer, name: str, around: str, sensitivity: Sensitivity, table: LatencyTable
) -> Cost | None:
    """What a layer in a format takes beyond what it took as all around it."""
    here, plain = (
        table.find(planned.likeness, name, around),
        table.find(planned.likeness, around, around),
    )
    loss = 0.0 if name == around else _loss(sensitivity, planned.layer, name)
    if here is None or plain is None or loss is None:
        return None
    return Cost(loss, planned.calls * (here.ms - plain.ms), here.size_bytes - plain.size_bytes)


def _loss(sensitivity: Sensitivity, layer: str, name: str) -> float | None:
    """What a layer in a format is predicted to lose; None where that is not known.

    What is predicted below its standard error, or below zero, counts as that error: of many
    uncertain estimates the program would pick those that chance made small, and lose in practice a
    hundred times what it added up.
    """
    if name == "fp32":
        return 0.0
    estimate = sensitivity.predicted(layer, name)
    return None if estimate is None else max(estimate.value, estimate.error or 0.0, 0.0)


def _error(sensitivity: Sensitivity, layer: str, name: str) -> float:
    estimate = None if name == "fp32" else sensitivity.predicted(layer, name)
    return (estimate.error or 0.0) if estimate is not None else 0.0


def _savings(
    found: list[PlannedLayer],
    options: list[dict[str, Cost]],
    pairs: list[LayerPair],
    table: LatencyTable,
) -> tuple[Saving, ...]:
    """Two int8 layers in a row spare the second its conversion; other readers of what is between
    has to convert it back.
    """
    index = {planned.layer: number for number, planned in enumerate(found)}
    savings: list[Saving] = []
    for pair in pairs:
        giver, consumer = index[pair.giver], index[pair.consumer]
        measured = table.conversion(found[consumer].likeness)
        if measured is not None and "int8" in options[giver] and "int8" in options[consumer]:
            ms = measured.to_int8_ms - pair.others * measured.back_ms
            savings.append(Saving(giver, "int8", consumer, "int8", ms))
    return tuple(savings)
