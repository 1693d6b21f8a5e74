"""The cost of each layer in each format: the loss predicted by its sensitivity, and the measured
time and bytes.

Everything between the layers is in one float format, fp32 or a requested one; each of these formats
is an integer program of its own. Times and bytes are differences: the baseline is the whole model
in that format, and a layer adds what it takes beyond its own time and bytes in that format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from typing import Any, Self

import numpy
import torch
from torch import nn

from ...errors import MeasureError, WorkloadError
from ...measure import output_error
from ...model.formats import FLOATS
from ...model.graph import Graph
from ...model.layers import channel_of
from ...records import LatencyTable, Sensitivity
from ...variant import apply
from ...variant.recipe import Recipe
from ...workload import Inputs, Workload, running
from ...workload.data import Batch, data_for_evaluation, first_batches
from .latency import LayerFormat, ModelTimes, Stop, keep, latency_table, model_times
from .layers import PlannedLayer, graph_of, layer_pairs, planned_layers, why_fixed
from .program import Cost, Program, Saving

WHOLE_MODEL_SHARE = 0.25  # of the seconds for timing, for whole models
GRADIENTS = "fisher"  # the method without second derivatives
BATCHES = 8  # on which the loss of the whole model in a format is measured
STOPPED = (
    "the plan was stopped before all layers were timed; the undisturbed timings are kept for "
    "the next plan."
)
# layers that add up to more than this many times the whole model waited for another process: they
# are timed again with fewer threads
MAX_EXCESS = 1.5

Losses = list[tuple[int, float]]  # of each batch: its examples, and their mean loss


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
    """What the plans of a workload are made from: programs, baseline, timings and sensitivity."""

    work: Workload
    formats: tuple[str, ...]
    sensitivity: Sensitivity
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


@dataclass(frozen=True)
class _Choices:
    """The layers of a model, and the formats that each can have by the format around them."""

    work: Workload
    graph: Graph
    layers: list[PlannedLayer]
    sensitivity: Sensitivity
    formats: tuple[str, ...]
    scales: Mapping[str, float] = field(default_factory=dict)  # of the losses in a format

    @property
    def arounds(self) -> tuple[str, ...]:
        return ("fp32", *(name for name in self.formats if name in FLOATS and name != "fp32"))

    def possible(self, planned: PlannedLayer, around: str) -> tuple[str, ...]:
        """The formats that a layer can have and whose loss is known, or else the one around it."""
        return self._possible[around, planned.layer]

    @cached_property
    def _possible(self) -> dict[tuple[str, str], tuple[str, ...]]:
        known = {row.layer for row in self.sensitivity.rows}
        possible = {}
        for around, planned in product(self.arounds, self.layers):
            names = tuple(
                name
                for name in self.formats
                if why_fixed(self.work, self.graph, planned, name, around) is None
                and all(
                    name == "fp32" or self.sensitivity.predicted(layer, name) is not None
                    for layer in planned.tied
                    if layer in known
                )
            )
            possible[around, planned.layer] = names or (around,)
        return possible

    @property
    def to_time(self) -> dict[str, tuple[PlannedLayer, tuple[LayerFormat, ...]]]:
        """For each kind of layer its possible formats, and the one around it, which times are
        counted from.
        """
        formats: dict[str, tuple[PlannedLayer, tuple[LayerFormat, ...]]] = {}
        for planned in self.layers:
            _, known = formats.get(planned.likeness, (planned, ()))
            new = [
                (name, around)
                for around in self.arounds
                for name in (around, *self.possible(planned, around))
            ]
            formats[planned.likeness] = planned, tuple(dict.fromkeys((*known, *new)))
        return formats

    @property
    def fixed(self) -> tuple[str, ...]:
        """The other layers with weights."""
        known = {planned.layer for planned in self.layers}
        return tuple(
            name
            for name, module in self.work.model.named_modules()
            if channel_of(module) is not None and self.graph.entries[name] and name not in known
        )

    def error(self, layer: str, name: str) -> float:
        estimate = None if name == "fp32" else self.sensitivity.predicted(layer, name)
        return self._scaled(estimate.error or 0.0, name) if estimate is not None else 0.0

    def loss(self, layer: str, name: str) -> float | None:
        """The predicted loss of a layer in a format; None where that is not known.

        A prediction below its standard error, or below zero, counts as that error: among many
        uncertain estimates the program would otherwise pick those that are small by chance, and
        the model would lose a hundred times the predicted sum.
        """
        if name == "fp32":
            return 0.0
        estimate = self.sensitivity.predicted(layer, name)
        if estimate is None:
            return None
        return self._scaled(max(estimate.value, estimate.error or 0.0, 0.0), name)

    def _scaled(self, loss: float, name: str) -> float:
        return loss * self.scales.get(name, 1.0)

    def with_measured_sums(self) -> Self:
        """The losses of gradients alone, scaled so that their sum is the measured loss of the model
        with all layers in the format: they are too small by the number of tokens or pixels where
        the loss is a mean over these, and do not know of rounded inputs.
        """
        if self.sensitivity.method != GRADIENTS:
            return self
        scales: dict[str, float] = {}
        for name in set(self.formats) - set(FLOATS):
            able = [one.layer for one in self.layers if name in self.possible(one, "fp32")]
            predicted = sum(self.loss(layer, name) or 0.0 for layer in able)
            if predicted:
                module = apply(self.work, Recipe([{"precision": {"default": name}}])).module
                measured = _whole_model_loss(self.work, module, self.sensitivity)
                scales[name] = max(measured, 0.0) / predicted
        return replace(self, scales=scales)


def survey(
    work: Workload,
    estimate: Callable[[int], Sensitivity],
    formats: tuple[str, ...],
    seconds: float,
    should_stop: Stop,
) -> Survey:
    """Trace the model, estimate its sensitivity, and time its layers and the whole."""
    graph = graph_of(work)
    layers = planned_layers(work, graph)
    sensitivity = estimate(len(layers))
    check_known(work, sensitivity, [planned.layer for planned in layers], formats)
    choices = _Choices(work, graph, layers, sensitivity, formats).with_measured_sums()
    whole = model_times(work, choices.arounds, WHOLE_MODEL_SHARE * seconds)
    table, notes = _table(choices, whole, (1 - WHOLE_MODEL_SHARE) * seconds, should_stop)
    if should_stop() and any(
        table.find(planned.likeness, "fp32", "fp32") is None for planned in layers
    ):
        raise MeasureError(STOPPED)
    base = whole.costs[table.threads]
    in_int8 = [planned.layer for planned in layers if "int8" in choices.possible(planned, "fp32")]
    pairs = layer_pairs(work, in_int8) if in_int8 else []
    problems = (
        _problem(choices, table, pairs, around, _with_loss(choices, base[around], around))
        for around in choices.arounds
        if around in base
    )
    solvable = tuple(problem for problem in problems if problem is not None)
    notes = [*whole.notes, *notes]
    return Survey(work, formats, sensitivity, solvable, base["fp32"], table, tuple(notes))


def _with_loss(choices: _Choices, whole: Cost, around: str) -> Cost:
    """Add the measured loss of the whole model in a format; layers in that format then add no loss,
    and a layer in fp32 saves none.
    """
    if around == "fp32":
        return whole
    model = apply(choices.work, Recipe([{"precision": {"default": around}}])).module
    return whole._replace(
        loss=max(_whole_model_loss(choices.work, model, choices.sensitivity), 0.0)
    )


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


def _table(
    choices: _Choices, whole: ModelTimes, seconds: float, should_stop: Stop
) -> tuple[LatencyTable, list[str]]:
    """The layers' times with a suitable number of threads; saved only where they are plausible."""
    to_time = choices.to_time
    for count in whole.counts:
        table, notes = latency_table(
            choices.work, to_time, count=count, seconds=seconds, should_stop=should_stop
        )
        alone = sum(
            planned.calls * row.ms
            for planned in choices.layers
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


def _problem(
    choices: _Choices, table: LatencyTable, pairs: list[tuple[str, str]], around: str, whole: Cost
) -> PlanningProblem | None:
    """The program with one format around the layers; None if a layer runs in none of its own."""
    options: list[dict[str, Cost]] = []
    for planned in choices.layers:
        costs = {
            name: _cost(choices, table, planned, name, around)
            for name in choices.possible(planned, around)
        }
        options.append({name: cost for name, cost in costs.items() if cost is not None})
    layers = tuple(planned.layer for planned in choices.layers)
    index = {layer: number for number, layer in enumerate(layers)}
    equal = [
        (index[planned.tied[0]], index[planned.layer])
        for planned in choices.layers
        if planned.layer != planned.tied[0] and planned.tied[0] in index
    ]
    for pair in equal:
        common = options[pair[0]].keys() & options[pair[1]].keys()
        for layer in pair:
            options[layer] = {
                name: options[layer][name] for name in options[layer] if name in common
            }
    if not all(options):
        return None
    errors = tuple(
        {name: choices.error(layer, name) for name in costs_of}
        for layer, costs_of in zip(layers, options, strict=True)
    )
    savings = _savings(choices.layers, options, pairs, table)
    program = Program(options, savings, whole, equal)
    return PlanningProblem(around, layers, choices.fixed, program, errors)


def _cost(
    choices: _Choices, table: LatencyTable, planned: PlannedLayer, name: str, around: str
) -> Cost | None:
    """What a layer in a format takes beyond its cost in the format around it; the bytes of a shared
    weight count once.
    """
    timed = table.find(planned.likeness, name, around)
    reference = table.find(planned.likeness, around, around)
    loss = 0.0 if name == around else choices.loss(planned.layer, name)
    if timed is None or reference is None or loss is None:
        return None
    ms, size = timed.ms - reference.ms, timed.size_bytes - reference.size_bytes
    return Cost(loss, planned.calls * ms, size if planned.layer == planned.tied[0] else 0.0)


def _savings(
    layers: list[PlannedLayer],
    options: list[dict[str, Cost]],
    pairs: list[tuple[str, str]],
    table: LatencyTable,
) -> tuple[Saving, ...]:
    """Two int8 layers in a row save the second its conversion."""
    index = {planned.layer: number for number, planned in enumerate(layers)}
    savings: list[Saving] = []
    for giver, consumer in ((index[giver], index[consumer]) for giver, consumer in pairs):
        measured = table.conversion(layers[consumer].likeness)
        if measured is not None and "int8" in options[giver] and "int8" in options[consumer]:
            savings.append(Saving(giver, "int8", consumer, "int8", measured.to_int8_ms))
    return tuple(savings)


def losses(work: Workload, model: nn.Module, data: Iterable[tuple[Inputs, Any]]) -> Losses:
    """The number of examples and the loss of each batch."""
    assert work.loss is not None
    with running(model):
        return [
            (
                Batch(inputs).examples,
                float(torch.as_tensor(work.loss(inputs.clone()(model), target))),
            )
            for inputs, target in data
        ]


def rise(before: Losses, after: Losses) -> tuple[float, float | None]:
    """The rise of the mean loss, and its standard error over the batches."""
    weights = numpy.array([count for count, _ in before], dtype=float)
    rises = numpy.array([new - old for (_, old), (_, new) in zip(before, after, strict=True)])
    mean = float(numpy.average(rises, weights=weights))
    if len(rises) < 2:
        return mean, None
    return mean, float(
        numpy.sqrt(numpy.average((rises - mean) ** 2, weights=weights) / (len(rises) - 1))
    )


def error_of_output(work: Workload, model: nn.Module) -> float:
    """The relative error of the output on the example inputs."""
    reference = work.output()
    with running(model):
        return output_error(reference, work.inputs.clone()(model))[0]
