"""The importance of each unit of each group: the values of `lab.importance`, added up over the
channels of the unit in every layer of the group.

A layer alone in its group is cut exactly by what `lab.importance` shows for it, with the same
method, seed and batches. Where several layers write the same channels, as along a residual
connection, a unit has the sum over those layers. Weights that belong to no layer of a known kind,
such as the packed projections of `nn.MultiheadAttention`, count where a group has no other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import numpy
from numpy.typing import NDArray
from torch import nn

from ...errors import MeasureError, StepError
from ...model.layers import TRANSPOSED_CONVOLUTIONS
from ...records import ChannelGroup, Member
from ...saliency.channel_run import ChannelValues, channel_values, missing_for
from ...saliency.channels import CHANNEL_ESTIMATORS
from ...saliency.channels.output_channels import output_dimension
from ...saliency.curvature import GradientError
from ...saliency.subject import Layer
from ...workload import Workload
from .channel_ids import Numbers
from .grouping import CutProblem

Scores = NDArray[numpy.float64]  # by unit of a group, or by class of channel ids
FALLBACK = "magnitude"


def unit_scores(problem: CutProblem, method: str, seed: int) -> tuple[list[Scores], list[str]]:
    """A score for each unit of each group, with a mean of one where it can lose some; and notes."""
    structure = problem.structure
    own = copy.copy(problem.work)
    own.model = problem.model
    layers = {
        index: _layers_of(problem.model, group)
        for index, group in enumerate(structure.groups)
        if group.pinned is None
    }
    values, notes = _estimated(own, _together(layers.values()), method, seed, problem.should_stop)
    without = {index for index, members in layers.items() if not members.keys() & values.keys()}
    missing = _together(layers[index] for index in without)
    fallback = _estimated(own, missing, FALLBACK, seed, problem.should_stop)[0] if missing else {}
    ids = {(span.weight, span.dimension): span for span in structure.spans}
    scores = []
    for index, units in enumerate(structure.units):
        source = fallback if index in without else values
        total = numpy.zeros(len(units))
        for name, layer in layers.get(index, {}).items():
            if name in source:
                weight = f"{layer.name}.{layer.parameter}" if layer.name else layer.parameter
                span = ids[weight, layer.channel]
                own_values = _by_position(layer, numpy.asarray(source[name]))
                total += _sum_by_unit(units, structure.classes[span.start : span.stop], own_values)
        mean = float(total.mean())
        scores.append(total / mean if mean > 0 else total)
    names = [structure.groups[index].name for index in sorted(without)]
    return scores, notes + ([_fallback_note(names, method)] if names else [])


def default_importance(work: Workload) -> str:
    """Taylor where there is a loss and train data, else magnitude."""
    return "taylor" if work.loss is not None and work.train is not None else FALLBACK


def described(method: str) -> str:
    """A method with its unit, and the rule for channels that go together."""
    unit = CHANNEL_ESTIMATORS[method].unit.rstrip(".")
    return (
        f"{method} ({unit[0].lower()}{unit[1:]}), where channels go together by the sum over the "
        "layers of their group"
    )


def _fallback_note(names: list[str], method: str) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"'{names[0]}'{more}: no {method} value, so {FALLBACK} chooses its channels"


def _estimated(
    work: Workload,
    layers: dict[str, Layer],
    method: str,
    seed: int,
    should_stop: Callable[[], bool],
) -> tuple[ChannelValues, list[str]]:
    """The values of these layers; raises with what to change in the step."""
    if missing := missing_for(work, method):
        needed = (
            "loss and train data" if CHANNEL_ESTIMATORS[method].needs == "loss" else "train data"
        )
        raise StepError(
            f"importance '{method}' needs the workload's {needed}, and it has no {missing}; add "
            f"it, or choose '{FALLBACK}'."
        )
    if not layers:
        return {}, []
    try:
        estimated, notes = channel_values(work, layers, method, seed, should_stop)
    except GradientError as error:
        raise StepError(
            f"importance '{method}' has no gradient: {str(error).rstrip('.')}. Choose "
            f"importance '{FALLBACK}', and put 'prune' before 'precision' and 'qat'."
        ) from error
    except MeasureError as error:
        raise StepError(f"importance '{method}' cannot be estimated: {error}") from error
    for name, values in estimated.items():
        if not numpy.isfinite(values).all():
            raise StepError(
                f"importance '{method}': a value of '{name}' is NaN or infinite; check the "
                f"weights and the data, or choose importance '{FALLBACK}'."
            )
    return estimated, notes


def _layers_of(model: nn.Module, group: ChannelGroup) -> dict[str, Layer]:
    """The layers whose output channels are a group's units; else its matrices, or its vectors."""
    weights = {
        name: weight for name, weight in model.named_parameters() if weight.is_floating_point()
    }
    rows = [
        member for member in group.members if member.kind == "rows" and member.weight in weights
    ]
    if layers := [member for member in rows if _is_output(model, member)]:
        return {member.layer: _layer(model, member) for member in layers}
    matrices = [member for member in rows if weights[member.weight].ndim > 1]
    return {member.weight: _layer(model, member) for member in matrices or rows}


def _layer(model: nn.Module, member: Member) -> Layer:
    module = model.get_submodule(member.layer)
    return Layer(member.layer, module, member.dimension, member.parameter)


def _is_output(model: nn.Module, member: Member) -> bool:
    """Whether the member is the output channels of a layer of a known kind."""
    module = model.get_submodule(member.layer)
    dimension = output_dimension(module) if member.parameter == "weight" else None
    if dimension is not None and _is_depthwise_transposed(module):
        dimension = 0  # a group has one output channel, and is removed with its inputs
    return dimension == member.dimension


def _is_depthwise_transposed(module: nn.Module) -> bool:
    return (
        isinstance(module, TRANSPOSED_CONVOLUTIONS)
        and module.groups > 1
        and module.weight.shape[1] == 1
    )


def _by_position(layer: Layer, values: Scores) -> Scores:
    """A layer's values by position along its dimension of output channels in the weight."""
    groups = getattr(layer.module, "groups", 1)
    if not isinstance(layer.module, TRANSPOSED_CONVOLUTIONS) or groups == 1:
        return values
    if not _is_depthwise_transposed(layer.module):  # each group has the same positions
        return numpy.asarray(values.reshape(groups, -1).sum(0))
    positions = numpy.zeros((groups, layer.weight.shape[0] // groups))
    positions[:, 0] = values
    return positions.ravel()


def _sum_by_unit(units: tuple[int, ...], classes: Numbers, values: Scores) -> Scores:
    """For each unit, a class of channel ids, the sum of the values of its channels."""
    names = numpy.asarray(units)
    unit = numpy.searchsorted(names, classes).clip(max=len(names) - 1)
    is_of_group = names[unit] == classes
    sums: Scores = numpy.zeros(len(names))
    numpy.add.at(sums, unit[is_of_group], values[is_of_group])
    return sums


def _together(layers: Iterable[dict[str, Layer]]) -> dict[str, Layer]:
    return {name: layer for members in layers for name, layer in members.items()}
